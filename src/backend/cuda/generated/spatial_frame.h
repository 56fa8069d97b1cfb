// Building blocks of the code of spatial fusions: thread indices, sweeps over pixels, reductions in
// shared memory.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "backend/cuda/generated/spatial_text.h"

namespace ebb::cuda {

class SpatialFrame {
 protected:
  SpatialFrame(const SpatialForm& form, const SpatialLayout& layout, int capability);

  static constexpr int64_t float_bytes = 4;
  static constexpr int warp = 32;

  // ---- addresses: a cursor advances by its stride from pixel to pixel of the thread
  struct Cursor {
    Reg base, stride;
  };
  Cursor begin(const Cursor& p);  // a copy that may advance
  void advance(const Cursor& p);
  Reg area(int64_t offset) { return p_.b32("add.u32", memory_, d_.number(offset)); }
  Reg of_row(Reg base, size_t k);  // the k-th row of `tile` floats from `base`

  // ---- sweeps: body(n) does n of the thread's pixels, from `at` on, below `limit`; `at` is behind
  // them by then
  void sweep(Reg at, Reg limit, int steps, const std::function<void(int)>& body);

  // ---- thread block
  void barrier() { p_.line("bar.sync 0"); }
  // Code for some threads only; without barriers.
  void only(Reg who, const std::function<void()>& body);
  // For each base: the sum of [base + k * stride] over k < count, count > 0.
  std::vector<Reg> add_up(std::vector<Reg> base, Reg count, Reg stride);

  const SpatialForm& f_;
  const SpatialLayout& l_;
  SpatialWork w_;
  SpatialMemory m_;
  Draft d_;
  Ptx& p_;
  SpatialText t_;
  std::vector<size_t> used_;  // inputs of the form; t_ has those of the caller
  Reg channels_, count_, tile_, lanes_, rows_, busy_, group_, memory_;
  Reg tid_, rank_, image_, first_channel_, lane_channel_, own_channel_, row_, first_row_;
  Reg first_pixel_, busy_thread_, channel_thread_;
  std::vector<Cursor> in_, out_, resident_;

 private:
  void find_numbers();
  void find_position();
  void find_addresses();
  // The input in whose memory an input lies.
  size_t operand_of(size_t i) const;
  // The thread's first vector of a tensor with pixels. `base`: by segment.
  Cursor stream(const std::vector<Reg>& base, DType dtype);
  // The address of a per-channel value of the thread's own channel.
  Reg channel_address(const std::vector<Reg>& base, const SpatialForm::Input& in);
  void align(int64_t elements, DType dtype, size_t tensors);

  std::optional<SegmentChoice> lane_choice_, own_choice_;  // of segmented tensors
};

}  // namespace ebb::cuda
