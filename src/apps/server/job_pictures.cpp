#include "apps/server/job_pictures.h"

#include <algorithm>

#include "apps/server/fault.h"

namespace ebb::server {

void throw_if_failed(const JobView& v) {
  if (v.error.status != 0) throw HttpFault(v.error.status, v.error.code, v.error.message);
}

std::vector<std::string> files_of_pictures(Store& store, const JobView& v) {
  std::vector<std::string> out;
  for (const JobImage& i : v.images)
    if (auto bytes = store.bytes(i.id)) out.push_back(std::move(*bytes));
  if (out.size() < v.images.size())
    throw HttpFault(507, "pictures_are_gone",
                    str(v.images.size() - out.size(), " of the ", v.images.size(),
                        " pictures of the job are not there any more: those that are not kept lie "
                        "in memory, of at most ",
                        store.most_in_memory(), " bytes; ask for fewer at a time"));
  return out;
}

void check_fits_memory(const JobSpec& spec, size_t most_bytes) {
  const int64_t bytes = 3 * spec.pixels * spec.images();
  if (bytes > static_cast<int64_t>(most_bytes))
    fail_field("n", spec.images(), " pictures of ", spec.pixels, " pixels may have ", bytes,
               " bytes, and pictures that are not kept ", most_bytes,
               " at most; ask for fewer at a time");
}

}  // namespace ebb::server
