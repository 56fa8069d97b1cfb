#include "pipeline/tensor_cache.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/files.h"

namespace ebb {
namespace {

using namespace ebb::testing;

NamedTensors stored_numbers() { return {{"a", tensor_of(std::vector<float>{1, 2, 3}, {3})}}; }

struct Counted {
  Folder folder;
  std::vector<std::string> said;
  TensorCache cache{TensorCache::Options{
      .folder = folder / "cache", .say = [this](std::string_view s) { said.emplace_back(s); }}};

  float first(const std::string& text) {
    return cache.get(text, stored_numbers).at("a").span<float>()[0];
  }
};

TEST(tensor_cache, a_text_again__is_read) {
  Counted c;
  EXPECT_EQ(c.first("one"), 1);
  EXPECT_EQ(c.first("one"), 1);
  EXPECT_EQ(c.cache.made(), 1);
  c.first("two");
  EXPECT_EQ(c.cache.made(), 2);
  EXPECT_TRUE(c.said.empty());
}

TEST(tensor_cache, memory__holds_what_there_is_room_for) {
  const Folder folder;
  TensorCache cache({.folder = folder / "cache", .memory = 40});  // two of 12 bytes and their names
  const auto file = [&](const char* text) { return cache.file_of(text); };
  for (const char* text : {"one", "two"}) cache.get(text, stored_numbers);
  EXPECT_TRUE(cache.holds_all());
  std::filesystem::remove(file("one"));
  EXPECT_EQ(cache.get("one", stored_numbers).at("a").span<float>()[2], 3);
  EXPECT_FALSE(std::filesystem::exists(file("one")));
  cache.get("three", stored_numbers);
  EXPECT_FALSE(cache.holds_all());
  std::filesystem::remove(file("three"));
  cache.get("three", stored_numbers);
  EXPECT_TRUE(std::filesystem::exists(file("three")));
  EXPECT_EQ(cache.made(), 4);
}

TEST(tensor_cache, texts__count_as_memory) {
  const Folder folder;
  TensorCache cache({.folder = folder / "cache"});
  cache.set_memory(100);
  cache.get("short", stored_numbers);
  EXPECT_TRUE(cache.holds_all());
  cache.get(std::string(100, 'x'), stored_numbers);
  EXPECT_FALSE(cache.holds_all());
}

TEST(tensor_cache, damaged_files__are_made_again_with_a_word) {
  Counted c;
  c.first("one");
  const std::string file = c.cache.file_of("one");
  std::string bytes = file_bytes(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put_file(file, bytes);
  EXPECT_EQ(c.first("one"), 1);
  put_file(file, bytes.substr(0, bytes.size() - 5));
  EXPECT_EQ(c.first("one"), 1);
  c.first("one");
  EXPECT_EQ(c.cache.made(), 3);
  ASSERT_EQ(c.said.size(), 2u);
  EXPECT_NE(c.said[0].find("is damaged and is made again"), std::string::npos);
  EXPECT_NE(c.said[1].find(file), std::string::npos);
}

TEST(tensor_cache, a_file_of_another_text__is_made_again) {
  Counted c;
  c.first("one");
  std::filesystem::copy_file(c.cache.file_of("one"), c.cache.file_of("two"));
  c.first("two");
  ASSERT_EQ(c.said.size(), 1u);
  EXPECT_NE(c.said[0].find("of other settings"), std::string::npos);
}

TEST(tensor_cache, weights_of_other_numbers_or_names__have_other_hashes) {
  const auto hash = [](const char* name, float v) {
    WeightStore::Weights w;
    w.emplace(name, stored_tensor(tensor_of(std::vector<float>{v, 2}, {2})));
    return hash_text(WeightStore(std::move(w)));
  };
  EXPECT_EQ(hash("a", 1), hash("a", 1));
  EXPECT_NE(hash("a", 1), hash("a", 3));
  EXPECT_NE(hash("a", 1), hash("b", 1));
}

}  // namespace
}  // namespace ebb
