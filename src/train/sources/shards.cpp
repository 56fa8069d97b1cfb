// tar shards in WebDataset's layout: members of one name but for what is behind its first dot are
// one sample: key.jpg with key.txt, or with key.json {"text": "..."} or {"caption": "..."}, one
// text or a list of them.
#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_json.h"
#include "io/tar.h"
#include "train/captioned.h"
#include "train/many_files.h"

namespace ebb::train::sources {
namespace {

namespace fs = std::filesystem;

constexpr int64_t caption_limit = 1 << 20;

std::vector<std::string> shards_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".tar") out.push_back(entry.path().string());
  std::ranges::sort(out);
  return out;
}

bool takes(const std::string& path) {
  return path.ends_with(".tar") || (fs::is_directory(path) && !shards_in(path).empty());
}

struct Sample {
  std::map<std::string, io::TarMember> members;  // by what is behind the first dot
};

std::string text_of(const io::ReadFile& file, const io::TarMember& m) {
  const std::string name = str(file.name(), ": ", m.name);
  require(m.size <= caption_limit, "data: the caption is too long (", m.size, " bytes)  ", name);
  std::string out(static_cast<size_t>(m.size), '\0');
  file.read(m.offset, {reinterpret_cast<uint8_t*>(out.data()), out.size()});
  return out;
}

void add_caption(CaptionedPicture& p, const io::ReadFile& file, const Sample& sample) {
  if (const auto txt = sample.members.find("txt"); txt != sample.members.end()) {
    p.captions = {caption_text(text_of(file, txt->second), p.name)};
    p.captioned = true;
  } else if (const auto json = sample.members.find("json"); json != sample.members.end()) {
    const std::string name = str(file.name(), ": ", json->second.name);
    p.captions = captions_in_json(parse_json(text_of(file, json->second)), name);
    p.captioned = true;
  }
}

void list_shard(const std::string& path, const CaptionedOptions& options, Captioned& out) {
  const io::ReadFile file = io::ReadFile::open(path, "data");
  std::map<std::string, Sample> samples;  // by key
  for (io::TarMember& m : io::tar_members(file)) {
    if (options.between) options.between();
    const size_t slash = m.name.rfind('/'), base = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = m.name.find('.', base);
    if (dot == std::string::npos || dot == base) continue;
    const std::string key = m.name.substr(0, dot), name = m.name;
    const std::string rest = small_letters(m.name.substr(dot + 1));
    require(samples[key].members.emplace(rest, std::move(m)).second,
            "data: a member is there twice ('", name, "')  ", path);
  }
  size_t without = 0, before = out.pictures.size();
  for (const auto& [key, sample] : samples) {
    // 1.png, and not 1.canny.png
    const auto is_picture = [](const auto& m) {
      return m.first.find('.') == std::string::npos && is_picture_name(str("a.", m.first));
    };
    const auto picture = std::ranges::find_if(sample.members, is_picture);
    require(std::ranges::count_if(sample.members, is_picture) <= 1,
            "data: a sample has several pictures ('", key, "')  ", path);
    if (picture == sample.members.end()) {
      ++without;
      continue;
    }
    CaptionedPicture p{.file = path,
                       .offset = picture->second.offset,
                       .size = picture->second.size,
                       .name = str(path, ": ", picture->second.name),
                       .key = key};
    add_caption(p, file, sample);
    out.pictures.push_back(std::move(p));
  }
  require(out.pictures.size() > before, "data: the shard has no PNG, JPEG or WebP pictures (",
          without, " other samples)  ", path);
  if (without > 0)
    out.warnings.push_back(str("samples without a picture left out (", without, ")  ", path));
}

void list(const std::string& path, const CaptionedOptions& options, Captioned& out) {
  if (!fs::is_directory(path)) return list_shard(path, options, out);
  std::error_code error;
  for (fs::recursive_directory_iterator it(path, error), end; !error && it != end;
       it.increment(error))
    require(!is_picture_name(it->path().filename().string()),
            "data: has shards, and pictures besides ('",
            it->path().lexically_relative(path).string(), "'); name the shards one by one  ", path);
  for (const std::string& shard : shards_in(path)) list_shard(shard, options, out);
}

}  // namespace

const CaptionedSource& shards() {
  static const CaptionedSource s{.help = "a .tar shard in WebDataset's layout, or a folder of them",
                                 .takes = takes,
                                 .list = list};
  return s;
}

}  // namespace ebb::train::sources
