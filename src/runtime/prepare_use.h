// Preparing the kernel that was chosen for a use.
#pragma once

#include "runtime/tuner.h"

namespace ebb {

struct PreparedUse {
  Choice choice;
  Program program;
};

// The choice, prepared for the use. It may be the winner of others alike, and its kernel refuse
// this one (for its sizes, say): then the first of the use's own candidates that is not
// refused. Throws the first Error if all are.
PreparedUse prepare_use(const Use& use, const Choice& choice, Device& device);

}  // namespace ebb
