// NotFinite: the Error of runs whose numbers are lost, for those who know what may have done it.
#pragma once

#include "base/error.h"

namespace ebb {

class NotFinite : public Error {
 public:
  using Error::Error;
};

// Throws NotFinite unless `ok`.
template <class... Parts>
void require_finite(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw NotFinite(str(parts...));
}

}  // namespace ebb
