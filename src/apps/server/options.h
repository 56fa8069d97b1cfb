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
  // Those of `changes`, all or, where it throws, none; unknown ones are kept, too. Throws HttpFault
  // 413 for more than 1,000 options, as each job looks through them, or too many bytes, 507 where
  // they cannot be written.
  void set(const Json& changes);

 private:
  std::string file_;
  std::mutex writing_;        // of the file; locked before the other
  mutable std::mutex mutex_;  // the worker waits for it: under it nothing is written
  Json options_;
};

}  // namespace ebb::server
