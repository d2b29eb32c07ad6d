#include "AllocationCounter.h"

#if defined(__linux__)
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

// The definitions below replace those of the C library, which also offers its functions under these
// names.
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static _Atomic uint64_t allocations;

static void count(void) { atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed); }

uint64_t allocation_count(void) {
  return atomic_load_explicit(&allocations, memory_order_relaxed);
}

void *malloc(size_t size) {
  count();
  return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}

void *realloc(void *block, size_t size) {
  count();
  return __libc_realloc(block, size);
}

void *memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block == NULL ? ENOMEM : 0;
}

uint64_t allocated_bytes(void) {
  struct mallinfo2 usage = mallinfo2();
  return usage.uordblks + usage.hblkhd;
}
#else
uint64_t allocation_count(void) { return 0; }
uint64_t allocated_bytes(void) { return 0; }
#endif
