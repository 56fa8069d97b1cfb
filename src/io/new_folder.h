// NewFolder: a folder that appears whole. Where there is none yet it is made beside its place and
// moved there in the end; an empty one, which may be a mount point, gets its entries in the end.
#pragma once

#include <filesystem>
#include <string>

#include "base/temporary.h"

namespace ebb::io {

class NewFolder {
 public:
  // `path` may be a link to a folder. `who` begins the errors, which all members throw.
  NewFolder(const std::string& path, std::string who);
  ~NewFolder();  // removes what was not committed, unless commit() failed
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  std::string file(const std::string& name) const;  // its path for now; makes folders within
  void commit();                                    // an empty folder in its place is replaced

 private:
  std::string who_;
  std::filesystem::path path_, made_;
  bool exists_ = false, keeps_ = false;
  Descriptor held_;  // of made_
};

}  // namespace ebb::io
