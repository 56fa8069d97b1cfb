// Weights of 8 bits, floats and integers: their numbers, and the scales that files have beside
// them.
#include <array>
#include <bit>
#include <cmath>
#include <set>

#include "base/error.h"
#include "io/tensor_header.h"

namespace ebb::io {
namespace {

constexpr bool is_fp8(std::string_view dtype) { return dtype == "F8_E4M3" || dtype == "F8_E5M2"; }
constexpr bool is_int8(std::string_view dtype) { return dtype == "I8"; }

// 4 bits of exponent and 3 of mantissa, without infinities (Micikevicius et al. 2022).
float from_e4m3(uint8_t v) {
  const int exponent = v >> 3 & 15, mantissa = v & 7;
  const bool nan = exponent == 15 && mantissa == 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return std::copysign(nan ? NAN : size, v & 0x80 ? -1.0f : 1.0f);
}

// The upper half of an f16.
float from_e5m2(uint8_t v) {
  f16 out;
  out.bits = static_cast<uint16_t>(v << 8);
  return static_cast<float>(out);
}

std::array<bf16, 256> table_of(float (*value)(uint8_t)) {
  std::array<bf16, 256> out;
  for (int i = 0; i < 256; ++i) out[static_cast<size_t>(i)] = bf16(value(static_cast<uint8_t>(i)));
  return out;
}

// "<layer>.scale_weight" of `weight` "<layer>.weight", or as newer files name it.
std::string beside(const std::string& weight, std::string_view suffix) {
  constexpr std::string_view own = "weight";
  if (!weight.ends_with("." + std::string(own)) && weight != own) return "";
  return weight.substr(0, weight.size() - own.size()) + std::string(suffix);
}

void check_scale(const TensorEntry& weight, const TensorEntry& scale, const std::string& file) {
  const int64_t rows = weight.shape.rank() > 0 ? weight.shape[0] : 1;
  require(scale.file_dtype == "F32" && (scale.shape.numel() == 1 || scale.shape.numel() == rows) &&
              scale.strides.empty(),
          weight.file_dtype, ": a scale must be one f32 number or one a row (", scale.file_dtype,
          scale.shape, " for ", weight.shape, ")  ", scale.name, " in ", file);
}

}  // namespace

std::string why_not_read(const TensorEntry& e, const HasTensor& has) {
  constexpr const char* zero_point = "weight_zero_point";
  if (is_int8(e.file_dtype) && has(beside(e.name, "comfy_quant")))
    return "ComfyUI may have rotated it, as the comfy_quant beside it says";
  if ((is_int8(e.file_dtype) || is_fp8(e.file_dtype)) && has(beside(e.name, zero_point)))
    return str("asymmetric: a ", zero_point, " is beside it");
  return "";
}

void take_scales(std::vector<TensorEntry>& entries, const std::vector<std::string>& files) {
  std::map<std::string, const TensorEntry*> by_name;
  bool any = false;
  for (const TensorEntry& e : entries) {
    by_name.emplace(e.name, &e);
    any = any || is_fp8(e.file_dtype) || is_int8(e.file_dtype);
  }
  if (!any) return;
  const auto has = [&](const std::string& name) { return by_name.contains(name); };
  std::set<std::string> taken;
  for (TensorEntry& e : entries) {
    const std::string& file = files.at(e.shard);
    if (e.name.ends_with("scaled_fp8")) taken.insert(e.name);
    if (!is_fp8(e.file_dtype) && !is_int8(e.file_dtype)) continue;
    if (!why_not_read(e, has).empty()) {
      e.dtype.reset();
      continue;
    }
    for (const char* suffix : {"scale_weight", "weight_scale"}) {
      const auto scale = by_name.find(beside(e.name, suffix));
      if (scale == by_name.end()) continue;
      require(!e.scale, e.file_dtype, ": must have one scale  ", e.name, " in ", file);
      check_scale(e, *scale->second, file);
      e.scale = std::make_shared<const TensorEntry>(*scale->second);
      e.dtype = DType::f32;
      taken.insert(scale->first);
    }
    // what activations are multiplied with where they are 8 bits wide, too, and how it was made
    for (const char* suffix : {"scale_input", "input_scale", "comfy_quant"})
      if (e.scale) taken.insert(beside(e.name, suffix));
  }
  std::erase_if(entries, [&](const TensorEntry& e) { return taken.contains(e.name); });
}

Tensor from_fp8(const TensorEntry& entry, std::span<const uint8_t> bytes) {
  static const std::array<bf16, 256> e4m3 = table_of(from_e4m3), e5m2 = table_of(from_e5m2);
  const std::array<bf16, 256>& table = entry.file_dtype == "F8_E4M3" ? e4m3 : e5m2;
  Tensor out(DType::bf16, entry.shape);
  const std::span<bf16> to = out.span<bf16>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = table[bytes[i]];
  return out;
}

Tensor from_int8(const TensorEntry& entry, std::span<const uint8_t> bytes) {
  Tensor out(DType::f32, entry.shape);
  const std::span<float> to = out.span<float>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(static_cast<int8_t>(bytes[i]));
  return out;
}

void apply_scale(Tensor& t, const Tensor& scale) {
  t = t.to(DType::f32);
  const std::span<float> to = t.span<float>();
  const std::span<const float> factors = scale.span<float>();
  const size_t row = to.size() / std::max<size_t>(factors.size(), 1);
  for (size_t r = 0; r < factors.size(); ++r)
    for (float& v : to.subspan(r * row, row)) v *= factors[r];
}

}  // namespace ebb::io
