#include "text/clip_tokenizer.h"

#include <algorithm>
#include <queue>
#include <string>
#include <tuple>

#include "base/utf8.h"
#include "text/unicode.h"

namespace ebb::text {
namespace {

constexpr std::string_view start_word = "<|startoftext|>", end_word = "<|endoftext|>";

// Contractions, tried in this order.
constexpr std::u32string_view contractions[] = {U"'s", U"'t", U"'re", U"'ve", U"'m", U"'ll", U"'d"};

// In another case the special words are no tokens, but they are cut out of the text all the same
// and then split into these.
constexpr std::u32string_view special_parts[][3] = {{U"<|", U"startoftext", U"|>"},
                                                    {U"<|", U"endoftext", U"|>"}};

// Length of the word at the start of `text`, which does not start with white space: a contraction,
// letters, one number, or anything else up to white space, a letter or a number.
size_t word_length(std::u32string_view text) {
  for (const std::u32string_view c : contractions)
    if (text.starts_with(c)) return c.size();
  const CharClass first = char_class(text[0]);
  if (first == CharClass::number) return 1;
  size_t n = 1;
  while (n < text.size() && char_class(text[n]) == first) ++n;
  return n;
}

// Calls word(part) for every word of `text`, which is normalised.
template <class F>
void for_each_word(std::u32string_view text, F&& word) {
  const auto take = [&](size_t n) {
    word(text.substr(0, n));
    text.remove_prefix(n);
  };
  while (!text.empty()) {
    if (char_class(text[0]) == CharClass::space) {
      text.remove_prefix(1);
      continue;
    }
    bool special = false;
    for (const auto& [open, name, close] : special_parts) {
      if (!text.starts_with(open) || !text.substr(2).starts_with(name) ||
          !text.substr(2 + name.size()).starts_with(close))
        continue;
      for (const size_t n : {size_t{2}, name.size(), size_t{2}}) take(n);
      special = true;
      break;
    }
    if (!special) take(word_length(text));
  }
}

// The symbols of one word, and its merging: the pair of the lowest rank first, the leftmost of
// equals first.
class Word {
 public:
  Word(const ClipVocabulary& vocabulary, std::string_view bytes) : vocabulary_(vocabulary) {
    const int32_t n = static_cast<int32_t>(bytes.size());
    for (int32_t i = 0; i < n; ++i)
      symbols_.push_back(
          {vocabulary.byte_token(static_cast<uint8_t>(bytes[static_cast<size_t>(i)]), i + 1 == n),
           i - 1, i + 1 == n ? -1 : i + 1});
    for (int32_t i = 0; i + 1 < n; ++i) offer(i);
  }

  void append_merged(std::vector<int32_t>& out) {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      merge(best);
    }
    for (int32_t i = 0; i >= 0; i = at(i).next) out.push_back(at(i).token);
  }

 private:
  struct Symbol {
    int32_t token, previous, next;  // neighbours' places, or -1; token -1: merged into another
  };
  struct Candidate {
    int32_t rank, place, left, right, token;
    bool operator>(const Candidate& o) const {
      return std::tie(rank, place) > std::tie(o.rank, o.place);
    }
  };

  Symbol& at(int32_t i) { return symbols_[static_cast<size_t>(i)]; }

  // Queues the pair that starts at `place`, if there is such a merge.
  void offer(int32_t place) {
    const Symbol& left = at(place);
    if (left.next < 0) return;
    const int32_t right = at(left.next).token;
    if (const auto m = vocabulary_.merge(left.token, right))
      queue_.push({m->rank, place, left.token, right, m->token});
  }

  void merge(const Candidate& c) {
    Symbol& left = at(c.place);
    // A candidate is stale once one of its symbols was merged.
    if (left.token != c.left || left.next < 0 || at(left.next).token != c.right) return;
    Symbol& right = at(left.next);
    left.token = c.token;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) at(left.next).previous = c.place;
    if (left.previous >= 0) offer(left.previous);
    offer(c.place);
  }

  const ClipVocabulary& vocabulary_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

}  // namespace

ClipTokenizer::ClipTokenizer(std::shared_ptr<const ClipVocabulary> vocabulary,
                             bool pad_is_exclamation)
    : vocabulary_(std::move(vocabulary)),
      pad_is_exclamation_(pad_is_exclamation),
      comma_(vocabulary_->byte_token(',', true)) {}

// `text` holds none of the words that are tokens by themselves.
void ClipTokenizer::encode_piece(std::string_view text, std::vector<int32_t>& out) const {
  for_each_word(lower_nfc(decode_utf8(text)), [&](std::u32string_view word) {
    Word(*vocabulary_, to_utf8(word)).append_merged(out);
  });
}

std::vector<int32_t> ClipTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto is = [&](std::string_view word) { return text.substr(at).starts_with(word); };
    const auto token = [&](std::string_view word, int32_t id) {
      encode_piece(text.substr(begin, at - begin), out);
      out.push_back(id);
      begin = at += word.size();
    };
    if (is(start_word)) {
      token(start_word, vocabulary_->start());
    } else if (is(end_word)) {
      token(end_word, vocabulary_->end());
    } else if (pad_is_exclamation_ && text[at] == '!') {
      token("!", vocabulary_->byte_token('!', false));
    } else {
      ++at;
    }
  }
  encode_piece(text.substr(begin), out);
  return out;
}

}  // namespace ebb::text
