#include "runtime/context.h"

#include <vector>

#include "base/error.h"
#include "base/names.h"

#define X(name)                                                 \
  namespace ebb::backend::name {                                \
  std::shared_ptr<ebb::Device> open(const ebb::DeviceOptions&); \
  }
#include "ebb/gen/backends.inc"
#undef X

namespace ebb {

Context open_context(std::string_view backend, const DeviceOptions& options) {
  std::vector<std::string> known;
#define X(name)                                                \
  if (backend == #name) return {backend::name::open(options)}; \
  known.emplace_back(#name);
#include "ebb/gen/backends.inc"
#undef X
  require(backend != "cuda", "device: this program was built without CUDA (there is ", known[0],
          ")");
  fail("device: unknown name '", backend, "'", suggestion(backend, known));
}

}  // namespace ebb
