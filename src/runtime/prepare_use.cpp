#include "runtime/prepare_use.h"

#include "core/out_of_memory.h"

namespace ebb {

PreparedUse prepare_use(const Use& use, const Choice& choice, Device& device) {
  const auto prepared = [&](const Choice& c) {
    return PreparedUse{c, c.kernel->prepare(use.sig, c.tune, device)};
  };
  try {
    return prepared(choice);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error&) {
    for (const Choice& c : candidates_of(use.kernels, use.sig, device)) try {
        return prepared(c);
      } catch (const Error&) {
        continue;  // the first Error tells more
      }
    throw;
  }
}

}  // namespace ebb
