// Internal: a mutex for critical sections of tens of nanoseconds.
#ifndef SLUICE_WORKER_POOL_INTERNAL_ADAPTIVE_MUTEX_H_
#define SLUICE_WORKER_POOL_INTERNAL_ADAPTIVE_MUTEX_H_

#include <pthread.h>

#include "reactor/internal/mutex.h"

namespace sluice::internal {

// Spins for about a hundred tries before it sleeps (glibc's
// PTHREAD_MUTEX_ADAPTIVE_NP): a plain mutex would go to sleep, and cost whoever
// unlocks it a system call, for what is over at once.
class SLUICE_CAPABILITY("mutex") AdaptiveMutex {
 public:
  AdaptiveMutex() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  ~AdaptiveMutex() { pthread_mutex_destroy(&mutex_); }
  AdaptiveMutex(const AdaptiveMutex&) = delete;
  AdaptiveMutex& operator=(const AdaptiveMutex&) = delete;

  void Lock() SLUICE_ACQUIRE() { pthread_mutex_lock(&mutex_); }
  void Unlock() SLUICE_RELEASE() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

class SLUICE_SCOPED_CAPABILITY AdaptiveMutexLock {
 public:
  explicit AdaptiveMutexLock(AdaptiveMutex& mutex) SLUICE_ACQUIRE(mutex)
      : mutex_(mutex) {
    mutex_.Lock();
  }
  ~AdaptiveMutexLock() SLUICE_RELEASE() { mutex_.Unlock(); }
  AdaptiveMutexLock(const AdaptiveMutexLock&) = delete;
  AdaptiveMutexLock& operator=(const AdaptiveMutexLock&) = delete;

 private:
  AdaptiveMutex& mutex_;
};

}  // namespace sluice::internal

#endif  // SLUICE_WORKER_POOL_INTERNAL_ADAPTIVE_MUTEX_H_
