#include "io/new_folder.h"

#include <fcntl.h>

#include "base/error.h"
#include "base/temporary.h"
#include "io/file.h"

namespace ebb::io {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& path, std::string who)
    : who_(std::move(who)), path_(fs::absolute(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  path_ = followed(path_.string());
  exists_ = fs::is_directory(path_);
  const std::string place = exists_ ? (path_ / "").string() : path_.string();
  remove_abandoned(place);
  do {
    made_ = temporary_name(place);
    make_folder(made_.string(), who_);
    held_ = Descriptor(::open(made_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  } while (held_ && !hold_temporary(held_.number()));
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!keeps_) fs::remove_all(made_, ignored);
}

std::string NewFolder::file(const std::string& name) const {
  const fs::path out = made_ / name;
  make_folder(out.parent_path().string(), who_);
  return out.string();
}

namespace {

std::error_code moved(const fs::path& from, const fs::path& to) {
  return {take_new_name(from.string(), to.string()), std::generic_category()};
}

}  // namespace

void NewFolder::commit() {
  keeps_ = true;
  std::error_code error;
  if (exists_) {
    for (const fs::directory_entry& e : fs::directory_iterator(made_))
      if (!error) error = moved(e.path(), path_ / e.path().filename());
    if (!error) fs::remove(made_, error);
  } else {
    fs::rename(made_, path_, error);
  }
  // within a folder that was there, which may be a file system of its own
  const fs::path beside = exists_ ? path_ / path_.filename() : path_;
  if (error)
    fail(who_, ": cannot move what was made to its place (", error.message(), "); it is kept in ",
         keep_beside(made_.string(), beside.string()), "  ", path_.string());
}

}  // namespace ebb::io
