// What the machine's own memory still has to give.
#pragma once

#include <cstdint>

namespace ebb {

// Bytes that can be taken without others' being written to disk; the cache of files counts as free.
int64_t free_host_memory();

}  // namespace ebb
