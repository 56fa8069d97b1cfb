// Any bytes as a prompt in every syntax: an Error, or chunks that hold what their header promises.
// A build without a vocabulary takes an empty one, of which every token is 0.
#include <cmath>

#include "base/error.h"
#include "base/utf8.h"
#include "text/chunks.h"

namespace {

using namespace ebb::text;

void check(bool ok) {
  if (!ok) __builtin_trap();
}

const ClipTokenizer& tokenizer() {
  static const ClipTokenizer made([] {
    return has_builtin_clip_vocabulary() ? builtin_clip_vocabulary()
                                         : std::make_shared<const ClipVocabulary>();
  }());
  return made;
}

void check_chunks(const std::vector<Chunk>& chunks, const EncoderText& encoder) {
  check(!chunks.empty());
  for (const Chunk& c : chunks) {
    check(c.end < chunk_tokens && (c.end > 0 || !has_builtin_clip_vocabulary()));
    int64_t from = 1;
    for (const EmbeddingSpan& e : c.embeddings) {
      check(e.at >= from && e.count > 0 && e.first >= 0);
      check(e.first + e.count <= encoder.embeddings.at(e.name));
      from = e.at + e.count;
    }
    check(from <= chunk_tokens - 1);
    for (const float w : c.weights) check(!std::isnan(w));
  }
}

void one(std::string_view text, PromptSyntax syntax, bool negative) {
  const EncoderText encoder{
      .tokenizer = &tokenizer(), .pad = 0, .embeddings = {{"a", 2}, {"ab c", 70}, {"wide", 80}}};
  const Prompt prompt = parse_prompt(text, syntax, negative);
  check(!prompt.parts.empty());
  for (const PromptPart& p : prompt.parts)
    check(std::isfinite(p.weight) && ebb::valid_utf8(p.text));
  const PromptTokens tokens = tokenize_prompt(prompt, encoder, {.count = 7});
  check(tokens.parts.size() == prompt.parts.size());
  for (const PartTokens& part : tokens.parts) {
    check(part.steps.back().end_step == 7);
    for (const StepChunks& s : part.steps) check_chunks(s.chunks, encoder);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto syntax : {PromptSyntax::a1111, PromptSyntax::comfyui, PromptSyntax::diffusers})
    try {
      one(text, syntax, size % 2 == 1);
    } catch (const ebb::Error&) {
    }
  return 0;
}
