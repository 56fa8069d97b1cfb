#include "apps/server/comfy/uploads.h"

#include <algorithm>

#include "apps/server/byte_span.h"
#include "apps/server/client_names.h"
#include "apps/server/fault.h"
#include "apps/server/pictures.h"
#include "io/image.h"

namespace ebb::server::comfy {
namespace {

constexpr size_t most_uploads = 64, most_bytes = size_t{256} << 20, longest = 200;

// The last part of a client's path.
std::string plain_name(std::string_view name) {
  name.remove_prefix(std::min(name.find_last_of("/\\") + 1, name.size()));
  if (name.empty() || !is_name(name, longest))
    throw HttpFault(400, "bad_request",
                    str("image: the file's name must be 1 to ", longest, " printable signs"),
                    "image");
  return std::string(name);
}

std::vector<uint8_t> mask_of(std::string_view bytes) {
  if (io::decode_with_alpha(byte_span(bytes), "image").shape()[2] % 2 != 0) return {};
  return io::encode_png(decoded_mask(bytes, MaskRule::transparent, "image"));
}

}  // namespace

std::string Uploads::add(std::string_view name, std::string_view bytes, bool overwrite) {
  Upload one{.name = plain_name(name),
             .png = io::encode_png(decoded_picture(bytes, "image")),
             .mask = mask_of(bytes)};
  const std::lock_guard lock(mutex_);
  const auto same_name = [&](const Upload& u) { return u.name == one.name; };
  const std::string asked = one.name;
  for (int number = 1; !overwrite; ++number) {
    const auto other = std::ranges::find_if(held_, same_name);
    if (other == held_.end() || (other->png == one.png && other->mask == one.mask)) break;
    const size_t dot = std::min(asked.rfind('.'), asked.size());
    one.name = str(asked.substr(0, dot), " (", number, ")", asked.substr(dot));
  }
  std::erase_if(held_, same_name);
  held_.push_back(one);
  size_t all = 0;
  for (const Upload& u : held_) all += u.bytes();
  while (held_.size() > 1 && (held_.size() > most_uploads || all > most_bytes)) {
    all -= held_.front().bytes();
    held_.pop_front();
  }
  return one.name;
}

std::optional<Upload> Uploads::find(std::string_view name) const {
  constexpr std::string_view folder = " [input]";
  if (name.ends_with(folder)) name.remove_suffix(folder.size());
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(held_, name, &Upload::name);
  return at == held_.end() ? std::nullopt : std::optional(*at);
}

std::vector<std::string> Uploads::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const Upload& u : held_) out.push_back(u.name);
  return out;
}

}  // namespace ebb::server::comfy
