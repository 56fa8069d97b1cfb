#include "backend/cuda/ptx/ptx.h"

#include <algorithm>
#include <bit>
#include <cstdio>

namespace ebb::cuda {
namespace {

constexpr std::string_view prefixes[reg_kinds] = {"%f", "%r", "%l", "%h", "%d", "%p"};
constexpr std::string_view types[reg_kinds] = {".f32", ".b32", ".b64", ".b16", ".f64", ".pred"};

// Registers of a vector access: {%f1, %f2}.
std::string braces(std::span<const Reg> regs) {
  std::string s;
  for (const Reg& r : regs) s += (s.empty() ? "{" : ", ") + joined(r);
  return s + "}";
}

std::string_view vector_suffix(size_t n) { return n == 4 ? ".v4" : n == 2 ? ".v2" : ""; }

}  // namespace

void append_to(std::string& text, const Reg& r) {
  append(text, prefixes[static_cast<size_t>(r.kind)]);
  append(text, r.id);
}

void append_to(std::string& text, const Operand& v) {
  if (!v.is_constant()) return append_to(text, v.reg);
  char number[16];
  std::snprintf(number, sizeof number, "0f%08X", std::bit_cast<uint32_t>(v.constant));
  text += number;
}

std::ostream& operator<<(std::ostream& out, const Reg& r) {
  std::string text;
  append_to(text, r);
  return out << text;
}

std::ostream& operator<<(std::ostream& out, const Operand& v) {
  std::string text;
  append_to(text, v);
  return out << text;
}

Reg Ptx::parameter(RegKind kind, int64_t offset) {
  return make(kind, joined("ld.param", types[static_cast<size_t>(kind)]),
              joined("[params+", offset, "]"));
}

Reg Ptx::pointer_parameter(int64_t offset) {
  return b64("cvta.to.global.u64", parameter(RegKind::b64, offset));
}

Reg Ptx::in_register(const Operand& v) { return v.is_constant() ? f32("mov.f32", v) : v.reg; }

std::string Ptx::when(const Address& at) const { return at.when ? joined("@", at.when, " ") : ""; }

// ---- memory ----------------------------------------------------------------------------------

Packed Ptx::load(DType dtype, int count, const Address& at) {
  Packed p{dtype, count, {}};
  const auto size = static_cast<int>(size_of(dtype));
  const bool words = size < 4 && count * size % 4 == 0;  // several elements a register
  const RegKind kind = dtype == DType::f32  ? RegKind::f32
                       : size == 8          ? RegKind::b64
                       : words || size == 4 ? RegKind::b32
                                            : RegKind::b16;
  const int unit = words ? 4 : size;
  for (int i = 0; i < count * size / unit; ++i) p.words.push_back(reg(kind));
  reload(p, at);
  return p;
}

void Ptx::reload(const Packed& p, const Address& at) {
  const RegKind kind = p.words[0].kind;
  const auto units = static_cast<int>(p.words.size());
  const int unit = p.count * static_cast<int>(size_of(p.dtype)) / units;
  const int most = unit == 1 ? 1 : 16 / unit;
  for (int i = 0; i < units;) {
    int n = std::min(most, units - i);
    n = n >= 4 ? 4 : n >= 2 ? 2 : 1;
    const std::span<const Reg> lane(p.words.data() + i, static_cast<size_t>(n));
    const std::string_view type = unit == 1 ? ".u8" : types[static_cast<size_t>(kind)];
    line(when(at), at.shared ? "ld.shared" : "ld.global", vector_suffix(lane.size()), type, " ",
         n == 1 ? joined(lane[0]) : braces(lane), ", [", at.base, "+", at.offset + i * unit, "]");
    i += n;
  }
}

Reg Ptx::widen(const Packed& p, int index) {
  const bool words = size_of(p.dtype) < 4 && p.words[0].kind == RegKind::b32;
  const int per_word = words ? 4 / static_cast<int>(size_of(p.dtype)) : 1;
  const Reg word = p.words[static_cast<size_t>(index / per_word)];
  const int lane = index % per_word;
  switch (p.dtype) {
    case DType::f32: return word;
    case DType::bf16: {
      if (!words) {
        const Reg wide = b32("cvt.u32.u16", word);
        return f32("mov.b32", b32("shl.b32", wide, 16));
      }
      const Reg bits = lane == 0 ? b32("shl.b32", word, 16) : b32("and.b32", word, "0xffff0000");
      return f32("mov.b32", bits);
    }
    case DType::f16: {
      if (!words) return f32("cvt.f32.f16", word);
      const Reg low = reg(RegKind::b16), high = reg(RegKind::b16);
      line("mov.b32 {", low, ", ", high, "}, ", word);
      return f32("cvt.f32.f16", lane == 0 ? low : high);
    }
    case DType::i32: return f32("cvt.rn.f32.s32", word);
    case DType::i64: return f32("cvt.rn.f32.s64", word);
    case DType::u8: {
      if (!words) return f32("cvt.rn.f32.u16", word);
      return f32("cvt.rn.f32.u32", b32("bfe.u32", word, 8 * lane, 8));
    }
  }
  fail("ptx: unknown dtype");
}

Operand Ptx::element(const Packed& p, int index) { return widen(p, index); }

Reg Ptx::narrowed(DType dtype, const Operand& v) {
  const Reg x = in_register(v);
  switch (dtype) {
    case DType::f32: return x;
    case DType::bf16: {
      if (capability_ >= 80) return make(RegKind::b16, "cvt.rn.bf16.f32", x);
      const Reg u = b32("mov.b32", x);  // round to nearest even; NaN stays NaN
      const Reg odd = b32("bfe.u32", u, 16, 1);
      const Reg rounded = b32("add.u32", b32("add.u32", u, odd), "0x7fff");
      const Reg nan = test("setp.nan.f32", x, x);
      const Reg bits = b32("selp.b32", "0x7fff0000", rounded, nan);
      return make(RegKind::b16, "cvt.u16.u32", b32("shr.u32", bits, 16));
    }
    case DType::f16: return make(RegKind::b16, "cvt.rn.f16.f32", x);
    case DType::i32: return b32("cvt.rzi.s32.f32", x);
    case DType::i64: return b64("cvt.rzi.s64.f32", x);
    case DType::u8: return make(RegKind::b16, "cvt.u16.u32", b32("cvt.rzi.u32.f32", x));
  }
  fail("ptx: unknown dtype");
}

void Ptx::store(DType dtype, std::span<const Operand> values, const Address& at) {
  const auto size = static_cast<int>(size_of(dtype));
  const bool pairs = size == 2 && values.size() % 2 == 0;
  std::vector<Reg> words;
  if (!pairs)
    for (const Operand& v : values) words.push_back(narrowed(dtype, v));
  for (size_t i = 0; pairs && i < values.size(); i += 2) {
    if (capability_ < 80) {
      const Reg low = narrowed(dtype, values[i]), high = narrowed(dtype, values[i + 1]);
      words.push_back(b32("mov.b32", joined("{", low, ", ", high, "}")));
      continue;
    }
    const Reg low = in_register(values[i]), high = in_register(values[i + 1]);
    words.push_back(
        b32(dtype == DType::bf16 ? "cvt.rn.bf16x2.f32" : "cvt.rn.f16x2.f32", high, low));
  }
  const int unit = pairs ? 4 : size, units = static_cast<int>(words.size());
  const int most = unit < 4 ? 1 : 16 / unit;
  for (int i = 0; i < units;) {
    int n = std::min(most, units - i);
    n = n >= 4 ? 4 : n >= 2 ? 2 : 1;
    const std::span<const Reg> lane(words.data() + i, static_cast<size_t>(n));
    const std::string_view type = unit == 1 ? ".u8" : types[static_cast<size_t>(words[0].kind)];
    line(when(at), at.shared ? "st.shared" : "st.global", vector_suffix(lane.size()), type, " [",
         at.base, "+", at.offset + i * unit, "], ", n == 1 ? joined(lane[0]) : braces(lane));
    i += n;
  }
}

// ---- the whole ---------------------------------------------------------------------------------

std::string Ptx::text(const Entry& e) const {
  const int target = capability_ >= 90 ? 90 : capability_ >= 80 ? 80 : 75;
  std::string s = joined(".version 8.1\n.target sm_", target, "\n.address_size 64\n");
  if (e.dynamic_shared) s += ".extern .shared .align 16 .b8 dynamic[];\n";
  s += joined(".visible .entry ", e.name, "(.param .align 8 .b8 params[",
              std::max<int64_t>(e.parameter_bytes, 8), "])\n.maxntid ", e.threads, "\n");
  if (e.ctas_per_sm > 0) s += joined(".minnctapersm ", e.ctas_per_sm, "\n");
  s += "{\n";
  for (size_t k = 0; k < reg_kinds; ++k)
    if (used_[k] > 0) s += joined("  .reg ", types[k], " ", prefixes[k], "<", used_[k], ">;\n");
  if (e.shared_floats > 0) s += joined("  .shared .align 16 .f32 shared[", e.shared_floats, "];\n");
  if (target >= 90) s += "  griddepcontrol.wait;\n";
  return s + body_ + "  ret;\n}\n";
}

// ---- division ----------------------------------------------------------------------------------

Reciprocal::Reciprocal(int64_t d) {
  require(d > 0 && d < int64_t{1} << 31, "divisor: must be in [1, 2^31) (got ", d, ")");
  shift = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(d - 1)));
  multiplier = static_cast<uint32_t>((uint64_t{1} << (31 + shift)) / static_cast<uint64_t>(d) + 1);
}

Reg quotient(Ptx& p, Reg n, Reg multiplier, Reg shift) {
  return p.b32("shr.u32", p.b32("mul.hi.u32", p.b32("add.u32", n, n), multiplier), shift);
}

}  // namespace ebb::cuda
