#include "train/picture_index.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/parse_json.h"

namespace ebb::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t limit = int64_t{1} << 31;
constexpr int version = 1;  // of the lines

}  // namespace

PictureIndex::PictureIndex(std::string file) : file_(std::move(file)) {
  if (!file_.empty() && fs::exists(file_)) read();
}

void PictureIndex::read() {
  std::istringstream lines(io::read_whole_file(file_, "cache_dir", limit));
  for (std::string line; std::getline(lines, line);) {
    const json j = parse_json<json>(line);
    try {
      if (j.at("version") != version) continue;
      Known k{{j.at("changed"), j.at("file_size")},
              j.at("height"),
              j.at("width"),
              j.at("bytes"),
              j.at("hash")};
      known_.insert_or_assign(Key{j.at("file"), j.at("offset"), j.at("size")}, k);
    } catch (const json::exception&) {
      continue;  // the picture is decoded again
    }
  }
}

PictureIndex::Key PictureIndex::key_of(const CaptionedPicture& p) {
  std::error_code none;
  const fs::path whole = fs::absolute(p.file, none);
  return {none ? p.file : whole.lexically_normal().string(), p.offset, p.size};
}

std::optional<PictureIndex::File> PictureIndex::look(const std::string& file) {
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(file, error));
  if (error) return {};
  const auto changed = fs::last_write_time(file, error).time_since_epoch().count();
  if (error) return {};
  return File{static_cast<int64_t>(changed), size};
}

bool PictureIndex::find(CaptionedPicture& p) const {
  if (file_.empty()) return false;
  const std::lock_guard lock(mutex_);
  const auto it = known_.find(key_of(p));
  if (it == known_.end() || look(p.file) != it->second.file) return false;
  const Known& k = it->second;
  p.height = k.height, p.width = k.width, p.bytes = k.bytes, p.hash = k.hash;
  return true;
}

void PictureIndex::add(const CaptionedPicture& p, const std::optional<File>& before) {
  if (file_.empty() || !before || look(p.file) != before) return;
  const std::lock_guard lock(mutex_);
  known_.insert_or_assign(key_of(p), Known{*before, p.height, p.width, p.bytes, p.hash});
  added_ = true;
}

void PictureIndex::save() const {
  if (!added_) return;
  std::string out;
  for (const auto& [key, k] : known_) {
    const auto& [file, offset, size] = key;
    const json line = {{"version", version},        {"file", file},
                       {"offset", offset},          {"size", size},
                       {"changed", k.file.changed}, {"file_size", k.file.size},
                       {"height", k.height},        {"width", k.width},
                       {"bytes", k.bytes},          {"hash", k.hash}};
    out += line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  }
  io::make_folder(fs::path(file_).parent_path().string(), "cache_dir");
  io::write_whole_file(file_, out, "cache_dir");
}

}  // namespace ebb::train
