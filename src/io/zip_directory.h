// Where a zip archive has its files: the directory at its end (PKWARE's APPNOTE 6.3.9, with zip64).
//
// Libraries for archives unpack; what is stored here is read and mapped in place, so all that is
// needed is the places.
#pragma once

#include <string>
#include <vector>

#include "io/file.h"

namespace ebb::io {

struct ZipEntry {
  std::string name;
  int64_t begin = 0, end = 0;  // bytes of the archive
};

// All files of the archive, which must be stored: neither compressed nor encrypted. Throws Error
// "zip: <rule> (<numbers>)  <file>".
std::vector<ZipEntry> read_zip_directory(const ReadFile& file);

}  // namespace ebb::io
