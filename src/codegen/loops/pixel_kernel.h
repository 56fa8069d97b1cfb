// Kernels of loops over pixels (group norm and its gradient): a thread block or cluster
// processes some channels of an image, and may keep their pixels in shared memory.
#pragma once

#include <functional>
#include <optional>

#include "codegen/loops/loop_kernel.h"
#include "codegen/loops/pixel_form.h"
#include "codegen/target.h"

namespace ebb::codegen {

// Partitioning. A cluster processes `tile` channels of an image (full groups), and its thread
// blocks divide the pixels. A thread has `vector` channels of every rows()-th pixel of its thread
// block.
struct PixelLayout {
  int vector = 1, threads = 256, cluster = 1;
  int steps = 2;  // pixels in flight per thread
  int64_t tile = 1;
  int ctas_per_sm = 4;              // limit of registers
  int subgroup = 32;                // threads
  std::vector<bool> resident = {};  // inputs whose values stay in shared memory

  int64_t lanes() const { return tile / vector; }  // threads per pixel
  int64_t rows() const { return threads / lanes(); }
  // Rows of partial sums: one per subgroup, if a subgroup has several pixels.
  int64_t sums() const { return lanes() < subgroup ? threads / subgroup : rows(); }
  int64_t pixels(const PixelForm& f) const { return (f.pixels + cluster - 1) / cluster; }
};

// Shared memory layout, in bytes.
struct PixelMemory {
  std::vector<int64_t> resident;  // by input
  int64_t barriers = 0, scratch = 0, sums = 0, terms = 0, carried = 0, end = 0;
};
PixelMemory pixel_memory(const PixelForm& form, const PixelWork& work, const PixelLayout& layout);

// All layouts that fit the target, the best guess first; none where an image is too large.
std::vector<PixelLayout> pixel_layouts(const PixelForm& form, const Target& target);
// The one of them with this tile, cluster and number of threads; the best guess if it is not among
// them, and none where there are none.
std::optional<PixelLayout> pixel_layout(const PixelForm& form, const Target& target, int64_t tile,
                                        int64_t cluster, int64_t threads);
// Whether there is a layout; with fewer queries of the target.
bool pixel_fits(const PixelForm& form, const Target& target);

LoopKernel write_pixels(const PixelForm& form, const PixelLayout& layout, const Target& target);

}  // namespace ebb::codegen
