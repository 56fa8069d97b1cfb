// Store: finished pictures, in a folder (the gallery) or for a while in memory. Any thread may
// call.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary.h"
#include "io/picture_file.h"

namespace ebb::server {

struct StoredPicture {
  std::string id;
  io::PictureFormat format = io::PictureFormat::png;
  bool kept = false;  // in the folder
};

// How a picture is stored.
struct NewPicture {
  io::PictureFormat format = io::PictureFormat::png;
  uint64_t seed = 0;
  std::chrono::system_clock::time_point made = std::chrono::system_clock::now();
  bool keep = true;      // in the folder
  std::string tag = {};  // 16 hexadecimal digits by which with_tag() finds it; "": any
};

struct PictureFacts {
  int64_t width = 0, height = 0;
  std::string parameters;  // A1111's text
  std::string settings;    // ebb's JSON; "" where there is none
};

// Of pictures in memory: those that are older go, and behind so many bytes the oldest.
struct MemoryLimits {
  double seconds = 3600;
  size_t bytes = size_t{512} << 20;
};

class Store {
 public:
  // "": no folder. It is this store's alone. Throws Error where it cannot be made, or is another
  // process's.
  explicit Store(std::string folder, MemoryLimits limits = {});

  // Names it: YYYYMMDD-HHMMSS-<nanoseconds>-<seed>-<tag>. It is there whole or not at all. Where
  // the folder takes no more (`fault` says why) it stays in memory alone.
  std::string add(std::vector<uint8_t> bytes, const NewPicture& picture,
                  std::string* fault = nullptr);
  // The id of a picture in the folder; "": there is none.
  std::string with_tag(std::string_view tag) const;
  std::optional<StoredPicture> find(std::string_view id) const;
  // None where it is gone. Throws Error for a file that cannot be read.
  std::optional<std::string> bytes(std::string_view id);
  // JPEG of at most so many pixels a side. Throws Error for a file that is broken.
  std::optional<std::string> thumb(std::string_view id);
  std::optional<PictureFacts> facts(std::string_view id);
  bool remove(std::string_view id);
  size_t most_in_memory() const { return limits_.bytes; }
  void forget();  // pictures in memory whose time is over, as add() does too
  // Of the gallery, the newest first, behind `before` ("": from the first).
  std::vector<std::string> list(std::string_view before, size_t limit) const;

 private:
  struct InMemory {
    std::string bytes;
    double until = 0;
    std::list<std::string>::iterator place;  // in memory_order_
  };
  void check_takes_files() const;
  void read_folder();
  void insert(const StoredPicture& p);
  void erase(const std::string& id);
  void forget_old();
  std::string file_name(const StoredPicture& p) const;
  bool write(const std::string& name, const std::vector<uint8_t>& bytes, std::string& fault);

  std::string folder_;
  MemoryLimits limits_;
  Descriptor directory_;
  mutable std::mutex mutex_;
  std::map<std::string, StoredPicture, std::less<>> pictures_;
  std::set<std::pair<std::string, std::string>, std::less<>> tags_;  // (tag, id), of the folder
  std::map<std::string, InMemory, std::less<>> memory_;
  std::list<std::string> memory_order_;  // ids, the oldest first
  size_t memory_bytes_ = 0;
  std::map<std::string, std::string, std::less<>> thumbs_;
  std::map<std::string, PictureFacts, std::less<>> facts_;
  size_t facts_bytes_ = 0;  // of their texts
};

std::string_view type_of(io::PictureFormat format);    // "image/png"
std::string_view ending_of(io::PictureFormat format);  // ".png"

// u8 [H,W,3] within a square of that side, as JPEG.
std::string small_jpeg(const Tensor& image, int64_t side);

}  // namespace ebb::server
