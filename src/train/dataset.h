// Data sets: images of one shape, with or without class labels, by index.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/shape.h"

namespace ebb::train {

struct DatasetOptions {
  int64_t size = 0;              // pixels a side; 0: as in the files, which must then agree
  int64_t channels = 0;          // 1, 3 or 0: as in the files
  std::string classes = "auto";  // "none": without labels
  std::string split = "train";   // "test": the t10k files of an IDX folder
  int64_t limit = 0;             // use only that many images, spread evenly; 0: all
  int64_t cache = 8192;          // MiB of decoded images kept in memory
  bool check = true;             // decode every file once at the start and leave out broken ones
  int64_t threads = 0;           // for that check; 0: all that this process may use
  // Called before every image that open_dataset() looks at, from any thread; may throw.
  std::function<void()> between = {};

  void fields(auto&& f) {
    f("size", size, "side of the square that images are cropped and resized to; 0: as they are");
    f("channels", channels, "1 (grey), 3 (colour) or 0 (as in the files)");
    f("classes", classes, "auto (class folders, label files) or none");
    f("split", split, "train or test (IDX folders only)");
    f("limit", limit, "use only that many images, spread evenly over the set; 0: all");
    f("cache", cache, "MiB of decoded images kept in memory");
    f("check", check, "decode every file once at the start and leave out broken ones");
    f("threads", threads, "threads of the check; 0: all that this process may use");
  }
};

// Reading is const and may be done from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;                                              // images
  virtual Shape image_shape() const = 0;                                         // [H,W,C]
  int64_t classes() const { return static_cast<int64_t>(class_names_.size()); }  // 0: no labels
  const std::vector<std::string>& class_names() const { return class_names_; }
  // What was left out and why, for the user to see: a line each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Writes H*W*C samples and returns the label (0 if there are no classes). Throws Error for an
  // index out of range and for a file that cannot be read.
  virtual int64_t get(int64_t index, uint8_t* pixels) const = 0;
  // The same in f32: u8 maps 0..255 to -1..1; f32 files come as they are.
  virtual int64_t get_f32(int64_t index, float* pixels) const;

 protected:
  std::vector<std::string> class_names_;
  std::vector<std::string> warnings_;
};

// True if the data at `path` comes with a test split of its own.
bool has_test_split(const std::string& path);

// Recognises `path`:
//  - a folder of PNG, JPEG and WebP files, searched whole but for hidden names. Class = the first
//    folder below `path`, sorted by name; none if there are fewer than two. All images must lie in
//    class folders or all directly in `path`.
//  - an IDX file of images; its labels are looked for beside it (images-idx3 -> labels-idx1),
//    gzipped or not. Or a folder with train-images-idx3-ubyte (split test: t10k-images-...).
//  - a .safetensors file with `images` u8 or f32 [N,H,W,C] and perhaps `labels` i64, i32 or u8 [N].
//    f32 images should lie in [-1,1].
// Throws Error.
std::unique_ptr<Dataset> open_dataset(const std::string& path, const DatasetOptions& options = {});

}  // namespace ebb::train
