// OutOfMemory: the Error of memory that is short. Who holds some that can be freed may catch it,
// free that and try again; any other Error would come again.
#pragma once

#include "base/error.h"

namespace ebb {

class OutOfMemory : public Error {
 public:
  using Error::Error;
};

}  // namespace ebb
