// Gated products, the GLU family (Shazeer 2020).
#pragma once

#include <string>

#include "base/enum_field.h"
#include "functions/function.h"

namespace ebb::functions {

// Which half of the columns is activated.
enum class Gate : uint8_t { first, second };
constexpr ValueNames<2> value_names(Gate) { return {"gate", {"first", "second"}}; }

struct GateRule {
  std::string act = "silu";  // see activation()
  Gate gate = Gate::second;
};

// One of two tensors times the activation of the other.
Value gated(Value first, Value second, const GateRule& rule);
// z [...,2F] -> [...,F]: of the halves of its columns.
Value gated(Value z, const GateRule& rule);

// A linear layer, x [...,K], weight [F,K], bias [F] or none, with at least one column K.
Value product(Value x, Value weight, Value bias);

}  // namespace ebb::functions
