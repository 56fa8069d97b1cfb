#include "apps/cli/input_files.h"

#include <filesystem>

#include "apps/cli/command.h"
#include "base/error.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

// What stands before a '=' and behind a ':' is left out where the rest names a file.
std::string path_in(const std::string& text) {
  std::error_code ignored;
  const size_t equals = text.find('=');
  for (const size_t from : {size_t{0}, equals == text.npos ? text.size() : equals + 1})
    for (std::string path = text.substr(from); !path.empty();) {
      if (fs::exists(path, ignored)) return path;
      const size_t colon = path.rfind(':');
      path.resize(colon == path.npos ? 0 : colon);
    }
  return "";
}

}  // namespace

void InputFiles::add(const std::string& flag, const std::string& text) {
  if (!text.empty()) files_.push_back({flag, text, path_in(text)});
}

void InputFiles::add(const std::string& flag, const std::vector<std::string>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) add(i == 0 ? flag : str(flag, ' ', i + 1), texts[i]);
}

void check_there(const InputFiles& files, std::string_view command) {
  for (const InputFile& f : files.all()) {
    if (!f.path.empty()) continue;
    const std::string flag = flag_of(f.name.substr(0, f.name.find(' ')));
    std::error_code error;
    const bool closed = !fs::exists(f.text, error) && error;
    require(!closed, command, ": ", flag, " cannot be read (", error.message(), ")  ", f.text);
    fail(command, ": ", flag, " does not exist  ", f.text);
  }
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  if (fs::equivalent(a, b, ignored)) return true;
  const auto whole = [&](const std::string& path) {
    const fs::path p = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
    return p.has_filename() ? p : p.parent_path();  // without a / behind
  };
  return whole(a) == whole(b);
}

void check_not_input(const std::string& out, const InputFiles& files, std::string_view subject) {
  std::error_code ignored;
  for (const InputFile& f : files.all())
    require(fs::is_directory(out, ignored) || !fs::equivalent(f.path, out, ignored), subject,
            " must not overwrite its input  ", out);
}

InputHashes::InputHashes(const InputFiles& files) {
  for (const InputFile& f : files.all())
    if (!f.path.empty())
      hashes_.emplace_back(std::piecewise_construct, std::forward_as_tuple(f.name),
                           std::forward_as_tuple(f.path));
}

HashTexts InputHashes::texts() {
  constexpr size_t digits = 10;
  HashTexts out;
  for (auto& [name, hash] : hashes_)
    if (!hash.hex().empty()) out[name] = hash.hex().substr(0, digits);
  return out;
}

std::vector<std::string> other_files(const HashTexts& made_with, const HashTexts& now) {
  std::vector<std::string> out;
  for (const auto& [name, hash] : made_with)
    if (const auto it = now.find(name); it != now.end() && it->second != hash)
      out.push_back(str("like: ", flag_of(name),
                        " is another file than the one that made the picture ", "(SHA-256 ",
                        it->second, "..., not ", hash, "...)"));
  return out;
}

}  // namespace ebb::cli
