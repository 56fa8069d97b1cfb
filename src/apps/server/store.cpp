#include "apps/server/store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "apps/cli/settings_file.h"
#include "apps/server/byte_span.h"
#include "apps/server/job.h"
#include "apps/server/random_text.h"
#include "base/error.h"
#include "base/lock.h"
#include "io/file.h"
#include "io/image.h"
#include "io/image_size.h"
#include "io/resize.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_thumbs = 1000, most_facts = 10000, most_facts_bytes = size_t{32} << 20;
constexpr int64_t thumb_side = 256;
constexpr int thumb_quality = 80;

constexpr std::string_view unfinished = ".part";

std::string new_id(const NewPicture& p) {
  const auto second = std::chrono::floor<std::chrono::seconds>(p.made);
  const std::time_t time = std::chrono::system_clock::to_time_t(second);
  std::tm local{};
  localtime_r(&time, &local);
  char text[32], part[16];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  std::snprintf(part, sizeof part, "%09d",
                static_cast<int>(std::chrono::nanoseconds(p.made - second).count()));
  return str(text, '-', part, '-', p.seed, '-', p.tag.empty() ? random_text(16) : p.tag);
}

std::string_view tag_in(std::string_view id) { return id.substr(id.rfind('-') + 1); }

// The names that new_id() gives, and those of earlier versions, without nanoseconds.
bool is_id(std::string_view stem) {
  return stem.size() >= 26 && stem[8] == '-' && stem[15] == '-' &&
         stem.find_first_not_of("0123456789abcdef-") == stem.npos;
}

}  // namespace

std::string_view type_of(io::PictureFormat format) {
  constexpr std::string_view types[] = {"image/png", "image/jpeg", "image/webp"};
  return types[static_cast<size_t>(format)];
}

std::string_view ending_of(io::PictureFormat format) {
  constexpr std::string_view endings[] = {".png", ".jpg", ".webp"};
  return endings[static_cast<size_t>(format)];
}

std::string small_jpeg(const Tensor& image, int64_t side) {
  const int64_t h = image.shape()[0], w = image.shape()[1], longest = std::max(h, w);
  Tensor small = image;
  if (longest > side)
    small = io::resize(image, std::max<int64_t>(h * side / longest, 1),
                       std::max<int64_t>(w * side / longest, 1), io::ResizeFilter::box);
  const auto bytes = io::encode_picture(io::PictureFormat::jpeg, small, {}, thumb_quality);
  return {bytes.begin(), bytes.end()};
}

Store::Store(std::string folder, MemoryLimits limits)
    : folder_(std::move(folder)), limits_(limits) {
  if (folder_.empty()) return;
  io::make_folder(folder_, "serve: --out");
  directory_ = Descriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  require(directory_.number() >= 0, "serve: --out cannot be opened (", std::strerror(errno), ")  ",
          folder_);
  require(try_lock(directory_.number(), LockFor::writing),
          "serve: another process writes into --out; name another folder  ", folder_);
  check_takes_files();
  read_folder();
}

// Permissions do not tell it, as of /proc.
void Store::check_takes_files() const {
  const std::string name = str(new_id({}), unfinished);
  const Descriptor file(::openat(directory_.number(), name.c_str(),
                                 O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644));
  require(file.number() >= 0, "serve: --out: no file can be made in the folder (",
          std::strerror(errno), ")  ", folder_);
  ::unlinkat(directory_.number(), name.c_str(), 0);
}

void Store::read_folder() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    if (entry.path().extension() == unfinished && is_id(entry.path().stem().stem().string()))
      fs::remove(entry.path(), ignored);  // of a process that was killed, as the folder is ours
    if (entry.symlink_status(ignored).type() != fs::file_type::regular) continue;
    const auto format = io::picture_format(entry.path().string());
    const std::string stem = entry.path().stem().string();
    if (format && is_id(stem) && entry.path().extension() == ending_of(*format))
      insert({stem, *format, true});
  }
}

void Store::insert(const StoredPicture& p) {
  pictures_[p.id] = p;
  if (p.kept) tags_.emplace(tag_in(p.id), p.id);
}

void Store::erase(const std::string& id) {
  pictures_.erase(id), thumbs_.erase(id), facts_.erase(id);
  tags_.erase({std::string(tag_in(id)), id});
  const auto at = memory_.find(id);
  if (at == memory_.end()) return;
  memory_bytes_ -= at->second.bytes.size();
  memory_order_.erase(at->second.place);
  memory_.erase(at);
}

std::string Store::file_name(const StoredPicture& p) const {
  return p.id + std::string(ending_of(p.format));
}

bool Store::write(const std::string& name, const std::vector<uint8_t>& bytes, std::string& fault) {
  const std::string part = name + std::string(unfinished);
  const Descriptor file(::openat(directory_.number(), part.c_str(),
                                 O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644));
  size_t done = 0;
  while (file.number() >= 0 && done < bytes.size()) {
    const ssize_t n = ::write(file.number(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  if (file.number() >= 0 && done == bytes.size() &&
      ::renameat(directory_.number(), part.c_str(), directory_.number(), name.c_str()) == 0)
    return true;
  fault = str("serve: --out: the picture is not saved (", std::strerror(errno),
              "), it is in memory for a while  ", folder_);
  if (file.number() >= 0) ::unlinkat(directory_.number(), part.c_str(), 0);
  return false;
}

std::string Store::add(std::vector<uint8_t> bytes, const NewPicture& picture, std::string* fault) {
  StoredPicture p{new_id(picture), picture.format, picture.keep && directory_.number() >= 0};
  std::string why;
  if (p.kept && !write(file_name(p), bytes, why)) p.kept = false;
  if (fault) *fault = why;
  const std::lock_guard lock(mutex_);
  insert(p);
  if (p.kept) return p.id;
  memory_bytes_ += bytes.size();
  memory_[p.id] = {std::string(bytes.begin(), bytes.end()), steady_time() + limits_.seconds,
                   memory_order_.insert(memory_order_.end(), p.id)};
  forget_old();
  return p.id;
}

std::string Store::with_tag(std::string_view tag) const {
  const std::lock_guard lock(mutex_);
  const auto at = tags_.lower_bound({std::string(tag), ""});
  return at == tags_.end() || at->first != tag ? "" : at->second;
}

void Store::forget() {
  const std::lock_guard lock(mutex_);
  forget_old();
}

// The newest one stays, however large.
void Store::forget_old() {
  const double now = steady_time();
  while (!memory_order_.empty()) {
    const bool is_old = memory_.find(memory_order_.front())->second.until <= now;
    if (!is_old && (memory_bytes_ <= limits_.bytes || memory_order_.size() == 1)) return;
    erase(std::string(memory_order_.front()));
  }
}

std::optional<StoredPicture> Store::find(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  const auto at = pictures_.find(id);
  return at == pictures_.end() ? std::nullopt : std::optional(at->second);
}

std::optional<std::string> Store::bytes(std::string_view id) {
  const auto p = find(id);
  if (!p) return {};
  if (!p->kept) {
    const std::lock_guard lock(mutex_);
    const auto at = memory_.find(id);
    return at == memory_.end() ? std::nullopt : std::optional(at->second.bytes);
  }
  const Descriptor file(::openat(directory_.number(), file_name(*p).c_str(),
                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.number() < 0 && errno == ENOENT) {  // somebody else took it away
    const std::lock_guard lock(mutex_);
    erase(p->id);
    return {};
  }
  const auto fails = [&] {
    fail("serve: --out: a picture cannot be read (", std::strerror(errno), ")  ", file_name(*p));
  };
  if (file.number() < 0) fails();
  std::string out;
  char part[65536];
  while (true) {
    const ssize_t n = ::read(file.number(), part, sizeof part);
    if (n == 0) return out;
    if (n > 0) out.append(part, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) fails();
  }
}

std::optional<std::string> Store::thumb(std::string_view id) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = thumbs_.find(id); at != thumbs_.end()) return at->second;
  }
  const auto whole = bytes(id);
  if (!whole) return {};
  std::string out = small_jpeg(io::decode_image(byte_span(*whole), std::string(id), 3), thumb_side);
  const std::lock_guard lock(mutex_);
  if (thumbs_.size() >= most_thumbs) thumbs_.clear();
  thumbs_[std::string(id)] = out;
  return out;
}

std::optional<PictureFacts> Store::facts(std::string_view id) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = facts_.find(id); at != facts_.end()) return at->second;
  }
  PictureFacts out;
  try {
    const auto whole = bytes(id);
    if (!whole) return {};
    const auto text = io::picture_text(byte_span(*whole), std::string(id));
    const auto value = [&](const std::string& key) {
      const auto at = text.find(key);
      return at == text.end() ? std::string() : at->second;
    };
    out.parameters = value("parameters");
    out.settings = value(std::string(cli::settings_keyword));
    const Shape size = io::image_size(byte_span(*whole), std::string(id));
    out.height = size[0], out.width = size[1];
  } catch (const Error&) {
    // a file that is broken or cannot be read has none
  }
  const std::lock_guard lock(mutex_);
  const size_t own = out.parameters.size() + out.settings.size();
  if (facts_.size() >= most_facts || facts_bytes_ + own > most_facts_bytes)
    facts_.clear(), facts_bytes_ = 0;
  facts_bytes_ += own;
  facts_[std::string(id)] = out;
  return out;
}

bool Store::remove(std::string_view id) {
  const auto p = find(id);
  if (!p) return false;
  if (p->kept) ::unlinkat(directory_.number(), file_name(*p).c_str(), 0);
  const std::lock_guard lock(mutex_);
  erase(p->id);
  return true;
}

std::vector<std::string> Store::list(std::string_view before, size_t limit) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  auto at = before.empty() ? pictures_.end() : pictures_.lower_bound(before);
  while (at != pictures_.begin() && out.size() < limit) {
    --at;
    if (at->second.kept) out.push_back(at->first);
  }
  return out;
}

}  // namespace ebb::server
