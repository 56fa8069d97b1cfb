// Which files a run wrote: what is told of them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "pipeline/request.h"

namespace ebb::cli {

struct WrittenFile {
  std::string file;
  std::vector<int64_t> images;  // their indices in the request; at least one
};

// By the first of their images.
std::vector<WrittenFile> in_order(std::vector<WrittenFile> files);

// Where they are: one file, or those of a folder, by their first and last where no other lies in
// between. `out`: where there are none.
std::string place_of(const std::vector<WrittenFile>& files, const std::string& out);

// [{"file": ..., "images": [{"image": 3, "seed": 1}]}], of images from number `first_image` on.
nlohmann::ordered_json json_of(const std::vector<WrittenFile>& files, int64_t first_image,
                               const ResolvedRequest& request);

}  // namespace ebb::cli
