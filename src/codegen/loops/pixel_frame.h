// Building blocks of the code of loops over pixels: thread indices, sweeps over pixels, reductions
// in shared memory.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "codegen/index.h"
#include "codegen/loops/pixel_kernel.h"

namespace ebb::codegen {

class PixelFrame {
 protected:
  using Float = Var<Kind::f32>;

  PixelFrame(const PixelForm& form, const PixelLayout& layout, const Target& target);

  static constexpr int64_t float_bytes = 4;

  // ---- addresses: a cursor advances by its stride (bytes) from pixel to pixel of the thread
  struct Cursor {
    U64 base, stride;
  };
  struct SharedCursor {
    U32 base, stride;
  };
  struct Moving {
    Var<Kind::u64> at;
    U64 stride;
  };
  struct SharedMoving {
    Var<Kind::u32> at;
    U32 stride;
  };
  Moving begin(const Cursor& c) { return {b_.var(c.base), c.stride}; }
  SharedMoving begin(const SharedCursor& c) { return {b_.var(c.base), c.stride}; }
  void advance(const Moving& c) { c.at.set(c.at.get() + c.stride); }
  void advance(const SharedMoving& c) {
    c.at.set(b_.move(SharedAddress{c.at.get()}, c.stride).base);
  }
  // The shared memory from byte `offset` on, and there the float of index `i`.
  SharedAddress area(int64_t offset) { return b_.dynamic_shared(b_.number(offset)); }
  SharedAddress at(const SharedAddress& floats, U32 i) {
    return b_.move(floats, i * static_cast<uint32_t>(float_bytes));
  }
  SharedAddress of_row(const SharedAddress& floats, size_t k);  // k rows of `tile` floats on

  // ---- sweeps: body(n) does n of the thread's pixels
  void sweep(int steps, const std::function<void(int)>& body);

  // For each base: the sum of [base + k * stride] over k < count, count > 0; strides in bytes.
  std::vector<F32> add_up(const std::vector<SharedAddress>& base, U32 count, U32 stride);

  const PixelForm& f_;
  const PixelLayout& l_;
  PixelWork w_;
  PixelMemory m_;
  Builder b_;
  LoopKernel loop_;
  std::vector<size_t> used_;  // inputs of the form; loop_ has those of the caller
  U32 channels_, count_, tile_, lanes_, rows_, busy_, group_;
  U32 tid_, rank_, image_, first_channel_, lane_channel_, own_channel_, row_, first_row_;
  U32 first_pixel_;
  Pred busy_thread_, channel_thread_;
  std::vector<Cursor> in_, out_;
  std::vector<SharedCursor> resident_;

 private:
  void find_numbers();
  void find_position();
  void find_addresses();
  // The input in whose memory an input lies.
  size_t operand_of(size_t i) const;
  // The thread's first vector of a tensor with pixels. `base`: by segment.
  Cursor stream(const std::vector<U64>& base, DType dtype);
  // The address of a per-channel value of the thread's own channel.
  U64 channel_address(const std::vector<U64>& base, const PixelForm::Input& in);

  std::optional<SegmentChoice> lane_choice_, own_choice_;  // of segmented tensors
};

}  // namespace ebb::codegen
