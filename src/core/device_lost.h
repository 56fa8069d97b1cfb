// DeviceLost: the Error of a device on which nothing can run any more in this process, as behind a
// kernel's access to memory that is not its own. Whoever catches it can but end: for these errors
// CUDA's documentation of cudaError says that the process must be terminated and relaunched, also
// where its contexts were made anew.
#pragma once

#include "base/error.h"

namespace ebb {

class DeviceLost : public Error {
 public:
  using Error::Error;
};

}  // namespace ebb
