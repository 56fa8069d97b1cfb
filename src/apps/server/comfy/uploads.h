// Uploads: pictures that clients of ComfyUI's protocol send before the graphs that name them. The
// newest ones, in memory, decoded and encoded again. Any thread may call.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::server::comfy {

struct Upload {
  std::string name;           // a key alone: no path is made of it
  std::vector<uint8_t> png;   // u8 [H,W,3]
  std::vector<uint8_t> mask;  // a PNG of [H,W,1]: white where it was transparent; empty: nowhere
  size_t bytes() const { return png.size() + mask.size(); }
};

class Uploads {
 public:
  // The bytes of a picture under a client's name; `overwrite`: in place of another one of that
  // name. Gives the name that it has. Throws HttpFault 400 or 413.
  std::string add(std::string_view name, std::string_view bytes, bool overwrite);
  // "a.png", or "a.png [input]" as graphs may write it.
  std::optional<Upload> find(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  mutable std::mutex mutex_;
  std::deque<Upload> held_;  // the oldest first
};

}  // namespace ebb::server::comfy
