#include "train/dataset.h"

#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/names.h"
#include "io/idx.h"
#include "io/pixels.h"
#include "io/resize.h"
#include "train/dataset_sources.h"

namespace ebb::train {
namespace {

namespace fs = std::filesystem;

void check(const DatasetOptions& o) {
  check_known("dataset: unknown classes", o.classes, std::vector<std::string>{"auto", "none"});
  check_known("dataset: unknown split", o.split, std::vector<std::string>{"train", "test"});
  require(o.size >= 0 && o.size <= 16384, "dataset: size must be 0 to 16384 (", o.size, ")");
  require(o.channels == 0 || o.channels == 1 || o.channels == 3,
          "dataset: channels must be 0, 1 or 3 (", o.channels, ")");
  require(o.limit >= 0, "dataset: limit must not be negative (", o.limit, ")");
  require(o.cache >= 0, "dataset: cache must not be negative (", o.cache, ")");
  require(o.threads >= 0, "dataset: threads must not be negative (", o.threads, ")");
}

// The images file of a split under one of the names in use; "" if there is none.
std::string idx_images(const fs::path& folder, const std::string& split) {
  for (const char* middle : {"-images-idx3-ubyte", "-images.idx3-ubyte"})
    for (const char* end : {"", ".gz"}) {
      const fs::path p = folder / (split + middle + end);
      if (fs::is_regular_file(p)) return p.string();
    }
  return "";
}

std::unique_ptr<Dataset> open_folder(const std::string& path, const DatasetOptions& o) {
  const std::string train = idx_images(path, "train"), test = idx_images(path, "t10k");
  if (train.empty() && test.empty()) {
    require(o.split == "train", "dataset: split is for IDX folders, this holds none (", o.split,
            ")  ", path);
    return open_image_folder(path, o);
  }
  const std::string& chosen = o.split == "train" ? train : test;
  require(!chosen.empty(), "dataset: no IDX images of the split '", o.split, "'  ", path);
  return open_idx(chosen, o);
}

}  // namespace

int64_t Dataset::get_f32(int64_t index, float* pixels) const {
  const size_t n = static_cast<size_t>(image_shape().numel());
  std::vector<uint8_t> bytes(n);
  const int64_t label = get(index, bytes.data());
  io::signed_pixels(bytes, {pixels, n});
  return label;
}

std::vector<int64_t> spread(int64_t count, int64_t limit) {
  const int64_t n = limit > 0 && limit < count ? limit : count;
  std::vector<int64_t> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    out[static_cast<size_t>(i)] = static_cast<int64_t>(static_cast<__int128>(i) * count / n);
  return out;
}

Tensor fit_image(const Tensor& image, const DatasetOptions& o) {
  const Tensor converted = o.channels ? io::convert_channels(image, o.channels) : image;
  return o.size ? io::square(converted, o.size) : converted;
}

bool has_test_split(const std::string& path) {
  std::error_code ec;
  return fs::is_directory(path, ec) && !idx_images(path, "t10k").empty();
}

std::unique_ptr<Dataset> open_dataset(const std::string& path, const DatasetOptions& options) {
  check(options);
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  require(fs::exists(status), "dataset: no such file or folder  ", path);
  if (fs::is_directory(status)) return open_folder(path, options);
  require(options.split == "train", "dataset: split is for IDX folders (", options.split, ")  ",
          path);
  if (path.ends_with(".safetensors") || path.ends_with(".safetensors.index.json"))
    return open_safetensors(path, options);
  if (io::is_idx(path, 3) || io::is_idx(path, 4)) return open_idx(path, options);
  fail("dataset: must be a folder of images, an IDX images file or a .safetensors file  ", path);
}

}  // namespace ebb::train
