// Internal: which sanitizer this build runs under.
#ifndef SLUICE_TEST_SUPPORT_SANITIZERS_H_
#define SLUICE_TEST_SUPPORT_SANITIZERS_H_

#if defined(__SANITIZE_THREAD__)
#define SLUICE_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SLUICE_TEST_TSAN 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_TEST_ASAN 1
#endif
#endif

namespace sluice::test {

#if defined(SLUICE_TEST_TSAN)
inline constexpr bool kTsan = true;
#else
inline constexpr bool kTsan = false;
#endif

#if defined(SLUICE_TEST_ASAN)
inline constexpr bool kAsan = true;
#else
inline constexpr bool kAsan = false;
#endif

inline constexpr bool kSanitized = kTsan || kAsan;

}  // namespace sluice::test

#endif  // SLUICE_TEST_SUPPORT_SANITIZERS_H_
