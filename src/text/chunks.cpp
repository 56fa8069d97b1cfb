#include "text/chunks.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "base/utf8.h"
#include "text/chunk_writer.h"
#include "text/emphasis.h"
#include "text/python_text.h"

namespace ebb::text {
namespace {

using Embedding = std::pair<const std::string, int64_t>;  // name, vectors

// ---- A1111 ----

// Finds embeddings by the tokens of their names.
class EmbeddingIndex {
 public:
  explicit EmbeddingIndex(const EncoderText& encoder) {
    for (const Embedding& e : encoder.embeddings) {
      std::vector<int32_t> ids = encoder.tokenizer->encode(e.first);
      if (ids.empty()) continue;
      const int32_t first = ids[0];
      by_first_[first].push_back({std::move(ids), &e});
    }
    for (auto& [first, names] : by_first_)
      std::stable_sort(names.begin(), names.end(),
                       [](const Name& a, const Name& b) { return a.ids.size() > b.ids.size(); });
  }

  struct Name {
    std::vector<int32_t> ids;
    const Embedding* embedding;
  };

  // The one whose name is the longest at ids[at], or null.
  const Name* find(const std::vector<int32_t>& ids, size_t at) const {
    const auto names = by_first_.find(ids[at]);
    if (names == by_first_.end()) return nullptr;
    for (const Name& name : names->second)
      if (name.ids.size() <= ids.size() - at &&
          std::equal(name.ids.begin(), name.ids.end(),
                     ids.begin() + static_cast<std::ptrdiff_t>(at)))
        return &name;
    return nullptr;
  }

 private:
  std::unordered_map<int32_t, std::vector<Name>> by_first_;
};

class A1111Chunks {
 public:
  A1111Chunks(const EncoderText& encoder, const EmbeddingIndex& index)
      : encoder_(encoder), index_(index), writer_(encoder) {}

  void add(const WeightedText& piece) {
    if (piece.new_chunk) return next();
    const std::vector<int32_t> ids = encoder_.tokenizer->encode(piece.text);
    const auto weight = static_cast<float>(piece.weight);
    for (size_t at = 0; at < ids.size();) {
      if (ids[at] == encoder_.tokenizer->comma()) {
        comma_ = writer_.size();
      } else {
        break_at_comma();
      }
      if (writer_.room() == 0) next();
      if (const EmbeddingIndex::Name* name = index_.find(ids, at)) {
        add_embedding(*name->embedding, weight);
        at += name->ids.size();
      } else {
        writer_.add({ids[at++], weight});
      }
    }
  }

  std::vector<Chunk> finish() {
    std::vector<Chunk> out = writer_.finish();
    // also behind an end that the prompt has itself
    for (Chunk& c : out)
      if (encoder_.pad != c.ids[static_cast<size_t>(c.end)])
        std::fill(c.ids.begin() + c.end + 1, c.ids.end(), encoder_.pad);
    return out;
  }

 private:
  void next() {
    writer_.next();
    comma_ = -1;
  }

  // Of a full chunk, what follows a comma near its end goes to the next one.
  void break_at_comma() {
    if (writer_.room() > 0 || encoder_.comma_backtrack == 0 || comma_ < 0 ||
        writer_.size() - comma_ > encoder_.comma_backtrack)
      return;
    const std::vector<WeightedToken> moved = writer_.take_from(comma_ + 1);
    next();
    for (const WeightedToken& t : moved) writer_.add(t);
  }

  void add_embedding(const Embedding& e, float weight) {
    require(e.second <= chunk_room, "prompt: an embedding must have at most ", chunk_room,
            " vectors (", e.second, ")  ", e.first);
    if (writer_.room() < e.second) next();
    for (int64_t row = 0; row < e.second; ++row) writer_.add({0, weight, &e.first, row});
  }

  const EncoderText& encoder_;
  const EmbeddingIndex& index_;
  ChunkWriter writer_;
  int64_t comma_ = -1;  // the place of the last one in this chunk
};

// ---- ComfyUI ----

constexpr std::u32string_view embedding_word = U"embedding:";
constexpr size_t long_group = 8;  // tokens; what is shorter is not split over two chunks

using Group = std::vector<WeightedToken>;

// What Python takes for white space is a blank to the tokenizer, too.
std::u32string spaced(std::u32string_view text) {
  std::u32string out(text);
  std::ranges::replace_if(out, python_space, U' ');
  return out;
}

class ComfyuiChunks {
 public:
  ComfyuiChunks(const EncoderText& encoder, std::vector<std::string>& warnings)
      : encoder_(encoder), warnings_(warnings), writer_(encoder) {}

  // Cuts the piece before every "embedding:" that follows white space.
  void add(const WeightedText& piece) {
    const std::u32string text = decode_utf8(piece.text);
    const auto weight = static_cast<float>(piece.weight);
    size_t begin = 0;
    for (size_t at = text.find(embedding_word, 1); at != std::u32string::npos;
         at = text.find(embedding_word, at + 1)) {
      if (!python_space(text[at - 1])) continue;
      add_words(std::u32string_view(text).substr(begin, at - begin), weight);
      begin = at;
    }
    add_words(std::u32string_view(text).substr(begin), weight);
  }

  std::vector<Chunk> finish() { return writer_.finish(); }

 private:
  void add_words(std::u32string_view words, float weight) {
    if (!words.starts_with(embedding_word)) return add_text(to_utf8(words), weight);
    std::u32string_view rest = stripped(words.substr(embedding_word.size()));
    require(!rest.empty(), "prompt: embedding: must have a name");
    size_t end = 0;
    while (end < rest.size() && !python_space(rest[end])) ++end;
    std::u32string_view name = rest.substr(0, end);
    rest = rest.substr(end);
    std::string behind;
    const size_t cut = std::min(name.find_first_of(U"<["), name.size());
    behind = to_utf8(name.substr(cut)) + to_utf8(spaced(rest));
    name = name.substr(0, cut);
    const Embedding* found = find(to_utf8(name));
    if (!found) {
      std::u32string_view bare = name;
      while (!bare.empty() && bare.front() == ',') bare.remove_prefix(1);
      while (!bare.empty() && bare.back() == ',') bare.remove_suffix(1);
      found = bare.size() < name.size() ? find(to_utf8(bare)) : nullptr;
      if (bare.size() < name.size()) behind = to_utf8(name.substr(bare.size())) + " " + behind;
    }
    if (found) {
      Group group;
      for (int64_t row = 0; row < found->second; ++row)
        group.push_back({0, weight, &found->first, row});
      add_group(group);
    } else {
      std::vector<std::string> known;
      for (const auto& [one, count] : encoder_.embeddings) known.push_back(one);
      warnings_.push_back(str("prompt: there is no embedding ", shown(name), ": left out",
                              known.empty() ? "" : suggestion(to_utf8(name), known)));
    }
    add_text(behind, weight);
  }

  // By its name, with or without the ending of its file.
  const Embedding* find(const std::string& name) const {
    auto at = encoder_.embeddings.find(name);
    for (const std::string_view ending : {".safetensors", ".pt", ".bin"})
      if (at == encoder_.embeddings.end() && name.ends_with(ending))
        at = encoder_.embeddings.find(name.substr(0, name.size() - ending.size()));
    return at == encoder_.embeddings.end() ? nullptr : &*at;
  }

  void add_text(const std::string& text, float weight) {
    Group group;
    for (const int32_t id : encoder_.tokenizer->encode(text)) group.push_back({id, weight});
    add_group(group);
  }

  void add_group(const Group& group) {
    const bool may_split = group.size() >= long_group;
    if (!may_split && static_cast<int64_t>(group.size()) > writer_.room()) writer_.next();
    for (const WeightedToken& t : group) {
      if (writer_.room() == 0) writer_.next();
      writer_.add(t);
    }
  }

  const EncoderText& encoder_;
  std::vector<std::string>& warnings_;
  ChunkWriter writer_;
};

// ---- diffusers ----

// Tokens of the text, embeddings by their names wherever they stand, in any case.
std::vector<WeightedToken> diffusers_tokens(const std::string& text, const EncoderText& encoder) {
  std::unordered_map<char, std::vector<std::pair<std::string, const Embedding*>>> names;
  for (const Embedding& e : encoder.embeddings)
    if (const std::string name = small_letters(e.first); !name.empty())
      names[name[0]].push_back({name, &e});
  for (auto& [first, all] : names)
    std::stable_sort(all.begin(), all.end(),
                     [](auto& a, auto& b) { return a.first.size() > b.first.size(); });
  const std::string small = small_letters(text);
  std::vector<WeightedToken> out;
  size_t begin = 0;
  const auto text_until = [&](size_t end) {
    for (const int32_t id : encoder.tokenizer->encode(text.substr(begin, end - begin)))
      out.push_back({id});
  };
  for (size_t at = 0; at < small.size();) {
    const auto all = names.find(small[at]);
    const Embedding* found = nullptr;
    for (size_t i = 0; all != names.end() && !found && i < all->second.size(); ++i)
      if (std::string_view(small).substr(at).starts_with(all->second[i].first))
        found = all->second[i].second;
    if (!found) {
      ++at;
      continue;
    }
    text_until(at);
    for (int64_t row = 0; row < found->second; ++row) out.push_back({0, 1, &found->first, row});
    begin = at += found->first.size();
  }
  text_until(text.size());
  return out;
}

std::vector<Chunk> diffusers_chunks(const std::string& text, const EncoderText& encoder,
                                    std::vector<std::string>& warnings) {
  const std::vector<WeightedToken> tokens = diffusers_tokens(text, encoder);
  ChunkWriter writer(encoder);
  const size_t room = chunk_room;
  for (size_t i = 0; i < std::min(tokens.size(), room); ++i) writer.add(tokens[i]);
  if (tokens.size() > room) {
    std::string lost;
    for (size_t i = room; i < tokens.size() && lost.size() < 200; ++i)
      lost += tokens[i].embedding ? *tokens[i].embedding + " "
                                  : encoder.tokenizer->vocabulary().bytes_of(tokens[i].id);
    warnings.push_back(str("prompt: ", tokens.size() - room, " tokens are cut off after ", room,
                           ": ", shown(decode_utf8(lost))));
  }
  return writer.finish();
}

// ---- all ----

void append_new(std::vector<std::string>& all, std::vector<std::string> more) {
  for (std::string& w : more)
    if (std::find(all.begin(), all.end(), w) == all.end()) all.push_back(std::move(w));
}

PartTokens a1111_part(const PromptPart& part, const EncoderText& encoder,
                      const EmbeddingIndex& index, const Steps& steps,
                      std::vector<std::string>& warnings) {
  PartTokens out{.weight = part.weight};
  size_t most = 0;
  for (const ScheduledText& text : schedule_prompt(part.text, steps)) {
    A1111Chunks chunks(encoder, index);
    std::vector<std::string> more;
    for (const WeightedText& piece : a1111_emphasis(text.text, more)) chunks.add(piece);
    append_new(warnings, std::move(more));
    out.steps.push_back({text.end_step, chunks.finish()});
    most = std::max(most, out.steps.back().chunks.size());
  }
  for (StepChunks& s : out.steps) s.chunks.resize(most, empty_chunk(encoder));
  return out;
}

}  // namespace

PromptTokens tokenize_prompt(const Prompt& prompt, const EncoderText& encoder, const Steps& steps) {
  require(encoder.tokenizer != nullptr, "prompt: needs a tokenizer");
  for (const auto& [name, count] : encoder.embeddings)
    require(count >= 1, "prompt: an embedding must have a vector (", count, ")  ", name);
  PromptTokens out;
  const EmbeddingIndex index =
      prompt.syntax == PromptSyntax::a1111 ? EmbeddingIndex(encoder) : EmbeddingIndex({});
  for (const PromptPart& part : prompt.parts) {
    if (prompt.syntax == PromptSyntax::a1111) {
      out.parts.push_back(a1111_part(part, encoder, index, steps, out.warnings));
      continue;
    }
    StepChunks whole{.end_step = steps.count};
    if (prompt.syntax == PromptSyntax::comfyui) {
      ComfyuiChunks chunks(encoder, out.warnings);
      for (const WeightedText& piece : comfyui_emphasis(part.text)) chunks.add(piece);
      whole.chunks = chunks.finish();
    } else {
      whole.chunks = diffusers_chunks(part.text, encoder, out.warnings);
    }
    out.parts.push_back({part.weight, {std::move(whole)}});
  }
  return out;
}

const std::vector<Chunk>& chunks_at(const PartTokens& part, int64_t step) {
  require(!part.steps.empty(), "prompt: has no steps");
  for (const StepChunks& s : part.steps)
    if (step <= s.end_step) return s.chunks;
  return part.steps.back().chunks;
}

}  // namespace ebb::text
