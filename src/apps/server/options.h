// Options: what clients of A1111's API set between requests. A job gets those of the moment when it
// is queued.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "apps/server/json_body.h"

namespace ebb::server {

class Options {
 public:
  // Read from the file and written to it where it is not "". Throws Error.
  explicit Options(std::string file);

  Json all() const;
  Json get(std::string_view name) const;  // null where it is not set
  // Those of `changes`; unknown ones are kept, too. Throws HttpFault 413 for more than 1,000
  // options, as each job looks through them, or too many bytes.
  void set(const Json& changes);

 private:
  std::string file_;
  mutable std::mutex mutex_;
  Json options_;
};

}  // namespace ebb::server
