#include "text/chunk_writer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ebb::text {

void ChunkWriter::add(const WeightedToken& token) {
  require(room() > 0, "prompt: a chunk must have at most ", chunk_room, " tokens");
  tokens_.push_back(token);
}

std::vector<WeightedToken> ChunkWriter::take_from(int64_t at) {
  const auto from = tokens_.begin() + at;
  std::vector<WeightedToken> out(from, tokens_.end());
  tokens_.erase(from, tokens_.end());
  return out;
}

void ChunkWriter::next() {
  Chunk chunk = empty_chunk(encoder_);
  const int32_t end = encoder_.tokenizer->vocabulary().end();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const WeightedToken& t = tokens_[i];
    chunk.ids[i + 1] = t.embedding ? 0 : t.id;
    chunk.weights[i + 1] = t.weight;
    if (!t.embedding) continue;
    const auto at = static_cast<int64_t>(i + 1);
    EmbeddingSpan* last = chunk.embeddings.empty() ? nullptr : &chunk.embeddings.back();
    if (last && last->at + last->count == at && last->name == *t.embedding &&
        last->first + last->count == t.row) {
      ++last->count;
    } else {
      chunk.embeddings.push_back({at, t.row, 1, *t.embedding});
    }
  }
  chunk.ids[tokens_.size() + 1] = end;
  chunk.end = std::find(chunk.ids.begin(), chunk.ids.end(), end) - chunk.ids.begin();
  chunks_.push_back(std::move(chunk));
  tokens_.clear();
}

std::vector<Chunk> ChunkWriter::finish() {
  if (!tokens_.empty() || chunks_.empty()) next();
  return std::move(chunks_);
}

ClipTokenizer clip_tokenizer(std::shared_ptr<const ClipVocabulary> vocabulary, int32_t pad,
                             PromptSyntax syntax) {
  const bool exclamation = syntax == PromptSyntax::diffusers && pad == 0;
  return ClipTokenizer(std::move(vocabulary), exclamation);
}

Chunk empty_chunk(const EncoderText& encoder) {
  Chunk chunk;
  chunk.ids.fill(encoder.pad);
  chunk.weights.fill(1);
  chunk.ids[0] = encoder.tokenizer->vocabulary().start();
  chunk.ids[1] = encoder.tokenizer->vocabulary().end();
  chunk.end = 1;
  return chunk;
}

}  // namespace ebb::text
