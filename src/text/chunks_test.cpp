#include "text/chunks.h"

#include <gtest/gtest.h>

#include "support/files.h"
#include "support/golden_file.h"
#include "support/hostile.h"

namespace ebb::text {
namespace {

using namespace ebb::testing;
using nlohmann::json;

class ChunksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    tokenizer_.emplace(builtin_clip_vocabulary());
    encoder_.tokenizer = &*tokenizer_;
    golden_ = read_golden("prompts");
    encoder_.embeddings = golden_["embeddings"];
  }

  PromptTokens tokens(std::string_view text, PromptSyntax syntax = PromptSyntax::a1111,
                      Steps steps = {}) const {
    return tokenize_prompt(parse_prompt(text, syntax), encoder_, steps);
  }
  std::vector<Chunk> chunks(std::string_view text,
                            PromptSyntax syntax = PromptSyntax::a1111) const {
    return tokens(text, syntax).parts.at(0).steps.at(0).chunks;
  }
  std::vector<int32_t> ids(std::string_view text, PromptSyntax syntax) const {
    const Chunk chunk = chunks(text, syntax).at(0);
    return {chunk.ids.begin() + 1, chunk.ids.begin() + chunk.end};
  }

  std::optional<ClipTokenizer> tokenizer_;
  EncoderText encoder_;
  json golden_;
};

// Chunks as the golden file has them: without padding, runs of equal weights.
json packed(const std::vector<Chunk>& chunks) {
  json out = json::array();
  for (const Chunk& c : chunks) {
    size_t end = c.ids.size();
    while (end > 0 && c.ids[end - 1] == c.ids.back()) --end;
    std::string ids;
    for (size_t i = 0; i <= end && i < c.ids.size(); ++i)
      ids += (i ? " " : "") + std::to_string(c.ids[i]);
    json runs = json::array(), spans = json::array();
    for (const float w : c.weights) {
      if (!runs.empty() && runs.back()[0] == w) {
        runs.back()[1] = runs.back()[1].get<int>() + 1;
      } else {
        runs.push_back({w, 1});
      }
    }
    for (const EmbeddingSpan& e : c.embeddings) spans.push_back({e.at, e.first, e.count, e.name});
    out.push_back({{"ids", ids}, {"weights", runs}, {"embeddings", spans}});
  }
  return out;
}

// The golden's in the same form: weights rounded to floats, spans of whole embeddings (a1111) or
// row by row (comfyui).
json normalised(json chunks, bool rows) {
  for (json& c : chunks) {
    c.erase("pad");
    json runs = json::array(), spans = json::array();
    for (const json& run : c["weights"]) {
      const float w = run[0];
      if (!runs.empty() && runs.back()[0] == w) {
        runs.back()[1] = runs.back()[1].get<int>() + run[1].get<int>();
      } else {
        runs.push_back({w, run[1]});
      }
    }
    for (const json& s : c["embeddings"]) {
      if (!rows) {
        spans.push_back({s[0], 0, s[1], s[2]});
        continue;
      }
      const int64_t at = s[0], row = s[2];
      json* last = spans.empty() ? nullptr : &spans.back();
      if (last && (*last)[0].get<int64_t>() + (*last)[2].get<int64_t>() == at &&
          (*last)[3] == s[1] && (*last)[1].get<int64_t>() + (*last)[2].get<int64_t>() == row) {
        (*last)[2] = (*last)[2].get<int64_t>() + 1;
      } else {
        spans.push_back({at, row, 1, s[1]});
      }
    }
    c["weights"] = runs;
    c["embeddings"] = spans;
  }
  return chunks;
}

TEST_F(ChunksTest, a1111__has_its_chunks) {
  for (const int64_t backtrack : {20, 0}) {
    encoder_.comma_backtrack = backtrack;
    for (const json& one : golden_[backtrack ? "a1111_chunks" : "a1111_chunks_no_backtrack"]) {
      // what stands before the emphasis is not part of this
      const std::string text = one[0];
      if (text.find('[') != std::string::npos) continue;
      const Prompt prompt{.parts = {{.text = text}}};
      const auto tokens = tokenize_prompt(prompt, encoder_, {});
      EXPECT_EQ(packed(tokens.parts[0].steps[0].chunks), normalised(one[1], false)) << one[0];
    }
  }
}

TEST_F(ChunksTest, comfyui__has_its_chunks) {
  for (const json& one : golden_["comfyui_chunks"]) {
    const auto got = packed(chunks(one[0].get<std::string>(), PromptSyntax::comfyui));
    EXPECT_EQ(got, normalised(one[1], true)) << one[0];
  }
}

TEST_F(ChunksTest, diffusers__is_plain_text_cut_at_75) {
  std::string text;
  for (int i = 0; i < 80; ++i) text += i == 74 ? "dog " : "cat ";
  const PromptTokens all = tokens(text, PromptSyntax::diffusers);
  ASSERT_EQ(all.parts[0].steps[0].chunks.size(), 1u);
  const Chunk& chunk = all.parts[0].steps[0].chunks[0];
  EXPECT_EQ(chunk.end, 76);
  EXPECT_EQ(chunk.ids[75], 1929);
  EXPECT_EQ(chunk.ids[76], 49407);
  EXPECT_EQ(
      all.warnings,
      (std::vector<std::string>{"prompt: 5 tokens are cut off after 75: 'cat cat cat cat cat '"}));
  EXPECT_EQ(ids("(cat:1.2)", PromptSyntax::diffusers), tokenizer_->encode("(cat:1.2)"));
}

TEST_F(ChunksTest, diffusers__embeddings_are_found_in_any_case) {
  const Chunk chunk = chunks("a MyEmb, cat", PromptSyntax::diffusers)[0];
  EXPECT_EQ(chunk.embeddings, (std::vector<EmbeddingSpan>{{2, 0, 3, "myemb"}}));
  EXPECT_EQ(chunk.ids[5], 267);
}

TEST_F(ChunksTest, padding__follows_the_end) {
  for (const int32_t pad : {49407, 0}) {
    encoder_.pad = pad;
    for (const auto syntax :
         {PromptSyntax::a1111, PromptSyntax::comfyui, PromptSyntax::diffusers}) {
      const Chunk chunk = chunks("a cat", syntax).at(0);
      EXPECT_EQ(chunk.ids[0], 49406);
      EXPECT_EQ(chunk.ids[2], 2368);
      EXPECT_EQ(chunk.ids[3], 49407);
      EXPECT_EQ(chunk.end, 3);
      for (size_t i = 4; i < 77; ++i) EXPECT_EQ(chunk.ids[i], pad);
      EXPECT_EQ(chunks("", syntax).at(0).ids, empty_chunk(encoder_).ids);
    }
  }
  // A1111 pads what is behind an end of the prompt's own too.
  EXPECT_EQ(chunks("a <|endoftext|> cat").at(0).ids[3], 0);
}

TEST_F(ChunksTest, schedule__has_as_many_chunks_in_each_step) {
  const PromptTokens all =
      tokens("[cat:cat BREAK dog:0.5] AND [a|b] :-0.5", PromptSyntax::a1111, {.count = 4});
  ASSERT_EQ(all.parts.size(), 2u);
  ASSERT_EQ(all.parts[0].steps.size(), 2u);
  EXPECT_EQ(all.parts[0].steps[0].end_step, 2);
  EXPECT_EQ(all.parts[0].steps[0].chunks.size(), 2u);
  EXPECT_EQ(all.parts[0].steps[0].chunks[1].ids, empty_chunk(encoder_).ids);
  EXPECT_EQ(chunks_at(all.parts[0], 3)[1].ids[1], 1929);
  EXPECT_EQ(all.parts[1].weight, -0.5);
  EXPECT_EQ(all.parts[1].steps.size(), 4u);
  EXPECT_EQ(chunks_at(all.parts[1], 1)[0].ids[1], 320);
  EXPECT_EQ(chunks_at(all.parts[1], 4)[0].ids[1], 321);
}

TEST_F(ChunksTest, comfyui__unknown_embeddings_are_left_out_with_a_warning) {
  const PromptTokens all = tokens("a embedding:myenb cat", PromptSyntax::comfyui);
  EXPECT_EQ(all.parts[0].steps[0].chunks[0].end, 3);
  EXPECT_EQ(all.warnings,
            (std::vector<std::string>{
                "prompt: there is no embedding 'myenb': left out (did you mean 'myemb'?)"}));
  expect_error([&] { tokens("embedding:", PromptSyntax::comfyui); }, "must have a name");
  EXPECT_EQ(chunks("embedding:myemb.pt", PromptSyntax::comfyui)[0].embeddings.size(), 1u);
}

// There A1111 leaves the vectors in the chunk that their tokens left.
TEST_F(ChunksTest, a1111__vectors_move_with_their_tokens) {
  std::string text;
  for (int i = 0; i < 65; ++i) text += "cat ";
  const auto all = chunks(text + ", dog myemb dog dog dog dog dog dog dog");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].end, 67);
  EXPECT_TRUE(all[0].embeddings.empty());
  EXPECT_EQ(all[1].embeddings, (std::vector<EmbeddingSpan>{{2, 0, 3, "myemb"}}));
}

TEST_F(ChunksTest, embeddings__too_many_vectors_are_an_error) {
  encoder_.embeddings = {{"wide", 76}};
  expect_error([&] { tokens("a wide cat"); },
               "prompt: an embedding must have at most 75 vectors (76)  wide");
  EXPECT_EQ(chunks("embedding:wide", PromptSyntax::comfyui).size(), 2u);
}

TEST_F(ChunksTest, hostile_prompts__end_soon) {
  std::string commas, words;
  while (commas.size() < testing::hostile_size) commas += ", a";
  while (words.size() < testing::hostile_size) words += "embedding:x ";
  for (const auto syntax : {PromptSyntax::a1111, PromptSyntax::comfyui, PromptSyntax::diffusers})
    for (const std::string& text : {commas, words, std::string(testing::hostile_size, '(')})
      EXPECT_GT(chunks(text, syntax).size(), 0u);
}

}  // namespace
}  // namespace ebb::text
