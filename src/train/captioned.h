// Pictures with captions, in folders and in tar shards: what text to image is trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/file.h"

namespace ebb::train {

struct CaptionedPicture {
  std::string file;                          // with its bytes
  int64_t offset = 0, size = -1;             // of them; -1: all of the file
  std::string name;                          // for people: the file, or "shard.tar: a.jpg"
  std::string key;                           // below its folder, or in its shard, without ending
  std::vector<std::string> captions = {""};  // training draws one of them each time
  bool captioned = false;                    // whether somebody wrote them
  int64_t repeats = 1;                       // in an epoch
  double weight = 1;                         // of its loss
  bool prior = false;     // shows what the model knows already, and is not what it learns
  bool held_out = false;  // is not trained on, but measured
  // Of the upright picture, and of its bytes: known when it was decoded once.
  int64_t height = 0, width = 0;
  uint64_t hash = 0;
  int64_t bytes = 0;
};

// u8 [H,W,3]. Throws Error, naming the picture.
Tensor decode(const CaptionedPicture& picture);

struct CaptionedOptions {
  bool needs_captions = true;  // a picture without a caption is an Error
  bool reads_captions = true;  // false: whether pictures have captions is no matter
  bool needs_all = false;      // a picture that cannot be read is an Error, and not left out
  int64_t threads = 0;         // that decode; 0: all that this process may use
  // Called before every file that is looked at, from any thread; may throw.
  std::function<void()> between = {};
  std::function<void(int64_t done, int64_t all)> progress = {};  // of decoding, likewise
  // What decoding tells is kept in this file (train/picture_index.h); "": it is not.
  std::string index = {};
};

struct Captioned {
  std::vector<CaptionedPicture> pictures;  // in an order that depends on names alone
  std::vector<std::string> warnings;       // what was left out and why: a line each
};

// In an epoch, with their repeats, without those that are held out: of the prior, or of what is
// learnt.
int64_t images_of(const Captioned& data, bool prior = false);

// Where pictures and captions lie. src/train/sources/<s>.cpp defines
// `const CaptionedSource& ebb::train::sources::<s>()`.
struct CaptionedSource {
  std::string_view help;  // "a folder of pictures with captions beside them"
  bool (*takes)(const std::string& path) = nullptr;
  bool general = false;  // others that take a path come before it
  // Adds the pictures, with their captions, and warnings. Throws Error.
  void (*list)(const std::string& path, const CaptionedOptions& options, Captioned& out) = nullptr;
};
const std::vector<const CaptionedSource*>& captioned_sources();

// Throws Error where a path of `data` (see open_captioned) is none, or holds no such thing: by
// names alone, which takes no time.
void check_captioned(const std::string& data);
// As open_captioned() below, but nothing is decoded: sizes and hashes are not known, and broken
// pictures are among them. Throws Error.
Captioned list_captioned(const std::string& data, const CaptionedOptions& options = {});

// Pictures of "photos:10;styles;shards.tar": paths, each perhaps with how often its pictures come
// in an epoch. Every picture that is new is decoded once: those that are broken are left out with a
// warning, unless all are needed.
// Throws Error.
Captioned open_captioned(const std::string& data, const CaptionedOptions& options = {});

// ---- for sources ---------------------------------------------------------------------------

// One line of it, without space around; line breaks become spaces. Throws Error unless it is UTF-8.
std::string caption_text(std::string_view text, const std::string& name);
// The member `text` or `caption` of a JSON object, a text or a list of texts, each as
// caption_text() gives it. Throws Error, naming `subject`, for other JSON.
std::vector<std::string> captions_in_json(const nlohmann::json& object, const std::string& subject);

}  // namespace ebb::train
