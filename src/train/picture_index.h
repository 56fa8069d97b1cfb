// PictureIndex: what decoding a picture told of it, in a file, so that a later run need not decode
// it again. A picture whose file has another size or time of change is decoded anew.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "train/captioned.h"

namespace ebb::train {

class PictureIndex {
 public:
  struct File {
    int64_t changed = 0, size = 0;
    bool operator==(const File&) const = default;
  };

  // "": nothing is known or kept. Lines that cannot be read are passed over.
  explicit PictureIndex(std::string file);

  // Sets height, width, hash and bytes of a picture that is known; false: it is not. Any thread.
  bool find(CaptionedPicture& picture) const;
  // How a file looks; none: that cannot be told.
  static std::optional<File> look(const std::string& file);
  // Of a picture that was decoded, whose file looked like `before` when its bytes were not read
  // yet. Nothing is added if it looks otherwise now. Any thread.
  void add(const CaptionedPicture& picture, const std::optional<File>& before);
  // Writes the file, if something was added. Throws Error.
  void save() const;

 private:
  using Key = std::tuple<std::string, int64_t, int64_t>;  // CaptionedPicture's file, offset, size
  struct Known {
    File file;
    int64_t height = 0, width = 0, bytes = 0;
    uint64_t hash = 0;
  };
  static Key key_of(const CaptionedPicture& picture);
  void read();

  std::string file_;
  std::map<Key, Known> known_;
  mutable std::mutex mutex_;
  bool added_ = false;
};

}  // namespace ebb::train
