#include "codegen/loops/pixel_frame.h"

namespace ebb::codegen {

PixelFrame::PixelFrame(const PixelForm& form, const PixelLayout& layout, const Target& target)
    : f_(form),
      l_(layout),
      w_(partition(form)),
      m_(pixel_memory(form, w_, layout)),
      b_("pixels", target) {
  for (size_t i = 0; i < form.in.size(); ++i)
    if (w_.element.uses(static_cast<int64_t>(i)) || w_.channel.uses(static_cast<int64_t>(i)))
      used_.push_back(i);
  for (const size_t i : used_) {
    size_t tensor = 0;
    for (size_t k = 0; k < operand_of(i); ++k)
      tensor += form.segments.of(k, form.segments.segmented_in);
    for (size_t k = 0; k < form.segments.of(operand_of(i), form.segments.segmented_in); ++k)
      loop_.used.push_back(tensor + k);
  }
  find_numbers();
  find_position();
  find_addresses();
}

void PixelFrame::find_numbers() {
  channels_ = b_.number(f_.channels);
  count_ = b_.number(l_.pixels(f_));
  tile_ = b_.number(l_.tile);
  lanes_ = b_.number(l_.lanes());
  rows_ = b_.number(l_.rows());
  busy_ = b_.number(l_.rows() * l_.lanes());
  group_ = b_.number(f_.group());
}

void PixelFrame::find_position() {
  tid_ = b_.thread_index();
  // By division: %clusterid is slower (38.6 us for [32,64,64,192], not 37.1).
  U32 work = b_.block_index();
  if (l_.cluster > 1) {
    work = quotient(b_, work, l_.cluster);
    rank_ = U32(b_.make(Op::cluster_rank, Kind::u32, {}));
  }
  const int64_t tiles = f_.channels / l_.tile;
  const std::vector<U32> at = Coordinates(b_, {f_.images, tiles}).of(work);
  image_ = at[0];
  first_channel_ = at[1] * tile_;
  const std::vector<U32> own = Coordinates(b_, {l_.threads, l_.lanes()}).of(tid_);
  row_ = own[0];
  lane_channel_ = own[1] * static_cast<uint32_t>(l_.vector);
  U32 first = row_;
  const U32 pixels = b_.number(f_.pixels);
  if (l_.cluster > 1) {
    const U32 start = rank_ * count_;
    count_ = min(count_, as_u32(max(as_i32(pixels - start), b_.i32(0))));
    first = row_ + start;
  }
  first_pixel_ = mul_add(image_, pixels, first);
  busy_thread_ = tid_ < busy_;
  first_row_ = select(busy_thread_, row_, count_);  // idle threads have no pixels
  channel_thread_ = tid_ < tile_;
}

size_t PixelFrame::operand_of(size_t i) const {
  const int of = f_.in[i].first_pixel_of;
  return of < 0 ? i : static_cast<size_t>(of);
}

void PixelFrame::find_addresses() {
  std::vector<std::vector<U64>> base;  // by tensor, by segment
  const auto tensor = [&](size_t segments) {
    base.emplace_back();
    for (size_t k = 0; k < segments; ++k) base.back().push_back(b_.pointer(loop_.pointers));
  };
  for (const size_t i : used_) tensor(f_.segments.of(operand_of(i), f_.segments.segmented_in));
  for (size_t k = 0; k < f_.out.size(); ++k) tensor(f_.segments.of(k, f_.segments.segmented_out));
  own_channel_ = first_channel_ + tid_;
  in_.resize(f_.in.size());
  for (size_t u = 0; u < used_.size(); ++u) {
    const PixelForm::Input& in = f_.in[used_[u]];
    in_[used_[u]] =
        in.streams ? stream(base[u], in.dtype) : Cursor{channel_address(base[u], in), {}};
  }
  for (size_t k = 0; k < f_.out.size(); ++k) {
    const std::vector<U64>& to = base[used_.size() + k];
    const PixelForm::Input numbers{f_.out[k], false, f_.image_stride(k), 1};
    out_.push_back(f_.per_channel[k] ? Cursor{channel_address(to, numbers), {}}
                                     : stream(to, f_.out[k]));
  }
  for (size_t i = 0; i < f_.in.size(); ++i) {
    resident_.emplace_back();
    if (!l_.resident[i]) continue;
    const auto size = static_cast<uint32_t>(l_.vector * size_of(f_.in[i].dtype));
    resident_[i] = {b_.move(area(m_.resident[i]), tid_ * size).base, busy_ * size};
  }
}

PixelFrame::Cursor PixelFrame::stream(const std::vector<U64>& base, DType dtype) {
  const bool segmented = base.size() > 1;
  const U32 channel = first_channel_ + lane_channel_;
  if (segmented && !lane_choice_) lane_choice_.emplace(b_, f_.segments.widths, 1, channel);
  std::vector<U64> from, stride;
  for (size_t k = 0; k < base.size(); ++k) {
    const U32 width = segmented ? b_.number(f_.segments.widths[k]) : channels_;
    const U64 column = widen(segmented ? lane_choice_->column(k) : channel);
    from.push_back(address(base[k], mul_wide_add(first_pixel_, width, column), dtype));
    stride.push_back(mul_wide(rows_ * width, size_of(dtype)));
  }
  if (!segmented) return {from[0], stride[0]};
  return {lane_choice_->choose(from), lane_choice_->choose(stride)};
}

U64 PixelFrame::channel_address(const std::vector<U64>& base, const PixelForm::Input& in) {
  const bool segmented = base.size() > 1;
  if (segmented && !own_choice_) own_choice_.emplace(b_, f_.segments.widths, 1, own_channel_);
  std::vector<U64> at;
  for (size_t k = 0; k < base.size(); ++k) {
    const int64_t images =
        segmented ? in.image_stride / f_.channels * f_.segments.widths[k] : in.image_stride;
    const Strides strides(b_, {images, in.channel_stride});
    const U32 own = segmented ? own_choice_->column(k) : own_channel_;
    at.push_back(address(base[k], strides.offset({image_, own}), in.dtype));
  }
  return segmented ? own_choice_->choose(at) : at[0];
}

void PixelFrame::sweep(int steps, const std::function<void(int)>& body) {
  const auto next = b_.var(first_row_);
  for (const int n : {steps, 1}) {
    b_.loop([&] {
      const U32 at = next.get();
      const U32 last = n == 1 ? at : mul_add(rows_, n - 1, at);
      b_.break_unless(last < count_);
      next.set(mul_add(rows_, n, at));
      body(n);
    });
    if (steps == 1) break;
  }
}

std::vector<F32> PixelFrame::add_up(const std::vector<SharedAddress>& base, U32 count, U32 stride) {
  constexpr int under_way = 4;
  std::vector<Var<Kind::u32>> at;
  std::vector<Float> total;
  for (const SharedAddress& from : base) {
    at.push_back(b_.var(from.base));
    total.push_back(b_.var(b_.f32(0.0f)));
  }
  const auto left = b_.var(count);
  b_.loop([&] {
    std::vector<std::vector<Float>> v(base.size());
    for (int k = 0; k < under_way; ++k) {
      const Pred there = as_i32(left.get()) > k;
      for (size_t i = 0; i < base.size(); ++i) {
        const SharedAddress here{at[i].get()};
        v[i].push_back(b_.var(b_.f32(0.0f)));
        b_.when(there, [&] { v[i].back().set(b_.element(b_.load(DType::f32, 1, here), 0)); });
        at[i].set(b_.move(here, stride).base);
      }
    }
    for (size_t i = 0; i < base.size(); ++i)
      for (const Float& x : v[i]) total[i].set(sum(total[i].get(), x.get()));
    const U32 rest = left.get() - static_cast<uint32_t>(under_way);
    left.set(rest);
    b_.break_unless(as_i32(rest) > 0);
  });
  std::vector<F32> sums;
  for (const Float& s : total) sums.push_back(s.get());
  return sums;
}

SharedAddress PixelFrame::of_row(const SharedAddress& floats, size_t k) {
  return k == 0 ? floats : b_.move(floats, tile_ * static_cast<uint32_t>(k * float_bytes));
}

}  // namespace ebb::codegen
