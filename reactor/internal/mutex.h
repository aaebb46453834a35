// Internal: std::mutex with clang's thread-safety annotations.
//
// Not absl::Mutex: Debian's abseil is not built for ThreadSanitizer, and every
// use of it is a false race there.
#ifndef SLUICE_REACTOR_INTERNAL_MUTEX_H_
#define SLUICE_REACTOR_INTERNAL_MUTEX_H_

#include <mutex>

#if defined(__clang__)
#define SLUICE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SLUICE_THREAD_ANNOTATION(x)
#endif

#define SLUICE_CAPABILITY(x) SLUICE_THREAD_ANNOTATION(capability(x))
#define SLUICE_SCOPED_CAPABILITY SLUICE_THREAD_ANNOTATION(scoped_lockable)
#define SLUICE_GUARDED_BY(x) SLUICE_THREAD_ANNOTATION(guarded_by(x))
#define SLUICE_REQUIRES(...) \
  SLUICE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SLUICE_EXCLUDES(...) \
  SLUICE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define SLUICE_ACQUIRE(...) \
  SLUICE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SLUICE_RELEASE(...) \
  SLUICE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace sluice::internal {

class SLUICE_CAPABILITY("mutex") Mutex {
 public:
  void Lock() SLUICE_ACQUIRE() { mutex_.lock(); }
  void Unlock() SLUICE_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class SLUICE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SLUICE_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() SLUICE_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace sluice::internal

#endif  // SLUICE_REACTOR_INTERNAL_MUTEX_H_
