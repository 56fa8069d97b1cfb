#include "train/dataset.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include "io/image.h"
#include "io/safetensors.h"
#include "support/files.h"

namespace ebb::train {
namespace {

using namespace ebb::testing;

Tensor constant(uint8_t value, Shape shape) {
  Tensor t(DType::u8, std::move(shape));
  for (uint8_t& v : t.span<uint8_t>()) v = value;
  return t;
}

void put_image(const std::string& path, uint8_t value, Shape shape = {4, 4, 3}) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  io::write_png(path, constant(value, std::move(shape)));
}

struct Sample {
  int64_t label = 0;
  std::vector<uint8_t> pixels;
};
Sample sample(const Dataset& d, int64_t index) {
  Sample s;
  s.pixels.resize(static_cast<size_t>(d.image_shape().numel()));
  s.label = d.get(index, s.pixels.data());
  return s;
}

// The first sample of each image, in order.
std::vector<int> values(const Dataset& d) {
  std::vector<int> out;
  for (int64_t i = 0; i < d.size(); ++i) out.push_back(sample(d, i).pixels[0]);
  return out;
}
std::vector<int> labels(const Dataset& d) {
  std::vector<int> out;
  for (int64_t i = 0; i < d.size(); ++i) out.push_back(static_cast<int>(sample(d, i).label));
  return out;
}

// ---- image folders ----

TEST(image_folder, class_folders__are_sorted_classes) {
  const Folder f;
  put_image(f / "dog/1.png", 10);
  put_image(f / "cat/b.png", 20);
  put_image(f / "cat/a.PNG", 30);
  put_image(f / "cat/deep/er/c.png", 40);
  put_image(f / "ant/no-extension", 50);
  put_file(f / "ant/.hidden.png", "not an image");
  put_file(f / ".cache/x.png", "not an image");
  const auto d = open_dataset(f.path());
  EXPECT_EQ(d->size(), 5);
  EXPECT_EQ(d->image_shape(), (Shape{4, 4, 3}));
  EXPECT_EQ(d->class_names(), (std::vector<std::string>{"ant", "cat", "dog"}));
  EXPECT_EQ(values(*d), (std::vector<int>{50, 30, 20, 40, 10}));
  EXPECT_EQ(labels(*d), (std::vector<int>{0, 1, 1, 1, 2}));
  EXPECT_TRUE(d->warnings().empty());
  EXPECT_EQ(open_dataset(f.path(), {.classes = "none"})->classes(), 0);
}

TEST(image_folder, images_directly_in_it__have_no_classes) {
  const Folder f;
  put_image(f / "b.png", 2);
  put_image(f / "a.png", 1);
  const auto d = open_dataset(f.path());
  EXPECT_EQ(d->classes(), 0);
  EXPECT_EQ(values(*d), (std::vector<int>{1, 2}));
  EXPECT_EQ(labels(*d), (std::vector<int>{0, 0}));
}

TEST(image_folder, loose_images_beside_classes__are_an_error) {
  const Folder f;
  put_image(f / "a/1.png", 1);
  put_image(f / "2.png", 2);
  expect_error([&] { open_dataset(f.path()); }, "all in class folders or all directly");
  EXPECT_EQ(open_dataset(f.path(), {.classes = "none"})->size(), 2);
}

TEST(image_folder, broken_files__are_left_out_and_named) {
  const Folder f;
  for (const int i : {1, 3, 5}) put_image(f / str(i, ".png"), static_cast<uint8_t>(i));
  const std::string good = file_bytes(f / "1.png");
  for (const int i : {0, 2, 4, 6, 7, 8, 9}) put_file(f / str(i, ".png"), good.substr(0, 40));
  put_file(f / "notes.txt", "x");
  std::filesystem::create_symlink(f / "away.png", f / "link.png");
  const auto d = open_dataset(f.path());
  EXPECT_EQ(values(*d), (std::vector<int>{1, 3, 5}));
  ASSERT_EQ(d->warnings().size(), 3u);
  EXPECT_NE(d->warnings()[0].find("files left out that are not PNG, JPEG or WebP (1): notes.txt"),
            std::string::npos)
      << d->warnings()[0];
  EXPECT_EQ(d->warnings()[1], "links to nowhere left out (1): link.png");
  const std::string& w = d->warnings()[2];
  EXPECT_TRUE(w.starts_with("images that cannot be read left out (7): image: broken PNG")) << w;
  EXPECT_NE(w.find("0.png"), std::string::npos) << w;
  EXPECT_TRUE(w.ends_with(", ...")) << w;
  // Without the check they are errors when they are read.
  const auto unchecked = open_dataset(f.path(), {.check = false});
  EXPECT_EQ(unchecked->size(), 10);
  expect_error([&] { sample(*unchecked, 0); }, "broken PNG");
}

TEST(image_folder, folder_that_cannot_be_listed__is_named) {
  const Folder f;
  put_image(f / "a/1.png", 1);
  std::filesystem::create_directory(f / "b");
  std::filesystem::permissions(f / "b", std::filesystem::perms::none);
  std::filesystem::permissions(f.path(), std::filesystem::perms::all);
  const uid_t user = ::geteuid();
  constexpr uid_t nobody = 65534;  // the superuser may list all folders
  ASSERT_TRUE(user != 0 || ::seteuid(nobody) == 0);
  const std::string error = testing::error_of([&] { open_dataset(f.path()); });
  ASSERT_TRUE(user != 0 || ::seteuid(user) == 0);
  EXPECT_EQ(error, str("dataset: cannot list (Permission denied)  ", f / "b"));
}

TEST(image_folder, nothing_to_read__is_an_error) {
  const Folder f;
  expect_error([&] { open_dataset(f.path()); },
               "found no PNG, JPEG or WebP images (0 other files)");
  put_file(f / "a.txt", "x");
  expect_error([&] { open_dataset(f.path()); }, "(1 other files)");
  put_file(f / "a.png", "x");
  expect_error([&] { open_dataset(f.path()); },
               "dataset: no image can be read; files (1): image: ");
}

TEST(image_folder, sizes_that_differ__need_size) {
  const Folder f;
  put_image(f / "a.png", 1, {4, 4, 3});
  put_image(f / "b.png", 2, {4, 6, 3});
  expect_error([&] { open_dataset(f.path()); },
               "must have one size (6x4 here, 4x4 before); --size");
  const auto d = open_dataset(f.path(), {.size = 2});
  EXPECT_EQ(d->image_shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(values(*d), (std::vector<int>{1, 2}));
}

TEST(image_folder, grey_among_colour__becomes_colour) {
  const Folder f;
  put_image(f / "a.png", 7, {4, 4, 1});
  put_image(f / "b.png", 9, {4, 4, 3});
  EXPECT_EQ(open_dataset(f.path())->image_shape(), (Shape{4, 4, 3}));
  EXPECT_EQ(sample(*open_dataset(f.path()), 0).pixels, std::vector<uint8_t>(48, 7));
  EXPECT_EQ(open_dataset(f.path(), {.channels = 1})->image_shape(), (Shape{4, 4, 1}));
}

TEST(image_folder, limit__spreads_over_the_classes) {
  const Folder f;
  for (const int i : {0, 1, 2, 3, 4, 5, 6, 7})
    put_image(f / str(i / 4, "/", i, ".png"), static_cast<uint8_t>(i));
  const auto d = open_dataset(f.path(), {.limit = 4});
  EXPECT_EQ(values(*d), (std::vector<int>{0, 2, 4, 6}));
  EXPECT_EQ(d->classes(), 2);
}

TEST(image_folder, cache__does_not_change_what_is_read) {
  const Folder f;
  for (int i = 0; i < 5; ++i) put_image(f / str(i, ".png"), static_cast<uint8_t>(i), {400, 400, 3});
  const auto cached = open_dataset(f.path());
  const auto some = open_dataset(f.path(), {.cache = 1});  // two images of 480 000 bytes
  const auto none = open_dataset(f.path(), {.cache = 0});
  for (int i = 0; i < 5; ++i) std::filesystem::remove(f / str(i, ".png"));
  EXPECT_EQ(values(*cached), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(sample(*some, 1).pixels[0], 1);
  expect_error([&] { sample(*some, 2); }, "cannot open");
  expect_error([&] { sample(*none, 0); }, "cannot open");
  expect_error([&] { sample(*cached, 5); }, "index out of range (5 of 5)");
  expect_error([&] { sample(*cached, -1); }, "index out of range");
}

// ---- IDX ----

std::string idx(std::initializer_list<int> sizes, const std::string& data) {
  std::string s{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const int n : sizes) s += {'\0', '\0', '\0', static_cast<char>(n)};
  return s + data;
}

void put_gzipped(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

TEST(idx_dataset, folder_and_file__find_the_labels) {
  const Folder f;
  put_file(f / "train-images-idx3-ubyte", idx({3, 1, 2}, "aAbBcC"));
  put_gzipped(f / "train-labels-idx1-ubyte.gz", idx({3}, std::string("\2\0\1", 3)));
  put_gzipped(f / "t10k-images-idx3-ubyte.gz", idx({1, 1, 2}, "tT"));
  put_file(f / "t10k-labels-idx1-ubyte", idx({1}, "\1"));
  for (const std::string& path : {f.path(), f / "train-images-idx3-ubyte"}) {
    const auto d = open_dataset(path);
    EXPECT_EQ(d->image_shape(), (Shape{1, 2, 1}));
    EXPECT_EQ(values(*d), (std::vector<int>{'a', 'b', 'c'}));
    EXPECT_EQ(labels(*d), (std::vector<int>{2, 0, 1}));
    EXPECT_EQ(d->class_names(), (std::vector<std::string>{"0", "1", "2"}));
  }
  EXPECT_EQ(values(*open_dataset(f.path(), {.split = "test"})), (std::vector<int>{'t'}));
  EXPECT_EQ(open_dataset(f.path(), {.classes = "none"})->classes(), 0);
  EXPECT_EQ(open_dataset(f.path(), {.channels = 3})->image_shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(open_dataset(f.path(), {.size = 4})->image_shape(), (Shape{4, 4, 1}));
}

TEST(idx_dataset, labels_that_do_not_fit__are_an_error) {
  const Folder f;
  put_file(f / "x-images.idx3-ubyte", idx({2, 1, 1}, "ab"));
  EXPECT_EQ(open_dataset(f / "x-images.idx3-ubyte")->classes(), 0);
  put_file(f / "x-labels.idx1-ubyte", idx({3}, "\1\1\1"));
  expect_error([&] { open_dataset(f / "x-images.idx3-ubyte"); }, "(3 labels, 2 images)");
  put_file(f / "t10k-images-idx3-ubyte", idx({2, 1, 1}, "ab"));
  expect_error([&] { open_dataset(f.path()); }, "no IDX images of the split 'train'");
}

// ---- safetensors ----

TEST(safetensors_dataset, u8_and_f32__are_read) {
  const Folder f;
  const Tensor labels_i32 = tensor_of(std::vector<int32_t>{1, 0}, {2});
  io::write_safetensors(
      f / "u8.safetensors",
      std::vector<io::NamedTensor>{
          {"images", tensor_of(std::vector<uint8_t>{0, 255, 51, 102}, {2, 1, 2, 1})},
          {"labels", labels_i32}});
  const auto d = open_dataset(f / "u8.safetensors");
  EXPECT_EQ(values(*d), (std::vector<int>{0, 51}));
  EXPECT_EQ(labels(*d), (std::vector<int>{1, 0}));
  float pixels[2];
  EXPECT_EQ(d->get_f32(0, pixels), 1);
  EXPECT_EQ(pixels[0], -1.0f);
  EXPECT_EQ(pixels[1], 1.0f);

  io::write_safetensors(f / "f32.safetensors",
                        std::vector<io::NamedTensor>{
                            {"images", tensor_of(std::vector<float>{-1.5f, 0.25f}, {1, 1, 1, 2})}});
  const auto latents = open_dataset(f / "f32.safetensors");
  EXPECT_EQ(latents->classes(), 0);
  latents->get_f32(0, pixels);
  EXPECT_EQ(pixels[0], -1.5f);
  EXPECT_EQ(pixels[1], 0.25f);
  EXPECT_EQ(sample(*latents, 0).pixels, (std::vector<uint8_t>{0, 159}));
  expect_error([&] { open_dataset(f / "f32.safetensors", {.size = 8}); }, "only u8 images can be");
}

TEST(safetensors_dataset, wrong_contents__are_errors) {
  const Folder f;
  const std::string path = f / "a.safetensors";
  const auto with = [&](const Tensor& images, const Tensor& labels) {
    io::write_safetensors(path,
                          std::vector<io::NamedTensor>{{"images", images}, {"labels", labels}});
    open_dataset(path);
  };
  const Tensor images(DType::u8, {2, 1, 1, 1});
  expect_error([&] { with(Tensor(DType::u8, {2, 1, 1}), Tensor(DType::i64, {2})); }, "[N,H,W,C]");
  expect_error(
      [&] {
        with(Tensor(DType::f16, {2, 1, 1, 1}), Tensor(DType::i64, {2}));
      },
      "[N,H,W,C]");
  expect_error(
      [&] {
        with(Tensor(DType::u8, {0, 1, 1, 1}), Tensor(DType::i64, {0}));
      },
      "no images");
  expect_error([&] { with(images, Tensor(DType::f32, {2})); }, "must be i64, i32 or u8 [N]");
  expect_error([&] { with(images, Tensor(DType::i64, {3})); }, "(3 labels, 2 images)");
  expect_error([&] { with(images, tensor_of(std::vector<int64_t>{0, -1}, {2})); }, "(-1)");
  io::write_safetensors(path, std::vector<io::NamedTensor>{{"image", images}});
  expect_error([&] { open_dataset(path); }, "no tensor 'images' (did you mean 'image'?)");
}

// ---- paths and options ----

TEST(open_dataset, wrong_paths_and_options__are_errors) {
  const Folder f;
  put_file(f / "a.bin", "text");
  put_image(f / "set/a.png", 1);
  expect_error([&] { open_dataset(f / "none"); }, "no such file or folder");
  expect_error([&] { open_dataset(f / "a.bin"); }, "must be a folder of images, an IDX images");
  expect_error([&] { open_dataset(f / "set", {.channels = 2}); }, "channels must be 0, 1 or 3 (2)");
  expect_error([&] { open_dataset(f / "set", {.classes = "non"}); }, "did you mean 'none'?");
  expect_error([&] { open_dataset(f / "set", {.split = "valid"}); }, "unknown split 'valid'");
  expect_error([&] { open_dataset(f / "set", {.split = "test"}); }, "split is for IDX folders");
  expect_error([&] { open_dataset(f / "set", {.limit = -1}); }, "limit must not be negative");
}

}  // namespace
}  // namespace ebb::train
