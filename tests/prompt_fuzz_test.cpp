// Generated prompts against what A1111's and ComfyUI's own functions make of them
// (tools/golden/prompt_fuzz_golden.py).
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdio>
#include <optional>
#include <sstream>

#include "base/hash.h"
#include "support/golden_file.h"
#include "text/chunks.h"

namespace ebb::text::prompt_fuzz_test {
namespace {

using nlohmann::json;

std::string hex(uint32_t value) {
  std::array<char, 9> out{};
  std::snprintf(out.data(), out.size(), "%08x", value);
  return out.data();
}

std::string number(double value) { return hex(std::bit_cast<uint32_t>(static_cast<float>(value))); }

std::string text_of_texts(const Prompt& prompt, const Steps& steps) {
  std::ostringstream out;
  for (const PromptPart& part : prompt.parts) {
    out << number(part.weight) << '\n';
    for (const ScheduledText& t : schedule_prompt(part.text, steps))
      out << t.end_step << ' ' << t.text << '\n';
  }
  return out.str();
}

std::string text_of_chunks(const PromptTokens& tokens) {
  std::ostringstream out;
  for (const PartTokens& part : tokens.parts)
    for (const StepChunks& step : part.steps)
      for (const Chunk& c : step.chunks) {
        for (size_t i = 0; i < c.ids.size(); ++i) out << (i ? " " : "") << c.ids[i];
        for (size_t i = 0; i < c.weights.size(); ++i)
          out << (i ? " " : ";") << number(c.weights[i]);
        out << ';';
        for (size_t i = 0; i < c.embeddings.size(); ++i) {
          const EmbeddingSpan& e = c.embeddings[i];
          out << (i ? " " : "") << e.at << ',' << e.first << ',' << e.count << ',' << e.name;
        }
        out << '\n';
      }
  return out.str();
}

class PromptFuzz : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    tokenizer_.emplace(builtin_clip_vocabulary());
    encoder_.tokenizer = &*tokenizer_;
    encoder_.embeddings = golden_["embeddings"];
    steps_ = {golden_["steps"]};
  }

  // What is hashed: texts of A1111's, its chunks, ComfyUI's chunks.
  std::string text(const std::string& prompt, size_t which) const {
    const Prompt p = parse_prompt(prompt, which < 2 ? PromptSyntax::a1111 : PromptSyntax::comfyui);
    return which == 0 ? text_of_texts(p, steps_)
                      : text_of_chunks(tokenize_prompt(p, encoder_, steps_));
  }

  json golden_ = testing::read_golden("prompt_fuzz");
  std::optional<ClipTokenizer> tokenizer_;
  EncoderText encoder_;
  Steps steps_;
};

TEST_F(PromptFuzz, programs__make_the_same_of_every_prompt) {
  size_t compared = 0;
  for (const json& row : golden_["prompts"]) {
    std::istringstream hashes(row[1].get<std::string>());
    std::string hash;
    for (size_t which = 0; hashes >> hash; ++which) {
      if (hash == "-" || hash == "?") continue;
      std::string made;
      ASSERT_NO_THROW(made = text(row[0], which)) << row[0];
      EXPECT_EQ(hex(static_cast<uint32_t>(fnv1a(made))), hash) << which << ' ' << row[0];
      ++compared;
    }
  }
  EXPECT_GT(compared, 7000u);
}

}  // namespace
}  // namespace ebb::text::prompt_fuzz_test
