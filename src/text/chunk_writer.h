// Fills chunks token by token.
#pragma once

#include <string>
#include <vector>

#include "text/chunks.h"

namespace ebb::text {

// A token of a prompt, or a row of an embedding.
struct WeightedToken {
  int32_t id = 0;
  float weight = 1;
  const std::string* embedding = nullptr;  // its name; null: the token `id`
  int64_t row = 0;
};

class ChunkWriter {
 public:
  explicit ChunkWriter(const EncoderText& encoder) : encoder_(encoder) {}

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // of this chunk, to 75
  int64_t room() const { return chunk_room - size(); }
  void add(const WeightedToken& token);
  // Takes back the tokens from `at` on.
  std::vector<WeightedToken> take_from(int64_t at);
  // Ends the chunk: end and padding follow.
  void next();
  // All chunks; an empty one if there is none.
  std::vector<Chunk> finish();

 private:
  const EncoderText& encoder_;
  std::vector<WeightedToken> tokens_;
  std::vector<Chunk> chunks_;
};

}  // namespace ebb::text
