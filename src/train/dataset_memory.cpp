// Data sets held in memory: IDX files and safetensors with `images` and `labels`.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "io/idx.h"
#include "io/safetensors.h"
#include "train/dataset_sources.h"

namespace ebb::train {
namespace {

namespace fs = std::filesystem;

class MemoryDataset final : public Dataset {
 public:
  // images: u8 or f32 [N,H,W,C]; labels: one an image, or empty.
  MemoryDataset(Tensor images, std::vector<int64_t> labels, int64_t classes)
      : images_(std::move(images)), labels_(std::move(labels)) {
    for (int64_t c = 0; c < classes; ++c) class_names_.push_back(std::to_string(c));
  }
  int64_t size() const override { return images_.shape()[0]; }
  Shape image_shape() const override { return images_.shape().slice(1, 4); }

  int64_t get(int64_t index, uint8_t* pixels) const override {
    const Tensor image = row(index);
    if (image.dtype() == DType::u8) {
      std::ranges::copy(image.span<uint8_t>(), pixels);
    } else {
      std::ranges::transform(image.span<float>(), pixels, [](float v) {
        return static_cast<uint8_t>(std::clamp((v + 1.0f) * 127.5f, 0.0f, 255.0f) + 0.5f);
      });
    }
    return label(index);
  }
  int64_t get_f32(int64_t index, float* pixels) const override {
    if (images_.dtype() == DType::u8) return Dataset::get_f32(index, pixels);
    std::ranges::copy(row(index).span<float>(), pixels);
    return label(index);
  }

 private:
  Tensor row(int64_t index) const {
    require(index >= 0 && index < size(), "dataset: index out of range (", index, " of ", size(),
            ")");
    return images_.rows(index, index + 1);
  }
  int64_t label(int64_t index) const {
    return labels_.empty() ? 0 : labels_[static_cast<size_t>(index)];
  }
  Tensor images_;
  std::vector<int64_t> labels_;
};

// The kept images, each cropped, resized and converted.
Tensor select_images(const Tensor& all, const std::vector<int64_t>& keep, const DatasetOptions& o,
                     const std::string& path) {
  const int64_t h = all.shape()[1], w = all.shape()[2], c = all.shape()[3];
  const bool same_size = o.size == 0 || (o.size == h && o.size == w);
  const bool same = same_size && (o.channels == 0 || o.channels == c);
  require(same || all.dtype() == DType::u8,
          "dataset: only u8 images can be resized or change channels (size ", o.size, ", channels ",
          o.channels, ")  images: ", all.type(), "  ", path);
  const int64_t n = static_cast<int64_t>(keep.size());
  if (same && n == all.shape()[0]) return all;
  Tensor out;
  for (int64_t i = 0; i < n; ++i) {
    if (o.between) o.between();
    const int64_t from = keep[static_cast<size_t>(i)];
    const Tensor one = all.rows(from, from + 1).reshape({h, w, c});
    const Tensor fitted = same ? one : fit_image(one, o);
    const Shape& s = fitted.shape();
    if (i == 0) out = Tensor(all.dtype(), {n, s[0], s[1], s[2]});
    std::memcpy(out.rows(i, i + 1).raw(), fitted.raw(), static_cast<size_t>(fitted.bytes()));
  }
  return out;
}

std::unique_ptr<Dataset> select(const Tensor& images, std::vector<int64_t> labels,
                                const DatasetOptions& o, const std::string& path) {
  const int64_t n = images.shape()[0];
  require(images.numel() > 0, "dataset: holds no images  images: ", images.type(), "  ", path);
  require(labels.empty() || static_cast<int64_t>(labels.size()) == n,
          "dataset: must have a label for each image (", labels.size(), " labels, ", n,
          " images)  ", path);
  for (const int64_t label : labels)
    require(label >= 0 && label < 1'000'000, "dataset: labels must be 0 to 999999 (", label, ")  ",
            path);
  if (o.classes == "none") labels.clear();
  const int64_t classes = labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end()) + 1;
  const std::vector<int64_t> keep = spread(n, o.limit);
  std::vector<int64_t> kept;
  if (!labels.empty())
    for (const int64_t i : keep) kept.push_back(labels[static_cast<size_t>(i)]);
  return std::make_unique<MemoryDataset>(select_images(images, keep, o, path), std::move(kept),
                                         classes);
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.rfind(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
}

// The labels file that belongs to an images file; "" if there is none.
std::string labels_beside(const std::string& images_path) {
  const fs::path p(images_path);
  std::string name = p.filename().string();
  const std::string before = name;
  replace(name, "images", "labels");
  replace(name, "idx3", "idx1");
  if (name == before) return "";
  const std::string plain = name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name;
  for (const std::string& candidate : {name, plain, plain + ".gz"})
    if (fs::is_regular_file(p.parent_path() / candidate))
      return (p.parent_path() / candidate).string();
  return "";
}

std::vector<int64_t> as_integers(const Tensor& t, const std::string& path) {
  require(t.shape().rank() == 1 && !is_float(t.dtype()),
          "dataset: labels must be i64, i32 or u8 [N]  labels: ", t.type(), "  ", path);
  const Tensor wide = t.to(DType::i64);
  return {wide.span<int64_t>().begin(), wide.span<int64_t>().end()};
}

}  // namespace

std::unique_ptr<Dataset> open_idx(const std::string& images_path, const DatasetOptions& o) {
  Tensor images = io::read_idx(images_path);
  const Shape s = images.shape();
  require(s.rank() == 3 || s.rank() == 4, "dataset: IDX images must have 3 or 4 dims  ", s, "  ",
          images_path);
  if (s.rank() == 3) images = images.reshape({s[0], s[1], s[2], 1});
  std::vector<int64_t> labels;
  const std::string labels_path = labels_beside(images_path);
  if (o.classes != "none" && !labels_path.empty())
    labels = as_integers(io::read_idx(labels_path), labels_path);
  return select(images, std::move(labels), o, images_path);
}

std::unique_ptr<Dataset> open_safetensors(const std::string& path, const DatasetOptions& o) {
  const auto file = io::TensorFile::open(path);
  const Tensor images = file.load("images");
  require(
      images.shape().rank() == 4 && (images.dtype() == DType::u8 || images.dtype() == DType::f32),
      "dataset: images must be u8 or f32 [N,H,W,C]  images: ", images.type(), "  ", path);
  std::vector<int64_t> labels;
  if (o.classes != "none" && file.contains("labels"))
    labels = as_integers(file.load("labels"), path);
  return select(images, std::move(labels), o, path);
}

}  // namespace ebb::train
