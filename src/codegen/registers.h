// Registers of a kernel's values: which values share one with a variable.
#pragma once

#include <vector>

#include "codegen/ir.h"

namespace ebb::codegen {

// Instructions without an effect of their own: a read whose value can be taken from the variable
// itself, since nothing is written to it as long as the value is used; a write right behind the
// instruction that makes the value and has no other use, which then makes it in the variable.
struct SharedRegisters {
  explicit SharedRegisters(const Kernel& kernel);
  std::vector<int32_t> same_as;  // by value: the variable that holds it, or itself
  std::vector<bool> vanishes;    // by instruction
};

}  // namespace ebb::codegen
