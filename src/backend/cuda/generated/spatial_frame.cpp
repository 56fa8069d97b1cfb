#include "backend/cuda/generated/spatial_frame.h"

#include <algorithm>

namespace ebb::cuda {

SpatialFrame::SpatialFrame(const SpatialForm& form, const SpatialLayout& layout, int capability)
    : f_(form),
      l_(layout),
      w_(partition(form)),
      m_(spatial_memory(form, w_, layout)),
      d_{Ptx(capability), {}},
      p_(d_.ptx) {
  for (size_t i = 0; i < form.in.size(); ++i)
    if (w_.element.uses(static_cast<int64_t>(i)) || w_.channel.uses(static_cast<int64_t>(i)))
      used_.push_back(i);
  for (const size_t i : used_) {
    size_t tensor = 0;
    for (size_t k = 0; k < operand_of(i); ++k)
      tensor += form.segments.of(k, form.segments.segmented_in);
    for (size_t k = 0; k < form.segments.of(operand_of(i), form.segments.segmented_in); ++k)
      t_.used.push_back(tensor + k);
  }
  find_numbers();
  find_position();
  find_addresses();
}

void SpatialFrame::find_numbers() {
  channels_ = d_.number(f_.channels);
  count_ = d_.number(l_.pixels(f_));
  tile_ = d_.number(l_.tile);
  lanes_ = d_.number(l_.lanes());
  rows_ = d_.number(l_.rows());
  busy_ = d_.number(l_.rows() * l_.lanes());
  group_ = d_.number(f_.group());
  memory_ = p_.b32("mov.u32", "dynamic");
}

void SpatialFrame::find_position() {
  tid_ = p_.b32("mov.u32", "%tid.x");
  // By division: %clusterid is slower (38.6 us for [32,64,64,192], not 37.1).
  Reg work = p_.b32("mov.u32", "%ctaid.x");
  if (l_.cluster > 1) {
    const Reciprocal by(l_.cluster);
    work = quotient(p_, work, d_.number(by.multiplier), d_.number(by.shift));
    rank_ = p_.b32("mov.u32", "%cluster_ctarank");
  }
  const int64_t tiles = f_.channels / l_.tile;
  const std::vector<Reg> at = Coordinates(d_, {f_.images, tiles}).of(d_, work);
  image_ = at[0];
  first_channel_ = p_.b32("mul.lo.u32", at[1], tile_);
  const std::vector<Reg> own = Coordinates(d_, {l_.threads, l_.lanes()}).of(d_, tid_);
  row_ = own[0];
  lane_channel_ = p_.b32("mul.lo.u32", own[1], l_.vector);
  Reg first = row_;
  const Reg pixels = d_.number(f_.pixels);
  if (l_.cluster > 1) {
    const Reg start = p_.b32("mul.lo.u32", rank_, count_);
    const Reg left = p_.b32("max.s32", p_.b32("sub.s32", pixels, start), 0);
    count_ = p_.b32("min.u32", count_, left);
    first = p_.b32("add.u32", row_, start);
  }
  first_pixel_ = p_.b32("mad.lo.u32", image_, pixels, first);
  busy_thread_ = p_.test("setp.lt.u32", tid_, busy_);
  first_row_ = p_.b32("selp.b32", row_, count_, busy_thread_);  // idle threads have no pixels
  channel_thread_ = p_.test("setp.lt.u32", tid_, tile_);
}

size_t SpatialFrame::operand_of(size_t i) const {
  const int of = f_.in[i].first_pixel_of;
  return of < 0 ? i : static_cast<size_t>(of);
}

void SpatialFrame::find_addresses() {
  std::vector<std::vector<Reg>> base;  // by tensor, by segment
  const auto tensor = [&](size_t segments) {
    base.emplace_back();
    for (size_t k = 0; k < segments; ++k) base.back().push_back(d_.pointer(t_.pointers));
  };
  for (const size_t i : used_) tensor(f_.segments.of(operand_of(i), f_.segments.segmented_in));
  for (size_t k = 0; k < f_.out.size(); ++k) tensor(f_.segments.of(k, f_.segments.segmented_out));
  own_channel_ = p_.b32("add.u32", first_channel_, tid_);
  in_.resize(f_.in.size());
  for (size_t u = 0; u < used_.size(); ++u) {
    const SpatialForm::Input& in = f_.in[used_[u]];
    in_[used_[u]] =
        in.streams ? stream(base[u], in.dtype) : Cursor{channel_address(base[u], in), {}};
    align(in.streams ? l_.vector : 1, in.dtype, base[u].size());
  }
  for (size_t k = 0; k < f_.out.size(); ++k) {
    const std::vector<Reg>& to = base[used_.size() + k];
    const SpatialForm::Input numbers{f_.out[k], false, f_.image_stride(k), 1};
    out_.push_back(f_.per_channel[k] ? Cursor{channel_address(to, numbers), {}}
                                     : stream(to, f_.out[k]));
    align(f_.per_channel[k] ? 1 : l_.vector, f_.out[k], to.size());
  }
  for (size_t i = 0; i < f_.in.size(); ++i) {
    resident_.emplace_back();
    if (!l_.resident[i]) continue;
    const int64_t size = l_.vector * size_of(f_.in[i].dtype);
    resident_[i] = {p_.b32("mad.lo.u32", tid_, size, area(m_.resident[i])),
                    p_.b32("mul.lo.u32", busy_, size)};
  }
}

SpatialFrame::Cursor SpatialFrame::stream(const std::vector<Reg>& base, DType dtype) {
  const bool segmented = base.size() > 1;
  const Reg channel = p_.b32("add.u32", first_channel_, lane_channel_);
  if (segmented && !lane_choice_) lane_choice_.emplace(d_, f_.segments.widths, 1, channel);
  std::vector<Reg> from, stride;
  for (size_t k = 0; k < base.size(); ++k) {
    const Reg width = segmented ? d_.number(f_.segments.widths[k]) : channels_;
    const Reg column = p_.b64("cvt.u64.u32", segmented ? lane_choice_->column(k) : channel);
    const Reg element = p_.b64("mad.wide.u32", first_pixel_, width, column);
    from.push_back(address(p_, base[k], element, dtype));
    stride.push_back(p_.b64("mul.wide.u32", p_.b32("mul.lo.u32", rows_, width), size_of(dtype)));
  }
  if (!segmented) return {from[0], stride[0]};
  return {lane_choice_->choose(d_, from), lane_choice_->choose(d_, stride)};
}

Reg SpatialFrame::channel_address(const std::vector<Reg>& base, const SpatialForm::Input& in) {
  const bool segmented = base.size() > 1;
  if (segmented && !own_choice_) own_choice_.emplace(d_, f_.segments.widths, 1, own_channel_);
  std::vector<Reg> at;
  for (size_t k = 0; k < base.size(); ++k) {
    const int64_t images =
        segmented ? in.image_stride / f_.channels * f_.segments.widths[k] : in.image_stride;
    const Strides strides(d_, {images, in.channel_stride});
    const Reg own = segmented ? own_choice_->column(k) : own_channel_;
    at.push_back(address(p_, base[k], strides.offset(d_, {image_, own}), in.dtype));
  }
  return segmented ? own_choice_->choose(d_, at) : at[0];
}

void SpatialFrame::align(int64_t elements, DType dtype, size_t tensors) {
  constexpr int64_t widest = 16;
  t_.alignment.insert(t_.alignment.end(), tensors, std::min(widest, elements * size_of(dtype)));
}

SpatialFrame::Cursor SpatialFrame::begin(const Cursor& p) {
  return {p_.make(p.base.kind, p.base.kind == RegKind::b64 ? "mov.b64" : "mov.b32", p.base),
          p.stride};
}
void SpatialFrame::advance(const Cursor& p) {
  p_.line(p.base.kind == RegKind::b64 ? "add.s64 " : "add.u32 ", p.base, ", ", p.base, ", ",
          p.stride);
}

void SpatialFrame::sweep(Reg at, Reg limit, int steps, const std::function<void(int)>& body) {
  const std::string end = p_.new_label();
  for (const int n : {steps, 1}) {
    const std::string loop = p_.new_label(), next = n == 1 ? end : p_.new_label();
    p_.bind(loop);
    const Reg last = n == 1 ? at : p_.b32("mad.lo.u32", rows_, n - 1, at);
    p_.line("@", p_.test("setp.ge.u32", last, limit), " bra ", next);
    p_.line("mad.lo.u32 ", at, ", ", rows_, ", ", n, ", ", at);
    body(n);
    p_.line("bra ", loop);
    p_.bind(next);
    if (steps == 1) break;
  }
}

void SpatialFrame::only(Reg who, const std::function<void()>& body) {
  const std::string end = p_.new_label();
  p_.line("@!", who, " bra ", end);
  body();
  p_.bind(end);
}

std::vector<Reg> SpatialFrame::add_up(std::vector<Reg> base, Reg count, Reg stride) {
  constexpr int under_way = 4;
  std::vector<Reg> sum;
  for (Reg& b : base) {
    b = p_.b32("mov.u32", b);
    sum.push_back(p_.f32("mov.f32", Operand(0.0f)));
  }
  const Reg left = p_.b32("mov.u32", count);
  const std::string loop = p_.new_label();
  p_.bind(loop);
  std::vector<std::vector<Reg>> v(base.size());
  for (int k = 0; k < under_way; ++k) {
    const Reg there = p_.test("setp.gt.s32", left, k);
    for (size_t i = 0; i < base.size(); ++i) {
      v[i].push_back(p_.f32("mov.f32", Operand(0.0f)));
      p_.line("@", there, " ld.shared.f32 ", v[i].back(), ", [", base[i], "]");
      p_.line("add.u32 ", base[i], ", ", base[i], ", ", stride);
    }
  }
  for (size_t i = 0; i < base.size(); ++i)
    for (const Reg x : v[i]) p_.line("add.f32 ", sum[i], ", ", sum[i], ", ", x);
  p_.line("sub.u32 ", left, ", ", left, ", ", under_way);
  p_.line("@", p_.test("setp.gt.s32", left, 0), " bra ", loop);
  return sum;
}

Reg SpatialFrame::of_row(Reg base, size_t k) {
  return k == 0 ? base : p_.b32("mad.lo.u32", tile_, static_cast<int64_t>(k) * float_bytes, base);
}

}  // namespace ebb::cuda
