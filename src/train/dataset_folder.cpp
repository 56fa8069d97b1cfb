// A folder of image files as a data set: class folders, a check of every file, a cache.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "io/file.h"
#include "train/dataset_sources.h"
#include "train/many_files.h"

namespace ebb::train {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string path;
  int64_t label = 0;
  int64_t slot = 0;  // in the cache
};

bool has_image_bytes(const fs::path& p) {
  const auto file = io::ReadFile::open(p.string(), "image");
  std::vector<uint8_t> head(static_cast<size_t>(std::min<int64_t>(file.size(), 16)));
  file.read(0, head);
  return io::looks_like_image(head);
}

class ImageFolder final : public Dataset {
 public:
  ImageFolder(const std::string& path, const DatasetOptions& options)
      : root_(path), options_(options) {
    try {
      find_files();
    } catch (const fs::filesystem_error& e) {
      fail("dataset: cannot list (", e.code().message(), ")  ", e.path1().string());
    }
    label_files();
    pick_files();
    find_shape();
    make_cache();
    if (options_.check) check_files();
    options_.between = {};
  }

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  Shape image_shape() const override { return shape_; }

  int64_t get(int64_t index, uint8_t* pixels) const override {
    require(index >= 0 && index < size(), "dataset: index out of range (", index, " of ", size(),
            ")");
    const File& file = files_[static_cast<size_t>(index)];
    io::ImageNotes notes;
    if (file.slot >= cached_) {
      load(file, pixels, notes);
    } else {
      from_cache(file, pixels, notes);
    }
    return file.label;
  }

 private:
  enum State : uint8_t { absent, filling, present };

  void between() const {
    if (options_.between) options_.between();
  }

  // To the next file or folder; the iterator's own error does not say which folder it was.
  static void go_on(fs::recursive_directory_iterator& it) {
    const fs::path at = it->path();
    std::error_code error, ignored;
    it.increment(error);
    if (!error) return;
    const fs::path folder = fs::is_directory(at, ignored) ? at : at.parent_path();
    fail("dataset: cannot list (", error.message(), ")  ", folder.string());
  }

  void find_files() {
    std::vector<std::string> others, lost;
    fs::recursive_directory_iterator it(root_, fs::directory_options::follow_directory_symlink);
    for (; it != fs::recursive_directory_iterator(); go_on(it)) {
      between();
      const fs::path& p = it->path();
      require(it.depth() < 32, "dataset: folders are nested too deeply (a link to itself?)  ",
              p.string());
      if (p.filename().string().starts_with('.')) {
        if (it->is_directory()) it.disable_recursion_pending();
      } else if (it->is_regular_file()) {
        if (is_picture_name(p.string()) || has_image_bytes(p)) {
          files_.push_back({p.string()});
        } else {
          others.push_back(fs::relative(p, root_).string());
        }
      } else if (it->is_symlink() && !it->exists()) {
        lost.push_back(p.lexically_relative(root_).string());
      }
    }
    require(!files_.empty(), "dataset: found no PNG, JPEG or WebP images (", others.size(),
            " other files)  ", root_.string());
    std::ranges::sort(files_, {}, &File::path);
    std::ranges::sort(others);
    if (!others.empty())
      warnings_.push_back(listed("files left out that are not PNG, JPEG or WebP", others));
    std::ranges::sort(lost);
    if (!lost.empty()) warnings_.push_back(listed("links to nowhere left out", lost));
  }

  // The first folder below the root; "" for a file directly in it.
  std::string class_of(const File& file) const {
    const fs::path rest = fs::path(file.path).lexically_relative(root_);
    return std::distance(rest.begin(), rest.end()) > 1 ? rest.begin()->string() : "";
  }

  void label_files() {
    if (options_.classes == "none") return;
    std::set<std::string> names;
    for (const File& f : files_) names.insert(class_of(f));
    if (names.size() < 2) return;
    require(!names.contains(""),
            "dataset: images must lie all in class folders or all directly in ", "the folder (",
            names.size() - 1, " class folders; classes=none ignores folders)  ", root_.string());
    class_names_.assign(names.begin(), names.end());
    for (File& f : files_)
      f.label = std::ranges::lower_bound(class_names_, class_of(f)) - class_names_.begin();
  }

  void pick_files() {
    std::vector<File> kept;
    for (const int64_t i : spread(size(), options_.limit))
      kept.push_back(std::move(files_[static_cast<size_t>(i)]));
    files_ = std::move(kept);
    for (size_t i = 0; i < files_.size(); ++i) files_[i].slot = static_cast<int64_t>(i);
  }

  // Unless the options say all: the size of the first image, and colour if any of a sample has it.
  void find_shape() {
    std::vector<std::string> broken;
    for (const int64_t i : spread(size(), 64)) {
      between();
      const File& file = files_[static_cast<size_t>(i)];
      try {
        const Tensor t = fit_image(io::read_image(file.path, options_.channels), options_);
        if (shape_.rank() == 0) shape_ = t.shape();
        shape_[2] = std::max(shape_[2], t.shape()[2]);
      } catch (const Error& e) {
        broken.push_back(e.what());
        continue;
      }
      if (options_.channels || shape_[2] == 3) break;
    }
    // The sample may be broken by chance: then any image will do.
    for (size_t i = 0; shape_.rank() == 0 && i < files_.size(); ++i) try {
        shape_ = fit_image(io::read_image(files_[i].path, options_.channels), options_).shape();
      } catch (const Error&) {
      }
    require(shape_.rank() == 3, "dataset: no image can be read; ", listed("files", broken), "  ",
            root_.string());
  }

  void make_cache() {
    const int64_t bytes = shape_.numel();
    cached_ = std::min(size(), options_.cache * (int64_t{1} << 20) / bytes);
    states_ = std::vector<std::atomic<State>>(static_cast<size_t>(cached_));
    cache_ = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(cached_ * bytes));
  }

  // Decodes every file, which also fills the cache, and leaves out those that fail.
  void check_files() {
    std::vector<std::string> errors(files_.size());
    std::vector<io::ImageNotes> notes(files_.size());
    parallel(size(), options_.threads, [&](int64_t i) {
      between();
      std::vector<uint8_t> pixels(static_cast<size_t>(shape_.numel()));
      try {
        const auto at = static_cast<size_t>(i);
        const File& file = files_[at];
        file.slot >= cached_ ? load(file, pixels.data(), notes[at])
                             : from_cache(file, pixels.data(), notes[at]);
      } catch (const Error& e) {
        if (std::string_view(e.what()).starts_with("dataset: ")) throw;
        errors[static_cast<size_t>(i)] = e.what();
      }
    });
    std::vector<File> good;
    std::vector<std::string> broken, lying, not_srgb;
    for (size_t i = 0; i < files_.size(); ++i)
      if (errors[i].empty()) {
        const std::string at = "  " + files_[i].path;
        if (!notes[i].orientation.empty()) lying.push_back(notes[i].orientation + at);
        if (!notes[i].colour.empty()) not_srgb.push_back(notes[i].colour + at);
        good.push_back(std::move(files_[i]));
      } else {
        broken.push_back(errors[i]);
      }
    files_ = std::move(good);
    require(!files_.empty(), "dataset: no image can be read; ", listed("files", broken), "  ",
            root_.string());
    if (!broken.empty()) warnings_.push_back(listed("images that cannot be read left out", broken));
    if (!lying.empty()) warnings_.push_back(listed("images taken as they lie", lying));
    if (!not_srgb.empty()) warnings_.push_back(listed("images not converted to sRGB", not_srgb));
  }

  void load(const File& file, uint8_t* pixels, io::ImageNotes& notes) const {
    const Tensor decoded = io::read_image(file.path, options_.channels, {}, &notes);
    const int64_t c = decoded.shape()[2];
    require(c <= shape_[2], "dataset: image is in colour while others are grey; --channels 1 or ",
            "--channels 3 makes them alike  ", file.path);
    const Tensor image =
        fit_image(c < shape_[2] ? io::convert_channels(decoded, shape_[2]) : decoded, options_);
    require(image.shape() == shape_, "dataset: images must have one size (", image.shape()[1], "x",
            image.shape()[0], " here, ", shape_[1], "x", shape_[0],
            " before); --size crops and resizes them  ", file.path);
    std::ranges::copy(image.span<uint8_t>(), pixels);
  }

  void from_cache(const File& file, uint8_t* pixels, io::ImageNotes& notes) const {
    const size_t n = static_cast<size_t>(shape_.numel());
    uint8_t* const kept = cache_.get() + static_cast<size_t>(file.slot) * n;
    std::atomic<State>& state = states_[static_cast<size_t>(file.slot)];
    if (state.load(std::memory_order_acquire) == present) {
      std::memcpy(pixels, kept, n);
      return;
    }
    load(file, pixels, notes);
    State expected = absent;  // one thread fills; others go on with what they loaded
    if (!state.compare_exchange_strong(expected, filling)) return;
    std::memcpy(kept, pixels, n);
    state.store(present, std::memory_order_release);
  }

  fs::path root_;
  DatasetOptions options_;
  std::vector<File> files_;
  Shape shape_;
  int64_t cached_ = 0;                // slots below are kept
  std::unique_ptr<uint8_t[]> cache_;  // not touched before it is filled
  mutable std::vector<std::atomic<State>> states_;
};

}  // namespace

std::unique_ptr<Dataset> open_image_folder(const std::string& path, const DatasetOptions& options) {
  return std::make_unique<ImageFolder>(path, options);
}

}  // namespace ebb::train
