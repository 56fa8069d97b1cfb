// What a picture, or a text of settings, says of how it was made, as settings of this server.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "apps/server/json_body.h"

namespace ebb::server {

// {"parameters","settings","notes"}: settings that differ from the defaults, as the native protocol
// takes them; names of files, not their folders. Throws HttpFault 422 for texts that say nothing.
Json inspected(const std::map<std::string, std::string>& text);

}  // namespace ebb::server
