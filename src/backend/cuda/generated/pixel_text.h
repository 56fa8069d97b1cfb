// Code generation for loops over pixels (group norm and its gradient): a thread block or cluster
// processes some channels of an image, and may keep their pixels in shared memory.
#pragma once

#include <functional>
#include <optional>

#include "backend/cuda/device/chip.h"
#include "backend/cuda/generated/pixel_form.h"
#include "codegen/ir.h"
#include "codegen/parameters.h"

namespace ebb::cuda {

// Partitioning. A cluster processes `tile` channels of an image (full groups), and its thread
// blocks divide the pixels. A thread has `vector` channels of every rows()-th pixel of its thread
// block.
struct PixelLayout {
  int vector = 1, threads = 256, cluster = 1;
  int steps = 2;  // pixels in flight per thread
  int64_t tile = 1;
  int ctas_per_sm = 4;              // limit of registers
  std::vector<bool> resident = {};  // inputs whose values stay in shared memory

  int64_t lanes() const { return tile / vector; }  // threads per pixel
  int64_t rows() const { return threads / lanes(); }
  // Rows of partial sums: one per warp, if a warp has several pixels.
  int64_t sums() const { return lanes() < 32 ? threads / 32 : rows(); }
  int64_t pixels(const PixelForm& f) const { return (f.pixels + cluster - 1) / cluster; }
};

// Shared memory layout, in bytes.
struct PixelMemory {
  std::vector<int64_t> resident;  // by input
  int64_t barriers = 0, scratch = 0, sums = 0, terms = 0, carried = 0, end = 0;
};
PixelMemory pixel_memory(const PixelForm& form, const PixelWork& work, const PixelLayout& layout);

// All layouts that fit the chip, the best guess first; none where an image is too large.
std::vector<PixelLayout> pixel_layouts(const PixelForm& form, const Chip& chip);
// The one of them with this tile, cluster and number of threads; the best guess if it is not among
// them, and none where there are none.
std::optional<PixelLayout> pixel_layout(const PixelForm& form, const Chip& chip, int64_t tile,
                                        int64_t cluster, int64_t threads);
// Whether there is a layout; with fewer queries of the chip.
bool pixel_fits(const PixelForm& form, const Chip& chip);

// A generated kernel; like StridedText. Its outputs are those of the form.
struct PixelText {
  codegen::Kernel code;
  codegen::Parameters parameters;
  std::vector<int64_t> pointers;
  std::vector<size_t> used;
  int64_t blocks = 0, shared = 0;
  int threads = 0, cluster = 1;
};
PixelText write_pixels(const PixelForm& form, const PixelLayout& layout, int capability);

}  // namespace ebb::cuda
