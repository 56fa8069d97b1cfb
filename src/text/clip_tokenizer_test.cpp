#include "text/clip_tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include "support/files.h"
#include "support/golden_file.h"
#include "support/hostile.h"

namespace ebb::text {
namespace {

using namespace ebb::testing;

std::string joined(const std::vector<int32_t>& ids) {
  std::ostringstream out;
  for (const int32_t id : ids) out << (out.tellp() > 0 ? " " : "") << id;
  return out.str();
}

std::string bytes_of_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

class ClipTokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
};

TEST_F(ClipTokenizerTest, texts__have_the_tokens_of_hugging_face) {
  const ClipTokenizer tokenizer(builtin_clip_vocabulary());
  const auto golden = read_golden("clip_tokenizer");
  size_t wrong = 0;
  for (const auto& one : golden["texts"]) {
    const std::string text = one[0];
    const std::string got = joined(tokenizer.encode(text)), expected = one[1];
    if (got != expected && ++wrong <= 10) ADD_FAILURE() << text << "\n" << got << "\n" << expected;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GE(golden["texts"].size(), 2000u);
}

TEST_F(ClipTokenizerTest, invalid_utf8__is_read_with_replacement) {
  const ClipTokenizer tokenizer(builtin_clip_vocabulary());
  const auto golden = read_golden("clip_tokenizer");
  for (const auto& one : golden["bytes"])
    EXPECT_EQ(joined(tokenizer.encode(bytes_of_hex(one[0]))), one[1]) << one[0];
}

TEST_F(ClipTokenizerTest, pad_is_exclamation__every_exclamation_mark_is_0) {
  const ClipTokenizer tokenizer(builtin_clip_vocabulary(), true);
  const auto golden = read_golden("clip_tokenizer");
  for (const auto& one : golden["pad_is_exclamation"])
    EXPECT_EQ(joined(tokenizer.encode(one[0].get<std::string>())), one[1]) << one[0];
}

TEST_F(ClipTokenizerTest, hostile_texts__take_linear_time) {
  const ClipTokenizer tokenizer(builtin_clip_vocabulary(), true);
  const auto begin = std::chrono::steady_clock::now();
  const size_t n = testing::hostile_size;
  std::string marks = "e", mixed;
  while (marks.size() < n) marks += "\u0301\u0316";  // in the wrong order
  while (mixed.size() < n) mixed += "<|startoftext!";
  for (const std::string& text : {std::string(n, 'a'), std::string(n, '!'), std::string(n, '('),
                                  std::string(n, '\xff'), marks, mixed})
    EXPECT_GT(tokenizer.encode(text).size(), 0u);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 60) << "a quadratic step takes hours";
}

TEST(ClipVocabulary, built_in__has_all_tokens) {
  if (!has_builtin_clip_vocabulary()) {
    expect_error([] { builtin_clip_vocabulary(); }, "scripts/setup");
    GTEST_SKIP() << "built without a vocabulary";
  }
  const auto v = builtin_clip_vocabulary();
  EXPECT_EQ(v->size(), 49408);
  EXPECT_EQ(v->start(), 49406);
  EXPECT_EQ(v->end(), 49407);
  EXPECT_EQ(v->byte_token('!', false), 0);
  EXPECT_EQ(v->byte_token(',', true), 267);
}

// A vocabulary of the bytes and a few merges, with numbers unlike the published ones.
struct SmallVocabulary {
  nlohmann::json ids;
  std::vector<std::string> merges = {"c a", "ca t</w>"};

  SmallVocabulary() {
    std::vector<std::string> all;
    for (int plain = 1; plain >= 0; --plain)
      for (int b = 0, next = 256; b < 256; ++b) {
        const bool is = (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173;
        const int c = is ? b : next++;
        if (is != (plain == 1)) continue;
        std::string s;
        if (c < 128) {
          s += static_cast<char>(c);
        } else {
          s += static_cast<char>(0xC0 | c >> 6);
          s += static_cast<char>(0x80 | (c & 63));
        }
        all.push_back(s);
      }
    int id = 1000;
    for (const std::string& s : all) {
      ids[s] = id++;
      ids[s + "</w>"] = id++;
    }
    ids["ca"] = 7;
    ids["cat</w>"] = 8;
    ids["<|startoftext|>"] = 1;
    ids["<|endoftext|>"] = 2;
  }
  std::string list() const {
    std::string text = "#version: 0.2\n";
    for (const std::string& m : merges) text += m + "\r\n";
    return text;
  }
};

TEST(ClipVocabulary, folder__its_own_numbers_win) {
  const Folder folder;
  const SmallVocabulary small;
  put_file(folder / "vocab.json", small.ids.dump());
  put_file(folder / "merges.txt", small.list());
  const ClipTokenizer tokenizer(ClipVocabulary::open(folder.path()));
  EXPECT_EQ(tokenizer.encode("Cat <|endoftext|>"), (std::vector<int32_t>{8, 2}));
}

TEST(ClipVocabulary, tokenizer_json__both_forms_of_merges_are_read) {
  const SmallVocabulary small;
  for (const bool pairs : {false, true}) {
    const Folder folder;
    nlohmann::json merges = nlohmann::json::array();
    for (const std::string& m : small.merges) {
      const size_t space = m.find(' ');
      if (pairs) {
        merges.push_back({m.substr(0, space), m.substr(space + 1)});
      } else {
        merges.push_back(m);
      }
    }
    const nlohmann::json file{
        {"version", "1.0"}, {"model", {{"type", "BPE"}, {"vocab", small.ids}, {"merges", merges}}}};
    put_file(folder / "tokenizer.json", file.dump());
    const ClipTokenizer tokenizer(ClipVocabulary::open(folder.path()));
    EXPECT_EQ(tokenizer.encode("cat"), (std::vector<int32_t>{8}));
  }
}

TEST(ClipVocabulary, broken_files__say_what_is_wrong) {
  const Folder folder;
  SmallVocabulary small;
  const auto error = [&] { return error_of([&] { ClipVocabulary::open(folder.path()); }); };
  expect_error([&] { ClipVocabulary::open(folder.path()); }, "vocab.json");
  put_file(folder / "vocab.json", small.ids.dump());
  expect_error([&] { ClipVocabulary::open(folder.path()); }, "merges.txt");
  put_file(folder / "merges.txt", "#version\nc a\nx\n");
  EXPECT_EQ(error(), "vocabulary: a merge must be two symbols, found 'x'  merge 2 of " +
                         (folder / "merges.txt"));
  put_file(folder / "merges.txt", "#version\nd o\n");
  EXPECT_EQ(error(), "vocabulary: has no token 'do'  " + folder.path());
  small.ids.erase("a</w>");
  put_file(folder / "vocab.json", small.ids.dump());
  EXPECT_EQ(error(), "vocabulary: has no token 'a</w>'  " + folder.path());
  put_file(folder / "vocab.json", "{\"a\":-1}");
  EXPECT_NE(error().find("vocabulary: a token must not be negative"), std::string::npos);
  expect_error([] { ClipVocabulary::from_merges("#version\na b\n", "list"); },
               "vocabulary: must have 48894 merges, found 1  list");
}

}  // namespace
}  // namespace ebb::text
