// The web page: files of src/apps/server/page/, compiled in and compressed once.
#pragma once

#include <vector>

#include "apps/server/route.h"

namespace ebb::server {

// "/" is index.html, "/training" is training.html; without the former, a 404 that says so.
std::vector<Route> page_routes();

}  // namespace ebb::server
