// Tells the thread sanitizer how a contended Mutex of the standard library hands over on Linux.
//
// A Mutex is locked and unlocked by code that is compiled into its caller, which the sanitizer sees,
// as long as nobody else wants it. Else the standard library's own functions do it, which are not
// instrumented: what two holders do after each other is then reported as a race. This library is
// loaded before the program, stands before those functions, and says what they leave out: that who
// locks comes after who unlocked.
//
// .ci/check-thread-sanitizer builds it, and shows that it is needed and what it does.

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// The sanitizer's, in a program that has it.
extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));

// Methods of a Swift structure that is passed by its address.
typedef void lock_function(uint32_t thread, __attribute__((swift_context)) void *self)
    __attribute__((swiftcall));
typedef bool try_lock_function(__attribute__((swift_context)) void *self)
    __attribute__((swiftcall));
typedef void unlock_function(__attribute__((swift_context)) void *self)
    __attribute__((swiftcall));

#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define TRY_LOCK "$s15Synchronization12_MutexHandleV12_tryLockSlowSbyF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"

lock_function lock_slow __asm__(LOCK);
try_lock_function try_lock_slow __asm__(TRY_LOCK);
unlock_function unlock_slow __asm__(UNLOCK);

static void *original(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (found == NULL) {
    fprintf(stderr, "the standard library has no %s any more\n", name);
    abort();
  }
  return found;
}

__attribute__((swiftcall)) void lock_slow(
    uint32_t thread, __attribute__((swift_context)) void *self) {
  static lock_function *_Atomic next;
  if (next == NULL) next = (lock_function *)original(LOCK);
  next(thread, self);
  if (__tsan_acquire) __tsan_acquire(self);
}

__attribute__((swiftcall)) bool try_lock_slow(__attribute__((swift_context)) void *self) {
  static try_lock_function *_Atomic next;
  if (next == NULL) next = (try_lock_function *)original(TRY_LOCK);
  bool is_locked = next(self);
  if (is_locked && __tsan_acquire) __tsan_acquire(self);
  return is_locked;
}

__attribute__((swiftcall)) void unlock_slow(__attribute__((swift_context)) void *self) {
  static unlock_function *_Atomic next;
  if (next == NULL) next = (unlock_function *)original(UNLOCK);
  if (__tsan_release) __tsan_release(self);
  next(self);
}
