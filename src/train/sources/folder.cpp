// A folder of pictures: the caption of a.jpg is a.txt, or the text of its line in a metadata.jsonl
// of its folder, {"file_name": "a.jpg", "text": "..."}. For `text` there may be
// `caption`, and for a text a list of them.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/parse_json.h"
#include "train/captioned.h"
#include "train/many_files.h"

namespace ebb::train::sources {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view metadata_name = "metadata.jsonl";
constexpr int64_t caption_limit = 1 << 16, metadata_limit = int64_t{1} << 30;

bool takes(const std::string& path) { return fs::is_directory(path); }

struct Files {
  std::vector<std::string> pictures, metadata, others;
};

Files files_below(const std::string& root, const CaptionedOptions& options) {
  Files out;
  std::error_code error;
  fs::recursive_directory_iterator it(root, fs::directory_options::follow_directory_symlink, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (options.between) options.between();
    const std::string path = it->path().string(), name = it->path().filename().string();
    require(it.depth() < 32, "data: folders are nested too deeply (a link to itself?)  ", path);
    std::error_code ignored;
    if (name.starts_with('.')) {
      if (it->is_directory(ignored)) it.disable_recursion_pending();
    } else if (it->is_regular_file(ignored)) {
      if (is_picture_name(name))
        out.pictures.push_back(path);
      else
        (name == metadata_name ? out.metadata : out.others).push_back(path);
    } else if (it->is_symlink(ignored) && !it->exists(ignored)) {
      out.others.push_back(path);  // a link to nothing
    }
  }
  require(!error, "data: cannot list (", error.message(), ")  ", root);
  for (auto* list : {&out.pictures, &out.metadata, &out.others}) std::ranges::sort(*list);
  return out;
}

struct MetadataLine {
  std::string name;                   // file_name
  std::vector<std::string> captions;  // text
  std::string place;                  // "metadata.jsonl:3"
};
using Captions = std::map<std::string, MetadataLine>;  // by the path of the picture

std::string file_name_in(const nlohmann::json& object, const std::string& place) {
  const auto it = object.find("file_name");
  require(it != object.end() && it->is_string(), "data: must have the text 'file_name'  ", place);
  return it->get<std::string>();
}

void read_metadata(const std::string& file, Captions& out) {
  std::istringstream lines(io::read_whole_file(file, "data", metadata_limit));
  int64_t number = 0;
  for (std::string text; std::getline(lines, text);) {
    const std::string place = str(file, ':', ++number);
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto j = parse_json(text);
    std::vector<std::string> all = captions_in_json(j, place);
    MetadataLine line{file_name_in(j, place), std::move(all), place};
    const fs::path path = (fs::path(file).parent_path() / line.name).lexically_normal();
    require(out.emplace(path.string(), std::move(line)).second,
            "data: the picture has a caption already  ", place);
  }
}

void list(const std::string& root, const CaptionedOptions& options, Captioned& out) {
  Files files = files_below(root, options);
  require(!files.pictures.empty(), "data: found no PNG, JPEG or WebP pictures (",
          files.others.size(), " other files)  ", root);
  Captions captions;
  for (const std::string& file : files.metadata) read_metadata(file, captions);
  std::set<std::string> used;  // of the texts
  for (const std::string& picture : files.pictures) {
    const fs::path below = fs::path(picture).lexically_relative(root).replace_extension();
    CaptionedPicture p{.file = picture, .name = picture, .key = below.generic_string()};
    const std::string text = fs::path(picture).replace_extension(".txt").string();
    const auto line = captions.extract(fs::path(picture).lexically_normal().string());
    const auto beside = std::ranges::lower_bound(files.others, text);
    const bool has_text = beside != files.others.end() && *beside == text;
    require(!has_text || line.empty(), "data: has a caption in ", metadata_name, " and in ", text,
            "  ", picture);
    if (has_text)
      p.captions = {caption_text(io::read_whole_file(text, "data", caption_limit), text)};
    if (has_text) used.insert(text);
    if (!line.empty()) p.captions = line.mapped().captions;
    p.captioned = has_text || !line.empty();
    out.pictures.push_back(std::move(p));
  }
  for (const auto& [path, line] : captions)
    fail("data: names no PNG, JPEG or WebP picture of the folder ('", line.name, "')  ",
         line.place);
  std::vector<std::string> lost;
  for (const std::string& file : files.others)
    if (!used.contains(file)) lost.push_back(fs::path(file).lexically_relative(root).string());
  if (!lost.empty())
    out.warnings.push_back(listed("files left out that are neither pictures nor captions", lost) +
                           "  " + root);
}

}  // namespace

const CaptionedSource& folder() {
  static const CaptionedSource s{
      .help = "a folder of pictures, with captions in .txt files beside them or in metadata.jsonl",
      .takes = takes,
      .general = true,
      .list = list};
  return s;
}

}  // namespace ebb::train::sources
