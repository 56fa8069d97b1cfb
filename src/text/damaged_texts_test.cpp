// Embeddings that cannot be used, and prompts that nobody should write: a clear error each, or
// chunks of bounded size in bounded time.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <random>

#include "base/utf8.h"
#include "support/files.h"
#include "support/hostile.h"
#include "support/torch_file.h"
#include "text/chunks.h"
#include "text/textual_inversion.h"

namespace ebb::text {
namespace {

using namespace ebb::testing;

Tensor filled(Shape shape, float value = 0.5f, DType dtype = DType::f32) {
  Tensor t(DType::f32, std::move(shape));
  for (float& v : t.span<float>()) v = value;
  return t.to(dtype);
}

// Of a kind that no encoder takes.
std::vector<io::NamedTensor> bad_embedding(std::mt19937& random) {
  const auto n = static_cast<int64_t>(1 + random() % 700);
  switch (random() % 8) {
    case 0: return {{"x", filled({1, n})}};
    case 1: return {{"x", filled({256 + n, 768})}};
    case 2: return {{"x", filled({1, 1, 768})}};
    case 3: return {{"x", filled({0, 768})}};
    case 4: {
      Tensor t = filled({2, 768});
      t.span<float>()[random() % 1536] = random() % 2 ? std::numeric_limits<float>::quiet_NaN()
                                                      : std::numeric_limits<float>::infinity();
      return {{"x", t}};
    }
    case 5: return {{"x", Tensor(DType::i64, {1, 768})}};
    case 6: return {{"clip_l", filled({2, 768})}, {"clip_g", filled({1, 1280})}};
    default: return {{"a", filled({1, 768})}, {"b", filled({1, 768})}};
  }
}

std::string repeated(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

std::vector<std::string> bad_prompts() {
  std::vector<std::string> out{repeated("a", testing::hostile_size),
                               repeated("a ", testing::hostile_size / 2),
                               repeated("(", 10'000),
                               repeated("(", 10'000) + "x" + repeated(")", 10'000),
                               repeated("[", 10'000) + "x" + repeated("]", 10'000),
                               repeated("[a:", 10'000) + repeated("1]", 10'000),
                               repeated("[a|", 10'000),
                               repeated("(x:1.5", 5'000),
                               repeated("\\(", testing::hostile_size / 10),
                               repeated("BREAK ", 5'000),
                               repeated("x AND ", 5'000),
                               repeated("<lora:", 10'000),
                               repeated("embedding:", 10'000),
                               std::string(testing::hostile_size / 10, '\0'),
                               repeated("\xff", testing::hostile_size / 10),
                               repeated("\xe2\x82", testing::hostile_size / 20),
                               repeated("\xed\xa0\x80", testing::hostile_size / 30),
                               repeated("e\xcc\x81", testing::hostile_size / 10),
                               "(x:1e999)",
                               "(x:nan)",
                               "(x:-inf) [a:b:1e30] [a:b:-1]",
                               repeated("#", testing::hostile_size / 10)};
  std::mt19937 random(20);
  while (out.size() < 40) {
    std::string text(200 + random() % 6'000, ' ');
    constexpr std::string_view signs = "()[]:|\\<>,.# aAND0159\xff\xc3";
    for (char& c : text) c = signs[random() % signs.size()];
    out.push_back(text);
  }
  return out;
}

}  // namespace

TEST(damaged_texts, embeddings__are_an_error_each) {
  const Folder folder;
  std::mt19937 random(20);
  for (int i = 0; i < 60; ++i) {
    const auto tensors = bad_embedding(random);
    const bool torch = random() % 2 == 0;
    const std::string path = folder / (torch ? "m.pt" : "m.safetensors");
    if (torch)
      put_file(path, torch_text(tensors, random() % 2 ? "string_to_param" : ""));
    else
      io::write_safetensors(path, tensors);
    const std::string error = error_of([&] { read_textual_inversion(path); });
    EXPECT_EQ(error.find("embedding: "), 0u) << i << ": " << error;
    EXPECT_NE(error.find(path), std::string::npos) << i << ": " << error;
  }
}

TEST(damaged_texts, prompts__end_in_bounded_time) {
  if (!has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  const ClipTokenizer tokenizer(builtin_clip_vocabulary());
  for (const std::string& text : bad_prompts())
    for (const PromptSyntax syntax :
         {PromptSyntax::a1111, PromptSyntax::comfyui, PromptSyntax::diffusers}) {
      const auto start = std::chrono::steady_clock::now();
      const std::string error = error_of([&] {
        const Prompt prompt = parse_prompt(text, syntax);
        for (const PromptPart& p : prompt.parts) EXPECT_TRUE(valid_utf8(p.text));
        const EncoderText encoder{.tokenizer = &tokenizer};
        const PromptTokens tokens = tokenize_prompt(prompt, encoder, {.count = 20});
        for (const PartTokens& p : tokens.parts) EXPECT_FALSE(p.steps.back().chunks.empty());
      });
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 20) << text.substr(0, 40);
      EXPECT_TRUE(error.empty() || error.find(':') != std::string::npos) << error;
    }
}

}  // namespace ebb::text
