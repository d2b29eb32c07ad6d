#pragma once
#include <stdint.h>

/// How often this process has allocated heap memory, in all threads; stays 0 where calls to the
/// allocator cannot be counted (anywhere but on Linux with glibc).
uint64_t allocation_count(void);

/// How many bytes of heap memory this process has in use; 0 where that can't be asked.
uint64_t allocated_bytes(void);
