// Work on a range of bytes in chunks, side by side.
#pragma once

#include <cstdint>
#include <functional>

namespace ebb {

// Calls work(at, count) for the chunks of [0, bytes), from several threads where there is more than
// one chunk. Throws what `work` throws first; chunks that were not begun by then are left out.
void in_chunks(int64_t bytes, int64_t chunk,
               const std::function<void(int64_t at, int64_t count)>& work);

}  // namespace ebb
