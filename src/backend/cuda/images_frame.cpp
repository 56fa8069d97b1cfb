#include "backend/cuda/images_frame.h"

#include <algorithm>
#include <bit>

namespace ebb::cuda {

ImagesFrame::ImagesFrame(const ImagesForm& form, const ImagesLayout& layout, int capability)
    : f_(form),
      l_(layout),
      w_(cut(form)),
      m_(images_memory(form, w_, layout)),
      d_{Ptx(capability), {}},
      p_(d_.ptx) {
  for (size_t i = 0; i < form.in.size(); ++i)
    if (w_.element.uses(static_cast<int64_t>(i)) || w_.channel.uses(static_cast<int64_t>(i))) {
      used_.push_back(i);
      const int of = form.in[i].first_pixel_of;
      t_.used.push_back(of < 0 ? i : static_cast<size_t>(of));
    }
  find_numbers();
  find_place();
  find_addresses();
}

void ImagesFrame::find_numbers() {
  channels_ = d_.number(f_.channels);
  count_ = d_.number(l_.pixels(f_));
  tile_ = d_.number(l_.tile);
  lanes_ = d_.number(l_.lanes());
  rows_ = d_.number(l_.rows());
  busy_ = d_.number(l_.rows() * l_.lanes());
  group_ = d_.number(f_.group());
  memory_ = p_.b32("mov.u32", "dynamic");
}

void ImagesFrame::find_place() {
  tid_ = p_.b32("mov.u32", "%tid.x");
  const Reg cta = p_.b32("mov.u32", "%ctaid.x");
  Reg work = cta;
  if (l_.cluster > 1) {
    work = p_.b32("shr.u32", cta, std::countr_zero(static_cast<unsigned>(l_.cluster)));
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
  first_row_ = p_.b32("selp.b32", row_, count_, busy_thread_);  // others walk over nothing
  channel_thread_ = p_.test("setp.lt.u32", tid_, tile_);
}

void ImagesFrame::find_addresses() {
  std::vector<Reg> base;
  for (size_t i = 0; i < t_.used.size() + f_.out.size(); ++i)
    base.push_back(d_.pointer(t_.pointers));
  const Reg channel = p_.b32("add.u32", first_channel_, lane_channel_);
  const Reg pixel = p_.b64("mul.wide.u32", first_pixel_, channels_);
  const Reg element = p_.b64("add.s64", pixel, p_.b64("cvt.u64.u32", channel));
  const Reg stride = p_.b32("mul.lo.u32", rows_, channels_);
  own_channel_ = p_.b32("add.u32", first_channel_, tid_);
  find_inputs(base, element, stride);
  find_outputs(base, element, stride);
  for (size_t i = 0; i < f_.in.size(); ++i) {
    held_.emplace_back();
    if (!l_.held[i]) continue;
    const int64_t size = l_.vector * size_of(f_.in[i].dtype);
    held_[i] = {p_.b32("mad.lo.u32", tid_, size, area(m_.held[i])),
                p_.b32("mul.lo.u32", busy_, size)};
  }
}

void ImagesFrame::find_inputs(const std::vector<Reg>& base, Reg element, Reg stride) {
  in_.resize(f_.in.size());
  for (size_t u = 0; u < used_.size(); ++u) {
    const size_t i = used_[u];
    const ImagesForm::Input& in = f_.in[i];
    if (in.streams) {
      in_[i] = {address(p_, base[u], element, in.dtype),
                p_.b64("mul.wide.u32", stride, size_of(in.dtype))};
    } else {
      const Strides strides(d_, {in.image_stride, in.channel_stride});
      in_[i].base = address(p_, base[u], strides.offset(d_, {image_, own_channel_}), in.dtype);
    }
    align(in.streams ? l_.vector : 1, in.dtype);
  }
}

void ImagesFrame::find_outputs(const std::vector<Reg>& base, Reg element, Reg stride) {
  for (size_t k = 0; k < f_.out.size(); ++k) {
    const Reg from = base[t_.used.size() + k];
    const int64_t size = size_of(f_.out[k]);
    if (f_.per_channel[k]) {
      const Reg at = p_.b32("mad.lo.u32", image_, channels_, own_channel_);
      out_.push_back({address(p_, from, p_.b64("cvt.u64.u32", at), f_.out[k]), {}});
    } else {
      out_.push_back({address(p_, from, element, f_.out[k]), p_.b64("mul.wide.u32", stride, size)});
    }
    align(f_.per_channel[k] ? 1 : l_.vector, f_.out[k]);
  }
}

void ImagesFrame::align(int64_t elements, DType dtype) {
  constexpr int64_t widest = 16;
  t_.alignment.push_back(std::min(widest, elements * size_of(dtype)));
}

ImagesFrame::Place ImagesFrame::begin(const Place& p) {
  return {p_.make(p.base.kind, p.base.kind == RegKind::b64 ? "mov.b64" : "mov.b32", p.base),
          p.stride};
}
void ImagesFrame::advance(const Place& p) {
  p_.line(p.base.kind == RegKind::b64 ? "add.s64 " : "add.u32 ", p.base, ", ", p.base, ", ",
          p.stride);
}

void ImagesFrame::walk(Reg at, Reg limit, int steps, const std::function<void(int)>& body) {
  const std::string end = p_.new_label();
  for (const int n : {steps, 1}) {
    const std::string again = p_.new_label(), next = n == 1 ? end : p_.new_label();
    p_.place(again);
    const Reg last = n == 1 ? at : p_.b32("mad.lo.u32", rows_, n - 1, at);
    p_.line("@", p_.test("setp.ge.u32", last, limit), " bra ", next);
    p_.line("mad.lo.u32 ", at, ", ", rows_, ", ", n, ", ", at);
    body(n);
    p_.line("bra ", again);
    p_.place(next);
    if (steps == 1) break;
  }
}

void ImagesFrame::only(Reg who, const std::function<void()>& body) {
  const std::string end = p_.new_label();
  p_.line("@!", who, " bra ", end);
  body();
  p_.place(end);
}

std::vector<Reg> ImagesFrame::add_up(std::vector<Reg> base, Reg count, Reg stride) {
  constexpr int under_way = 4;
  std::vector<Reg> sum;
  for (Reg& b : base) {
    b = p_.b32("mov.u32", b);
    sum.push_back(p_.f32("mov.f32", Operand(0.0f)));
  }
  const Reg left = p_.b32("mov.u32", count);
  const std::string again = p_.new_label();
  p_.place(again);
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
  p_.line("@", p_.test("setp.gt.s32", left, 0), " bra ", again);
  return sum;
}

Reg ImagesFrame::of_row(Reg base, size_t k) {
  return k == 0 ? base : p_.b32("mad.lo.u32", tile_, static_cast<int64_t>(k) * float_bytes, base);
}

}  // namespace ebb::cuda
