#include "train/captioned.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "io/image.h"
#include "support/files.h"
#include "support/tar.h"
#include "train/picture_index.h"

namespace ebb::train {
namespace {

using namespace ebb::testing;

std::string png(int64_t height, int64_t width) {
  const auto bytes = io::encode_png(Tensor(DType::u8, {height, width, 3}));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

using Texts = std::vector<std::string>;

std::string fault(const std::string& data, const CaptionedOptions& options = {}) {
  try {
    open_captioned(data, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(open_captioned, folder__has_captions_beside_pictures_and_in_metadata) {
  const Folder folder;
  put_file(folder / "b.png", png(10, 20));
  put_file(folder / "b.txt", "  a red\n apple \n");
  std::filesystem::create_directory(folder / "deeper");
  put_file(folder / "deeper/a.png", png(5, 7));
  put_file(folder / "deeper/metadata.jsonl",
           "{\"file_name\": \"a.png\", \"text\": \"a pear\"}\n\n");
  const Captioned c = open_captioned(folder.path() + ":3");
  ASSERT_EQ(c.pictures.size(), 2u);
  EXPECT_EQ(c.pictures[0].captions, Texts{"a red apple"});
  EXPECT_EQ(c.pictures[0].width, 20);
  EXPECT_EQ(c.pictures[0].height, 10);
  EXPECT_EQ(c.pictures[1].captions, Texts{"a pear"});
  EXPECT_EQ(c.pictures[1].repeats, 3);
  EXPECT_TRUE(c.warnings.empty());
  for (const std::string& data : {folder.path(), folder.path() + "/", folder.path() + "/."})
    EXPECT_EQ(open_captioned(data).pictures[1].key, "deeper/a") << data;
}

TEST(open_captioned, lists_of_texts__are_several_captions) {
  const Folder folder;
  put_file(folder / "a.png", png(4, 4));
  put_file(folder / "metadata.jsonl",
           R"({"file_name": "a.png", "text": ["a pear", " pear,\n fruit"]})");
  EXPECT_EQ(open_captioned(folder.path()).pictures[0].captions, (Texts{"a pear", "pear, fruit"}));
  for (const char* wrong : {"[]", "[\"a\", 1]", "{}"}) {
    put_file(folder / "metadata.jsonl", str(R"({"file_name": "a.png", "text": )", wrong, "}"));
    EXPECT_NE(fault(folder.path()).find("a text, or a list of texts"), std::string::npos) << wrong;
  }
  put_file(folder / "0.tar", tar_of({{"1.json", R"({"text": ["x", "y"]})"}, {"1.png", png(4, 4)}}));
  EXPECT_EQ(open_captioned(folder / "0.tar").pictures[0].captions, (Texts{"x", "y"}));
}

TEST(open_captioned, pictures_that_did_not_change__are_not_decoded_again) {
  const Folder folder;
  const std::string file = folder / "pictures/a.png", whole = png(10, 20);
  std::filesystem::create_directory(folder / "pictures");
  put_file(file, whole);
  put_file(folder / "pictures/a.txt", "a pear");
  int64_t decoded = 0;
  const CaptionedOptions options{.progress = [&](int64_t done, int64_t) { decoded = done; },
                                 .index = folder / "cache/pictures.jsonl"};
  const auto open = [&] {
    decoded = 0;
    return open_captioned(folder / "pictures", options).pictures.at(0);
  };
  const CaptionedPicture first = open();
  EXPECT_EQ(decoded, 1);
  const CaptionedPicture again = open();
  EXPECT_EQ(decoded, 0);
  EXPECT_EQ(again.width, 20);
  EXPECT_EQ(again.height, 10);
  EXPECT_EQ(again.hash, first.hash);
  EXPECT_EQ(again.bytes, first.bytes);
  put_file(file, png(6, 4));
  EXPECT_EQ(open().width, 4);
  EXPECT_EQ(decoded, 1);
  put_file(folder / "cache/pictures.jsonl", "{\"version\": 1}\nnonsense\n");
  EXPECT_EQ(open().width, 4);
  EXPECT_EQ(decoded, 1);
}

TEST(open_captioned, index_that_cannot_be_written__is_a_warning_and_replaces_no_error) {
  const Folder folder;
  put_file(folder / "a.png", png(10, 20));
  put_file(folder / "a.txt", "a pear");
  CaptionedOptions options{.index = "/proc/x/pictures.jsonl"};
  const Captioned c = open_captioned(folder.path(), options);
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_NE(c.warnings[0].find("what is known of pictures is not kept: cache_dir: "),
            std::string::npos)
      << c.warnings[0];
  options.progress = [](int64_t, int64_t) { throw std::runtime_error("stopped"); };
  EXPECT_THROW(open_captioned(folder.path(), options), std::runtime_error);
}

TEST(picture_index, file_that_changes_while_it_is_decoded__is_not_known) {
  const Folder folder;
  CaptionedPicture p{.file = folder / "a.png", .height = 10, .width = 20};
  put_file(p.file, png(10, 20));
  PictureIndex index(folder / "pictures.jsonl");
  const auto before = PictureIndex::look(p.file);
  put_file(p.file, png(64, 64));
  index.add(p, before);
  EXPECT_FALSE(index.find(p));
  index.add(p, PictureIndex::look(p.file));
  EXPECT_TRUE(index.find(p));
}

TEST(open_captioned, shards__have_captions_in_txt_or_json) {
  const Folder folder;
  put_file(folder / "0.tar", tar_of({{"x/1.png", png(4, 4)},
                                     {"x/1.txt", "one"},
                                     {"x/2.json", "{\"caption\": \"two\", \"n\": [1]}"},
                                     {"x/2.png", png(6, 4)},
                                     {"x/3.txt", "nothing"}}));
  for (const std::string& data : {folder / "0.tar", folder.path()}) {
    const Captioned c = open_captioned(data);
    ASSERT_EQ(c.pictures.size(), 2u);
    EXPECT_EQ(c.pictures[0].captions, Texts{"one"});
    EXPECT_EQ(c.pictures[1].captions, Texts{"two"});
    EXPECT_EQ(c.pictures[1].key, "x/2");
    EXPECT_EQ(decode(c.pictures[1]).shape(), (Shape{6, 4, 3}));
    ASSERT_EQ(c.warnings.size(), 1u);
    EXPECT_NE(c.warnings[0].find("samples without a picture left out (1)  "), std::string::npos);
  }
}

TEST(open_captioned, shards__have_the_picture_that_is_named_as_the_sample) {
  const Folder folder;
  const std::string shard = folder / "0.tar";
  put_file(shard, tar_of({{"1.canny.png", png(9, 9)}, {"1.png", png(4, 4)}, {"1.txt", "one"}}));
  EXPECT_EQ(open_captioned(shard).pictures[0].height, 4);
  put_file(shard, tar_of({{"1.jpg", png(9, 9)}, {"1.png", png(4, 4)}, {"1.txt", "one"}}));
  EXPECT_NE(fault(shard).find("several pictures ('1')"), std::string::npos);
  put_file(folder / "a.png", png(4, 4));
  EXPECT_NE(fault(folder.path()).find("has shards, and pictures besides ('a.png')"),
            std::string::npos);
}

TEST(open_captioned, captions__belong_to_pictures_of_the_folder) {
  const Folder folder;
  put_file(folder / "A.PNG", png(4, 4));
  put_file(folder / "A.txt", "");
  std::filesystem::create_symlink("nowhere", folder / "gone.png");
  const Captioned c = open_captioned(folder.path());
  ASSERT_EQ(c.warnings.size(), 2u);
  EXPECT_NE(c.warnings[0].find("gone.png"), std::string::npos);
  EXPECT_NE(c.warnings[1].find("empty caption"), std::string::npos);
  for (const char* name : {"../A.PNG", "", ".", "a.bmp"}) {
    put_file(folder / "metadata.jsonl", str(R"({"file_name": ")", name, R"(", "text": "b"})"));
    EXPECT_NE(fault(folder.path()).find("names no PNG"), std::string::npos) << name;
  }
  EXPECT_NE(fault(folder.path() + ";" + folder.path() + "/.").find("named twice"),
            std::string::npos);
}

TEST(open_captioned, missing_captions__are_one_error_or_the_prefix) {
  const Folder folder;
  put_file(folder / "a.png", png(4, 4));
  EXPECT_NE(fault(folder.path()).find("pictures have no caption (1): "), std::string::npos);
  EXPECT_EQ(open_captioned(folder.path(), {.needs_captions = false}).warnings.size(), 1u);
}

TEST(open_captioned, broken_pictures__are_left_out_with_their_names) {
  const Folder folder;
  put_file(folder / "a.png", png(4, 4));
  put_file(folder / "b.png", "no picture");
  const CaptionedOptions o{.needs_captions = false};
  const Captioned c = open_captioned(folder.path(), o);
  EXPECT_EQ(c.pictures.size(), 1u);
  EXPECT_NE(c.warnings.back().find("b.png"), std::string::npos);
  expect_error([&] { open_captioned(folder.path(), {.needs_captions = false, .needs_all = true}); },
               "data: pictures cannot be read (1): ");
}

TEST(open_captioned, data_that_cannot_be__names_the_file_and_rule) {
  const Folder folder;
  EXPECT_NE(fault(folder / "none").find("no such file or folder"), std::string::npos);
  EXPECT_NE(fault(folder / "none:0").find("repeats must be"), std::string::npos);
  EXPECT_NE(fault(folder.path()).find("found no PNG"), std::string::npos);
  put_file(folder / "a.png", png(4, 4));
  put_file(folder / "a.txt", "\xff");
  EXPECT_NE(fault(folder.path()).find("no UTF-8"), std::string::npos);
  put_file(folder / "a.txt", "a");
  put_file(folder / "metadata.jsonl", "{\"file_name\": \"a.png\", \"text\": \"b\"}");
  EXPECT_NE(fault(folder.path()).find("and in"), std::string::npos);
  put_file(folder / "metadata.jsonl", "{\"file_name\": \"z.png\", \"text\": \"b\"}");
  EXPECT_NE(fault(folder.path()).find("metadata.jsonl:1"), std::string::npos);
  EXPECT_NE(fault(folder.path() + ";" + folder.path()).find("named twice"), std::string::npos);
}

}  // namespace
}  // namespace ebb::train
