// Gated products, the GLU family (Shazeer 2020).
#pragma once

#include <string>

#include "functions/function.h"

namespace ebb::functions {

struct GateRule {
  std::string act = "silu";     // see activation()
  std::string gate = "second";  // which half of the columns is activated: "first" or "second"
};

// z [...,2F] -> [...,F]: one half times the activation of the other.
Value gated(Value z, const GateRule& rule);

}  // namespace ebb::functions
