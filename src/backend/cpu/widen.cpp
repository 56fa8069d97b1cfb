#include "backend/cpu/widen.h"

#include <algorithm>

#include "backend/cpu/onednn.h"
#include "backend/cpu/simd/loops.h"
#include "ir/roofline.h"

namespace ebb::cpu {
namespace {

template <class Test>
bool all_types(const Signature& s, Test test) {
  return std::all_of(s.in.begin(), s.in.end(), test) &&
         std::all_of(s.out.begin(), s.out.end(), test);
}

bool is_narrow(const Type& t) { return is_float(t.dtype) && t.dtype != DType::f32; }

// Where the f32 copy of each tensor lies in the workspace; -1: it is used as it is.
std::vector<int64_t> place(const std::vector<Type>& types, int64_t& end) {
  std::vector<int64_t> at;
  for (const Type& t : types) {
    at.push_back(is_narrow(t) ? end : -1);
    if (is_narrow(t)) end += (t.shape.numel() * 4 + 63) / 64 * 64;
  }
  return at;
}

}  // namespace

Signature widened(const Signature& s) {
  Signature w = s;
  for (Type& t : w.in)
    if (is_narrow(t)) t.dtype = DType::f32;
  for (Type& t : w.out)
    if (is_narrow(t)) t.dtype = DType::f32;
  return w;
}

double widened_cost(const Signature& s, const Device& device) {
  double bytes = 0;
  for (const auto* types : {&s.in, &s.out})
    for (const Type& t : *types)
      if (is_narrow(t)) bytes += static_cast<double>(t.bytes() + t.shape.numel() * 4);
  return roofline(cost_of(s), DType::f32, device, {.7, .7}) + pass_over(bytes, device);
}

std::string_view note_widened(const Signature& s) {
  return is_narrow(s.in[0]) ? "computed in f32, with conversions before and after" : "";
}

bool has_narrow_floats(const Signature& s) {
  return !all_types(s, [](const Type& t) { return !is_narrow(t); });
}

bool onednn_takes(const Signature& s) {
  return all_types(s, [](const Type& t) {
    return t.dtype == DType::f32 || (t.dtype == DType::bf16 && onednn_supports(DType::bf16));
  });
}

bool all_floats(const Signature& s) {
  return all_types(s, [](const Type& t) { return is_float(t.dtype); });
}

void widen(DType from, const void* in, float* out, int64_t count) {
  constexpr int64_t block = 16384;
  const auto in_blocks = [&](void (*loop)(float*, const uint16_t*, int64_t)) {
    const auto* const p = static_cast<const uint16_t*>(in);
#pragma omp parallel for
    for (int64_t i = 0; i < count; i += block) loop(out + i, p + i, std::min(block, count - i));
  };
  if (from == DType::bf16) return in_blocks(loops().from_bf16);
  if (from == DType::f16) return in_blocks(loops().from_f16);
  visit_dtype(from, [&](auto zero) {
    const auto* p = static_cast<const decltype(zero)*>(in);
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(p[i]);
  });
}

void narrow(DType to, const float* in, void* out, int64_t count) {
  visit_dtype(to, [&](auto zero) {
    using T = decltype(zero);
    auto* p = static_cast<T*>(out);
#pragma omp parallel for
    for (int64_t i = 0; i < count; ++i) p[i] = static_cast<T>(in[i]);
  });
}

Program prepare_widened(const Signature& s, Device& device,
                        Program (*prepare)(const Signature&, const Tune&, Device&)) {
  const Program inner = prepare(widened(s), {}, device);
  int64_t end = (inner.workspace + 63) / 64 * 64;
  const std::vector<int64_t> in_at = place(s.in, end), out_at = place(s.out, end);
  const auto run = [=, in = s.in, out = s.out](const Call& call) {
    const auto own = [&](int64_t at) { return static_cast<char*>(call.workspace) + at; };
    Call wide = call;
    for (size_t i = 0; i < in.size(); ++i) {
      if (in_at[i] < 0) continue;
      wide.in[i] = own(in_at[i]);
      widen(in[i].dtype, call.in[i], static_cast<float*>(wide.in[i]), in[i].shape.numel());
    }
    for (size_t i = 0; i < out.size(); ++i)
      if (out_at[i] >= 0) wide.out[i] = own(out_at[i]);
    inner.run(wide);
    for (size_t i = 0; i < out.size(); ++i)
      if (out_at[i] >= 0)
        narrow(out[i].dtype, static_cast<float*>(wide.out[i]), call.out[i], out[i].shape.numel());
  };
  return {.workspace = end, .run = run};
}

}  // namespace ebb::cpu
