// The text of passes over images: blocks, or clusters of them, take some channels of an image each
// and hold their pixels in shared memory.
#pragma once

#include <functional>
#include <string>

#include "backend/cuda/ptx_index.h"
#include "backend/cuda/spatial_form.h"

namespace ebb::cuda {

// How the work is cut. A cluster of blocks takes `tile` channels of an image (whole groups) and
// shares out the pixels. A thread takes `vector` channels of every rows()-th pixel of its block.
struct SpatialLayout {
  int vector = 1, threads = 256, cluster = 1;
  int steps = 2;  // pixels that a thread has under way
  int64_t tile = 1;
  int ctas_per_sm = 4;          // that registers must allow
  std::vector<bool> held = {};  // inputs whose values stay in shared memory

  int64_t lanes() const { return tile / vector; }  // threads of a pixel
  int64_t rows() const { return threads / lanes(); }
  // Rows of sums that threads leave behind: one a warp, if a warp has several pixels.
  int64_t sums() const { return lanes() < 32 ? threads / 32 : rows(); }
  int64_t pixels(const SpatialForm& f) const { return (f.pixels + cluster - 1) / cluster; }
};

// Where things lie in shared memory, in bytes.
struct SpatialMemory {
  std::vector<int64_t> held;  // by input
  int64_t barriers = 0, scratch = 0, sums = 0, terms = 0, carried = 0, end = 0;
};
SpatialMemory spatial_memory(const SpatialForm& form, const SpatialWork& work,
                             const SpatialLayout& layout);

// What of a device decides how the work is cut.
struct SpatialDevice {
  int capability = 90, sm_count = 132;
  int64_t shared = 227 << 10;  // bytes of a block
  // Clusters that the device has room for at once, of so many blocks each, where a SM
  // has room for so many blocks; 0 where such clusters do not run. Without it: a guess.
  std::function<int64_t(int cluster, int64_t blocks)> room = {};
};
// All ways that the device has room for, the best guess first; none where an image is too large.
std::vector<SpatialLayout> spatial_layouts(const SpatialForm& form, const SpatialDevice& device,
                                           bool unaligned);
// Whether there is a way, with aligned tensors; asks the device less.
bool spatial_fits(const SpatialForm& form, const SpatialDevice& device);

// A generated kernel; like StridedText. Its outputs are those of the form.
struct SpatialText {
  std::string text;
  Parameters parameters;
  std::vector<int64_t> pointers, alignment;
  std::vector<size_t> used;
  int64_t blocks = 0, shared = 0;
  int threads = 0, cluster = 1;
};
SpatialText write_spatial(const SpatialForm& form, const SpatialLayout& layout, int capability);

}  // namespace ebb::cuda
