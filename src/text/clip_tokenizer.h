// CLIP's tokenizer: text to tokens by byte pairs. Equal to Hugging Face's CLIPTokenizer of the
// tokenizers library ("fast"; the only one since transformers 5), which does not mend text with
// ftfy as OpenAI's first one did: curly quotes stay what they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/clip_vocabulary.h"

namespace ebb::text {

class ClipTokenizer {
 public:
  // `pad_is_exclamation`: the tokenizers of SD 2 and of SDXL's second encoder in diffusers pad with
  // "!", which makes every "!" of a text a token of its own, number 0. A1111, ComfyUI and OpenCLIP
  // do not.
  explicit ClipTokenizer(std::shared_ptr<const ClipVocabulary> vocabulary,
                         bool pad_is_exclamation = false);

  // The tokens of `text` without start and end. Invalid UTF-8 is read as U+FFFD. The words
  // <|startoftext|> and <|endoftext|>, in this case, are their tokens. O(n log n).
  std::vector<int32_t> encode(std::string_view text) const;

  const ClipVocabulary& vocabulary() const { return *vocabulary_; }
  int32_t comma() const { return comma_; }  // the token of ","

 private:
  void encode_piece(std::string_view text, std::vector<int32_t>& out) const;

  std::shared_ptr<const ClipVocabulary> vocabulary_;
  bool pad_is_exclamation_;
  int32_t comma_;
};

}  // namespace ebb::text
