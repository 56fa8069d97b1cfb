#include "text/clip_vocabulary.h"

#include <zlib.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/json_cursor.h"

namespace ebb::text {

namespace {

constexpr size_t merge_count = 48894;
constexpr int64_t file_limit = int64_t{64} << 20;  // bytes
constexpr std::string_view end_of_word = "</w>";

constexpr uint8_t packed_merges[] = {
#include "ebb/gen/clip_merges.inc"
    0};
constexpr size_t packed_size = sizeof packed_merges - 1;  // without the 0, for an empty list

struct SymbolHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};
using Ids = std::unordered_map<std::string, int32_t, SymbolHash, std::equal_to<>>;

// Bytes that stand for themselves in the symbols of a vocabulary; the others are U+0100 and on.
bool is_plain(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The symbol of each byte, and the bytes in the order of their tokens.
std::pair<std::array<std::string, 256>, std::vector<int>> byte_symbols() {
  std::array<std::string, 256> symbols;
  std::vector<int> order;
  char32_t next = 256;
  for (const bool plain : {true, false})
    for (int b = 0; b < 256; ++b) {
      if (is_plain(b) != plain) continue;
      append_utf8(symbols[static_cast<size_t>(b)], plain ? static_cast<char32_t>(b) : next++);
      order.push_back(b);
    }
  return {std::move(symbols), std::move(order)};
}

// The published order of all tokens but those of merges.
Ids first_ids() {
  const auto [symbols, order] = byte_symbols();
  Ids ids;
  for (const std::string_view end : {std::string_view(), end_of_word})
    for (const int b : order)
      ids.emplace(symbols[static_cast<size_t>(b)] + std::string(end),
                  static_cast<int32_t>(ids.size()));
  return ids;
}

// Two symbols of a text that outlives them.
struct Pair {
  std::string_view left, right;
};

// The symbol of both, valid until the next call.
const std::string& merged(const Pair& p, std::string& buffer) {
  buffer.assign(p.left);
  return buffer.append(p.right);
}

Pair parse_pair(std::string_view line, size_t number, const std::string& name) {
  const size_t space = line.find(' ');
  const bool ok = space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                  line.find(' ', space + 1) == std::string_view::npos;
  // the text of an error is made only if there is one: these are 48894 lines
  if (!ok)
    fail("vocabulary: a merge must be two symbols, found ", io::shown(line), "  merge ", number,
         " of ", name);
  return {line.substr(0, space), line.substr(space + 1)};
}

// The lines after the heading, at most `limit`; an empty line ends them.
std::vector<Pair> parse_merges(std::string_view text, size_t limit, const std::string& name) {
  std::vector<Pair> out;
  for (size_t line = 1; !text.empty() && out.size() < limit; ++line) {
    const size_t end = text.find('\n');
    std::string_view one = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!one.empty() && one.back() == '\r') one.remove_suffix(1);
    if (line == 1) continue;
    if (one.empty()) break;
    out.push_back(parse_pair(one, line - 1, name));
  }
  return out;
}

Ids read_ids(io::JsonCursor& json) {
  Ids ids;
  json.object("the vocabulary", [&](const std::string& symbol) {
    const int64_t id = json.integer("a token");
    if (id >= int64_t{1} << 24) json.failed("a token must be below 2^24");
    ids.emplace(symbol, static_cast<int32_t>(id));
  });
  return ids;
}

std::string inflated(std::span<const uint8_t> bytes) {
  std::string out(size_t{1} << 20, '\0');
  z_stream z{};
  require(inflateInit2(&z, 16 + MAX_WBITS) == Z_OK, "vocabulary: zlib does not start");
  z.next_in = const_cast<Bytef*>(bytes.data());
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const int status = inflate(&z, Z_FINISH);
  out.resize(out.size() - z.avail_out);
  inflateEnd(&z);
  require(status == Z_STREAM_END, "vocabulary: the built-in list of merges is broken (zlib ",
          status, ")");
  return out;
}

}  // namespace

// Fills a vocabulary from symbols and pairs of symbols.
class VocabularyBuilder {
 public:
  static std::shared_ptr<const ClipVocabulary> build(const Ids& ids, const std::vector<Pair>& pairs,
                                                     const std::string& name) {
    auto out = std::make_shared<ClipVocabulary>();
    const auto id = [&](std::string_view symbol) {
      const auto at = ids.find(symbol);
      if (at == ids.end()) fail("vocabulary: has no token ", io::shown(symbol), "  ", name);
      return at->second;
    };
    for (const auto& [symbol, token] : ids) out->size_ = std::max(out->size_, token + 1);
    out->parts_.resize(static_cast<size_t>(out->size_));
    const auto parts = [&](int32_t token) -> auto& {
      return out->parts_[static_cast<size_t>(token)];
    };
    const auto symbols = byte_symbols().first;
    for (size_t b = 0; b < 256; ++b)
      for (const int ends : {0, 1}) {
        const int32_t token = id(symbols[b] + std::string(ends ? end_of_word : ""));
        out->bytes_[static_cast<size_t>(ends)][b] = token;
        parts(token) = {static_cast<int32_t>(b), ends, true};
      }
    out->start_ = id("<|startoftext|>");
    out->end_ = id("<|endoftext|>");
    out->merges_.reserve(pairs.size());
    int32_t rank = 0;
    std::string buffer;
    for (const Pair& p : pairs) {
      const int32_t a = id(p.left), b = id(p.right), both = id(merged(p, buffer));
      out->merges_.emplace_back(ClipVocabulary::pair(a, b), ClipVocabulary::Merge{rank++, both});
      if (!parts(both).is_byte) parts(both) = {a, b};
    }
    // of a pair that a file has twice the first counts
    std::ranges::stable_sort(out->merges_, {}, &ClipVocabulary::PairMerge::first);
    return out;
  }
};

std::map<std::string, std::string> ClipVocabulary::hugging_face_files(
    const std::string& pad) const {
  const auto symbols = byte_symbols().first;
  std::vector<std::string> names(static_cast<size_t>(size_));
  for (const int ends : {0, 1})
    for (size_t b = 0; b < 256; ++b)
      names[static_cast<size_t>(bytes_[static_cast<size_t>(ends)][b])] =
          symbols[b] + std::string(ends ? end_of_word : "");
  names[static_cast<size_t>(start_)] = "<|startoftext|>";
  names[static_cast<size_t>(end_)] = "<|endoftext|>";
  std::vector<std::pair<int32_t, int32_t>> by_rank(merges_.size());
  for (const auto& [both, merge] : merges_)
    by_rank[static_cast<size_t>(merge.rank)] = {static_cast<int32_t>(both >> 32),
                                                static_cast<int32_t>(both & 0xffffffff)};
  std::string merges = "#version: 0.2\n", vocabulary = "{";
  for (const auto& [left, right] : by_rank) {
    const std::string &a = names[static_cast<size_t>(left)], &b = names[static_cast<size_t>(right)];
    names[static_cast<size_t>(merge(left, right)->token)] = a + b;
    merges += a + " " + b + "\n";
  }
  for (size_t i = 0; i < names.size(); ++i)
    vocabulary += str(i > 0 ? "," : "", io::json_string(names[i]), ":", i);
  const std::string quoted = io::json_string(pad);
  return {{"merges.txt", std::move(merges)},
          {"vocab.json", vocabulary + "}\n"},
          {"tokenizer_config.json",
           "{\"tokenizer_class\":\"CLIPTokenizer\",\"bos_token\":\"<|startoftext|>\",\"eos_token\":"
           "\"<|endoftext|>\",\"unk_token\":\"<|endoftext|>\",\"pad_token\":" +
               quoted +
               ",\"model_max_length\":77,\"do_lower_case\":true,\"add_prefix_space\":false}\n"},
          {"special_tokens_map.json",
           "{\"bos_token\":\"<|startoftext|>\",\"eos_token\":\"<|endoftext|>\",\"unk_token\":"
           "\"<|endoftext|>\",\"pad_token\":" +
               quoted + "}\n"}};
}

std::shared_ptr<const ClipVocabulary> ClipVocabulary::from_merges(std::string_view merges,
                                                                  const std::string& name) {
  const std::vector<Pair> pairs = parse_merges(merges, merge_count, name);
  require(pairs.size() == merge_count, "vocabulary: must have ", merge_count, " merges, found ",
          pairs.size(), "  ", name);
  Ids ids = first_ids();
  ids.reserve(merge_count + 1024);
  const auto next = [&](const std::string& symbol) {
    if (!ids.emplace(symbol, static_cast<int32_t>(ids.size())).second)
      fail("vocabulary: has a token twice: ", io::shown(symbol), "  ", name);
  };
  std::string buffer;
  for (const Pair& p : pairs) next(merged(p, buffer));
  next("<|startoftext|>");
  next("<|endoftext|>");
  return VocabularyBuilder::build(ids, pairs, name);
}

namespace {

std::shared_ptr<const ClipVocabulary> open_tokenizer_json(const std::string& path) {
  const std::string text = io::read_whole_file(path, "vocabulary", file_limit);
  Ids ids;
  std::deque<std::string> symbols;  // of the pairs
  std::vector<Pair> pairs;
  io::JsonCursor json(text, "vocabulary", path);
  const auto merge = [&](int64_t) {
    if (!json.at_array()) {
      symbols.push_back(json.string("a merge"));
      return pairs.push_back(parse_pair(symbols.back(), pairs.size() + 1, path));
    }
    const size_t before = symbols.size();
    json.array("a merge", [&](int64_t) { symbols.push_back(json.string("a symbol")); });
    if (symbols.size() != before + 2) json.failed("a merge must be two symbols");
    pairs.push_back({symbols[before], symbols[before + 1]});
  };
  json.object("the tokenizer", [&](const std::string& part) {
    if (part != "model") return json.skip(16);
    json.object("the model", [&](const std::string& key) {
      if (key == "vocab") {
        ids = read_ids(json);
      } else if (key == "merges") {
        json.array("merges", merge);
      } else {
        json.skip();
      }
    });
  });
  return VocabularyBuilder::build(ids, pairs, path);
}

}  // namespace

std::shared_ptr<const ClipVocabulary> ClipVocabulary::open(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path vocabulary = fs::path(folder) / "vocab.json",
                 merges = fs::path(folder) / "merges.txt",
                 whole = fs::path(folder) / "tokenizer.json";
  if (!fs::exists(vocabulary) && fs::exists(whole)) return open_tokenizer_json(whole.string());
  const std::string text = io::read_whole_file(vocabulary.string(), "vocabulary", file_limit);
  io::JsonCursor json(text, "vocabulary", vocabulary.string());
  const Ids ids = read_ids(json);
  const std::string list = io::read_whole_file(merges.string(), "vocabulary", file_limit);
  return VocabularyBuilder::build(ids, parse_merges(list, size_t{1} << 20, merges.string()),
                                  folder);
}

std::string ClipVocabulary::bytes_of(int32_t token) const {
  std::string out;
  std::vector<int32_t> rest = {token};
  // Each has more bytes than its parts, but a file may say otherwise.
  while (!rest.empty() && out.size() < 256 && rest.size() < 256) {
    const int32_t one = rest.back();
    rest.pop_back();
    if (one < 0 || one >= size_) continue;
    const Parts& p = parts_[static_cast<size_t>(one)];
    if (p.is_byte) {
      out += static_cast<char>(p.left);
      if (p.right == 1) out += ' ';
    } else {
      rest.insert(rest.end(), {p.right, p.left});
    }
  }
  return out;
}

bool has_builtin_clip_vocabulary() { return packed_size > 0; }

std::shared_ptr<const ClipVocabulary> builtin_clip_vocabulary() {
  require(has_builtin_clip_vocabulary(),
          "vocabulary: this program was built without CLIP's; run scripts/setup and build again, or"
          " give a checkpoint folder that has tokenizer/vocab.json and tokenizer/merges.txt");
  return ClipVocabulary::from_merges(inflated({packed_merges, packed_size}), "(built in)");
}

}  // namespace ebb::text
