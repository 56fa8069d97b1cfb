// The files that a command reads: they must not be overwritten, and a picture says which they were.
#pragma once

#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/file_hash.h"

namespace ebb::cli {

struct InputFile {
  std::string name;  // its flag without hyphens, with a number behind it from the second on
  std::string text;  // of the flag: the path, perhaps with more behind a ':' or before a '='
  std::string path;  // "" where the text names no file that exists
};

// Those that flags name. Empty texts are left out.
class InputFiles {
 public:
  void add(const std::string& flag, const std::string& text);
  void add(const std::string& flag, const std::vector<std::string>& texts);
  const std::vector<InputFile>& all() const { return files_; }

 private:
  std::vector<InputFile> files_;
};

// Throws Error for a text that names nothing that is there, with its flag.
void check_there(const InputFiles& files, std::string_view command);

// Whether both paths lead to one file, or would if it were there.
bool same_file(const std::string& a, const std::string& b);

// Throws Error if `out` is one of the files, by whatever path. `subject`: the command and the flag
// that names `out`.
void check_not_input(const std::string& out, const InputFiles& files, std::string_view subject);

// SHA-256 of files, by name: the first ten digits, as other programs have them.
using HashTexts = std::map<std::string, std::string>;

// Computed beside other work.
class InputHashes {
 public:
  explicit InputHashes(const InputFiles& files);
  // Waits for them. Without folders and files that cannot be read.
  HashTexts texts();

 private:
  std::list<std::pair<std::string, FileHash>> hashes_;
};

// A line for each file that is not the one that a picture was made with.
std::vector<std::string> other_files(const HashTexts& made_with, const HashTexts& now);

}  // namespace ebb::cli
