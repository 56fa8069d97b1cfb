// The vocabulary of CLIP's tokenizer: byte pairs in order of their merging, and tokens' numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb::text {

// Immutable.
class ClipVocabulary {
 public:
  struct Merge {
    int32_t rank;   // the lowest goes first
    int32_t token;  // of both together
  };

  // From the list of merges as OpenAI published it (`bpe_simple_vocab_16e6.txt` or `merges.txt`): a
  // line of heading, then 48894 lines "left right"; more lines are not read. Numbers follow from
  // the order: 256 bytes, 256 bytes that end a word, the merges, <|startoftext|>, <|endoftext|>.
  // Throws Error "vocabulary: ..." naming `name` and the line.
  static std::shared_ptr<const ClipVocabulary> from_merges(std::string_view merges,
                                                           const std::string& name);
  // From a folder with vocab.json and merges.txt, or with tokenizer.json, as checkpoints have it in
  // tokenizer/. Throws Error naming the file.
  static std::shared_ptr<const ClipVocabulary> open(const std::string& folder);

  // Tokens of one byte; `ends`: the byte ends a word.
  int32_t byte_token(uint8_t byte, bool ends) const { return bytes_[ends ? 1 : 0][byte]; }
  std::optional<Merge> merge(int32_t left, int32_t right) const {
    const auto at = std::ranges::lower_bound(merges_, pair(left, right), {}, &PairMerge::first);
    if (at == merges_.end() || at->first != pair(left, right)) return {};
    return at->second;
  }
  // What a token stands for: its bytes, which may be a part of a UTF-8 sequence, and a blank where
  // it ends a word; "" if there is no such token or it is <|startoftext|> or <|endoftext|>.
  std::string bytes_of(int32_t token) const;
  // The tokenizer's files as Hugging Face has them, by name; `pad`: the token behind a text's end.
  std::map<std::string, std::string> hugging_face_files(const std::string& pad) const;
  int32_t start() const { return start_; }  // <|startoftext|>, 49406
  int32_t end() const { return end_; }      // <|endoftext|>, 49407
  int32_t size() const { return size_; }    // tokens

 private:
  friend class VocabularyBuilder;
  static uint64_t pair(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  std::array<std::array<int32_t, 256>, 2> bytes_{};
  using PairMerge = std::pair<uint64_t, Merge>;
  std::vector<PairMerge> merges_;  // by pair, ascending
  // Of each token: the two that it merges, or its byte and whether that ends a word.
  struct Parts {
    int32_t left = -1, right = -1;
    bool is_byte = false;
  };
  std::vector<Parts> parts_;
  int32_t start_ = 0, end_ = 0, size_ = 0;
};

// The vocabulary that the program was built with, which SD, SDXL, SD3 and Flux share. Throws Error
// if it was built without: `scripts/setup` fetches it for the build.
std::shared_ptr<const ClipVocabulary> builtin_clip_vocabulary();
bool has_builtin_clip_vocabulary();

}  // namespace ebb::text
