#include "io/new_folder.h"

#include <unistd.h>

#include "base/error.h"
#include "io/file.h"

namespace ebb::io {

namespace fs = std::filesystem;

NewFolder::NewFolder(const std::string& path, std::string who)
    : who_(std::move(who)), path_(fs::path(path).lexically_normal()) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  path_ = followed(path_.string());
  made_ = path_.string() + str(".tmp-", ::getpid());
  make_folder(made_.string(), who_);
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!done_) fs::remove_all(made_, ignored);
}

std::string NewFolder::file(const std::string& name) const {
  const fs::path out = made_ / name;
  make_folder(out.parent_path().string(), who_);
  return out.string();
}

void NewFolder::commit() {
  std::error_code error;
  ::rmdir(path_.c_str());  // an empty folder; a file stays, and rename says so
  fs::rename(made_, path_, error);
  require(!error, who_, ": cannot move the folder to its place (", error.message(), ")  ",
          path_.string());
  done_ = true;
}

}  // namespace ebb::io
