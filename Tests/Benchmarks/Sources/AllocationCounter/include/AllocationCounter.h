#pragma once
#include <stdint.h>

/// Returns how often all threads of this process together have allocated heap memory; 0 on systems
/// other than Linux with glibc, where the calls of the allocator can't be counted.
uint64_t allocation_count(void);

/// Returns the number of bytes of heap memory in use by this process; 0 on other systems.
uint64_t allocated_bytes(void);
