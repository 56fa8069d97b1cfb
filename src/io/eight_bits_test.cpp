// Weights of 8 bits with what stands beside them.
#include <gtest/gtest.h>

#include <cstring>

#include "io/safetensors.h"
#include "support/files.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;

std::string file_text(std::string_view json, size_t data_bytes) {
  const uint64_t length = json.size();
  std::string s(8, '\0');
  std::memcpy(s.data(), &length, 8);
  return s + std::string(json) + std::string(data_bytes, '\1');
}

std::span<const uint8_t> as_bytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return str("{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets, "}");
}

TEST(eight_bits, scale_beside_a_weight__multiplies_it) {
  const Folder folder;
  const auto of = [&](const std::string& beside) {
    const float scales[] = {2, 0.5f};
    std::string bytes = "\x01\x7f\xff\x80";
    bytes.append(reinterpret_cast<const char*>(scales), sizeof scales);
    put_file(
        folder / "m.safetensors",
        file_text(R"({"l.weight":)" + entry("I8", "[2,2]", "[0,4]") + beside + "}", 0) + bytes);
    return TensorFile::open(folder / "m.safetensors");
  };
  const std::string scale = R"(,"l.weight_scale":)" + entry("F32", "[2]", "[4,12]");
  const Tensor t = of(scale).load("l.weight");
  EXPECT_EQ(std::vector<float>(t.span<float>().begin(), t.span<float>().end()),
            (std::vector<float>{2, 254, -0.5f, -64}));
  expect_error([&] { of(R"(,"k.weight":)" + entry("F32", "[2]", "[4,12]")).load("l.weight"); },
               "cannot be loaded (I8)");
  expect_error(
      [&] { of(scale + R"(,"l.comfy_quant":)" + entry("U8", "[0]", "[12,12]")).load("l.weight"); },
      "cannot be loaded (I8, ComfyUI may have rotated it");
}

// q is read as scale * (q - zero point), which the scale alone does not give.
TEST(eight_bits, zero_point_beside_a_weight__is_refused) {
  for (const std::string dtype : {"I8", "F8_E4M3"}) {
    const std::string text = file_text(
        R"({"l.weight":)" + entry(dtype, "[2,2]", "[0,4]") + R"(,"l.weight_scale":)" +
            entry("F32", "[2]", "[4,12]") + R"(,"l.weight_zero_point":)" +
            entry(dtype, "[2]", "[12,14]") + R"(,"k.weight":)" + entry(dtype, "[2]", "[14,16]") +
            R"(,"k.weight_scale":)" + entry("F32", "[1]", "[16,20]") + "}",
        20);
    const auto file = TensorFile::from_bytes(as_bytes(text), "m.safetensors");
    expect_error([&] { file.load("l.weight"); },
                 str("tensor 'l.weight' has a dtype that cannot be loaded (", dtype,
                     ", asymmetric: a weight_zero_point is beside it)  m.safetensors"));
    EXPECT_TRUE(file.contains("l.weight_zero_point"));
    EXPECT_EQ(file.load("k.weight").dtype(), DType::f32);
  }
}

}  // namespace
}  // namespace ebb::io
