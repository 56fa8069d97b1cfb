// Prompts as token ids, ready for a text encoder: chunks of 77, with weights, and for each step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/clip_tokenizer.h"
#include "text/prompt.h"
#include "text/prompt_schedule.h"

namespace ebb::text {

constexpr int64_t chunk_tokens = 77;  // with start and end
constexpr int64_t chunk_room = 75;    // for tokens of the prompt

// Vectors of an embedding that take the place of token embeddings, before positions are added:
// rows [first, first + count) of embedding `name` at tokens [at, at + count) of the chunk.
struct EmbeddingSpan {
  int64_t at = 0;
  int64_t first = 0;
  int64_t count = 0;
  std::string name;

  bool operator==(const EmbeddingSpan&) const = default;
};

struct Chunk {
  std::array<int32_t, chunk_tokens> ids{};    // 0 in embeddings
  std::array<float, chunk_tokens> weights{};  // 1 for start, end and padding
  std::vector<EmbeddingSpan> embeddings;      // in order; they do not overlap
  int64_t end = 0;                            // of the first <|endoftext|>: the pooled token
};

// The tokenizer that a program has for an encoder with this id for padding: diffusers reads "!" as
// padding where that is 0.
ClipTokenizer clip_tokenizer(std::shared_ptr<const ClipVocabulary> vocabulary, int32_t pad,
                             PromptSyntax syntax);

// One encoder's view of a prompt.
struct EncoderText {
  const ClipTokenizer* tokenizer = nullptr;
  int32_t pad = 49407;  // TextEncoder::pad
  // Embeddings that may be named: how many vectors each has, [count, width] of this encoder.
  std::map<std::string, int64_t> embeddings = {};
  // A1111: tokens that a comma may be back from the end of a chunk so that what follows it goes to
  // the next one; 0: never.
  int64_t comma_backtrack = 20;
};

struct StepChunks {
  int64_t end_step = 0;  // the chunks of the steps up to this, counted from 1
  std::vector<Chunk> chunks;
};

struct PartTokens {
  double weight = 1;
  std::vector<StepChunks> steps;  // the same number of chunks in each; the last ends at the last
};

struct PromptTokens {
  std::vector<PartTokens> parts;      // as Prompt::parts
  std::vector<std::string> warnings;  // what was cut or does not exist
};

// Rules: src/text/README.md. Throws Error "prompt: ...". O(n log n) in the text of all steps.
PromptTokens tokenize_prompt(const Prompt& prompt, const EncoderText& encoder, const Steps& steps);

// Start, end and padding, as the empty prompt.
Chunk empty_chunk(const EncoderText& encoder);

// The chunks of one step (1 and on).
const std::vector<Chunk>& chunks_at(const PartTokens& part, int64_t step);

}  // namespace ebb::text
