#include "train/captioned.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/parse_json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/image.h"
#include "train/many_files.h"
#include "train/picture_index.h"

namespace ebb::train {
namespace {

constexpr int64_t most_repeats = 1'000'000;

// "photos:10": a path, and how often its pictures come in an epoch.
struct Part {
  std::string path;
  int64_t repeats = 1;
};

Part parse_part(std::string_view text) {
  Part out{std::string(text)};
  const size_t colon = text.rfind(':');
  if (std::filesystem::exists(out.path) || colon == std::string_view::npos) return out;
  const std::string_view number = text.substr(colon + 1);
  const auto [end, ec] = std::from_chars(number.data(), number.data() + number.size(), out.repeats);
  require(ec == std::errc() && end == number.data() + number.size() && out.repeats >= 1 &&
              out.repeats <= most_repeats,
          "data: repeats must be a number from 1 to ", most_repeats, " ('", number, "')  ", text);
  out.path = text.substr(0, colon);
  return out;
}

std::vector<Part> parse_parts(std::string_view data) {
  std::vector<Part> out;
  std::set<std::string> paths;
  for (size_t at = 0; at <= data.size();) {
    const size_t end = std::min(data.find(';', at), data.size());
    require(end > at, "data: one of several paths is empty  ", data);
    out.push_back(parse_part(data.substr(at, end - at)));
    const std::string& path = out.back().path;
    std::error_code none;
    const auto place = std::filesystem::weakly_canonical(path, none);
    require(paths.insert(none ? path : place.string()).second, "data: is named twice; ", path,
            ":N trains on it N times an epoch  ", data);
    at = end + 1;
  }
  return out;
}

const CaptionedSource& source_of(const std::string& path) {
  require(std::filesystem::exists(path), "data: no such file or folder  ", path);
  const CaptionedSource* found = nullptr;
  for (const CaptionedSource* s : captioned_sources())
    if (s->takes(path) && (!found || found->general)) found = s;
  if (found) return *found;
  fail("data: must be ",
       separated(captioned_sources(), ", or ", [](const auto* s) { return s->help; }), "  ", path);
}

std::vector<uint8_t> bytes_of(const CaptionedPicture& p) {
  const io::ReadFile file = io::ReadFile::open(p.file, "data");
  std::vector<uint8_t> out(static_cast<size_t>(p.size < 0 ? file.size() : p.size));
  file.read(p.offset, out);
  return out;
}

Tensor decoded(std::span<const uint8_t> bytes, const CaptionedPicture& p) {
  return io::decode_image(bytes, p.name, 3);
}

void examine(CaptionedPicture& p, PictureIndex& index) {
  const auto before = index.look(p.file);
  const std::vector<uint8_t> bytes = bytes_of(p);
  const Tensor pixels = decoded(bytes, p);
  p.height = pixels.shape()[0], p.width = pixels.shape()[1];
  p.bytes = static_cast<int64_t>(bytes.size());
  p.hash = fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  index.add(p, before);
}

// What is wrong; "": nothing. Without the index pictures are decoded again, which is no fault.
std::string save(const PictureIndex& index) {
  try {
    index.save();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

// Sizes and hashes; leaves out what is broken. What an interruption leaves is kept in the index.
void examine(Captioned& all, const CaptionedOptions& options) {
  PictureIndex index(options.index);
  std::vector<size_t> fresh;
  for (size_t i = 0; i < all.pictures.size(); ++i)
    if (!index.find(all.pictures[i])) fresh.push_back(i);
  const auto count = static_cast<int64_t>(fresh.size());
  std::vector<std::string> errors(all.pictures.size());
  std::mutex mutex;
  int64_t done = 0;
  try {
    parallel(count, options.threads, [&](int64_t i) {
      if (options.between) options.between();
      CaptionedPicture& p = all.pictures[fresh[static_cast<size_t>(i)]];
      try {
        examine(p, index);
      } catch (const Error& e) {
        errors[fresh[static_cast<size_t>(i)]] = e.what();
      }
      const std::lock_guard lock(mutex);
      if (options.progress) options.progress(++done, count);
    });
  } catch (...) {
    save(index);  // what is thrown says more than that this failed
    throw;
  }
  if (const std::string fault = save(index); !fault.empty())
    all.warnings.push_back(str("what is known of pictures is not kept: ", fault));
  std::vector<CaptionedPicture> good;
  std::vector<std::string> broken;
  for (size_t i = 0; i < errors.size(); ++i)
    if (errors[i].empty())
      good.push_back(std::move(all.pictures[i]));
    else
      broken.push_back(errors[i]);
  require(!options.needs_all || broken.empty(),
          "data: ", listed("pictures cannot be read", broken));
  all.pictures = std::move(good);
  require(!all.pictures.empty(), "data: no picture can be read; ", listed("files", broken));
  if (!broken.empty())
    all.warnings.push_back(listed("pictures that cannot be read left out", broken));
}

void check_captions(Captioned& all, const CaptionedOptions& options) {
  std::vector<std::string> without;
  for (const CaptionedPicture& p : all.pictures)
    if (!p.captioned) without.push_back(p.name);
  if (without.empty()) return;
  require(!options.needs_captions, "data: ", listed("pictures have no caption", without),
          "; --caption-prefix TEXT gives all of them one");
  all.warnings.push_back(listed("pictures have no caption but the prefix", without));
}

void warn_empty(Captioned& all) {
  std::vector<std::string> empty;
  for (const CaptionedPicture& p : all.pictures)
    if (p.captioned && std::ranges::find(p.captions, "") != p.captions.end())
      empty.push_back(p.name);
  if (!empty.empty()) all.warnings.push_back(listed("pictures have an empty caption", empty));
}

}  // namespace

int64_t images_of(const Captioned& data, bool prior) {
  int64_t out = 0;
  for (const CaptionedPicture& p : data.pictures)
    if (p.prior == prior && !p.held_out) out += p.repeats;
  return out;
}

Tensor decode(const CaptionedPicture& p) { return decoded(bytes_of(p), p); }

void check_captioned(const std::string& data) {
  for (const Part& part : parse_parts(data)) source_of(part.path);
}

Captioned list_captioned(const std::string& data, const CaptionedOptions& options) {
  Captioned out;
  for (const Part& part : parse_parts(data)) {
    const size_t first = out.pictures.size();
    source_of(part.path).list(part.path, options, out);
    for (size_t i = first; i < out.pictures.size(); ++i) out.pictures[i].repeats = part.repeats;
  }
  if (options.reads_captions) {
    check_captions(out, options);
    warn_empty(out);
  }
  return out;
}

Captioned open_captioned(const std::string& data, const CaptionedOptions& options) {
  Captioned out = list_captioned(data, options);
  examine(out, options);
  return out;
}

std::string caption_text(std::string_view text, const std::string& name) {
  constexpr std::string_view mark = "\xef\xbb\xbf";  // of UTF-8, that some editors write
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  require(valid_utf8(text), "data: the caption is no UTF-8  ", name);
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::vector<std::string> captions_in_json(const nlohmann::json& j, const std::string& subject) {
  require(j.is_object(), "data: must be a JSON object  ", subject);
  for (const char* name : {"text", "caption"})
    if (const auto it = j.find(name); it != j.end()) {
      const auto all = it->is_array() ? *it : nlohmann::json::array({*it});
      require(!all.empty() && std::ranges::all_of(all, [](const auto& t) { return t.is_string(); }),
              "data: '", name, "' must be a text, or a list of texts  ", subject);
      std::vector<std::string> out;
      for (const auto& text : all) out.push_back(caption_text(text.get<std::string>(), subject));
      return out;
    }
  fail("data: must have a text 'text' or 'caption'  ", subject);
}

}  // namespace ebb::train
