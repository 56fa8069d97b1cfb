// loops: several loops that do not depend on each other, in one launch: queries and keys, each with
// heads of its own, or other small work on tensors of several shapes. Made by passes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/loop/op.h"

namespace ebb::ops {

// As text: "[{expr=... shape=...};{...}]".
class LoopList final : public TextValue {
 public:
  std::vector<Loop> items;
  std::string text() const override;
  void parse(std::string_view text) override;  // throws Error
};

// Inputs: those of the first loop, of the second, ...; outputs likewise.
struct Loops {
  LoopList loops;
  void fields(auto&& f) { f("loops", static_cast<TextValue&>(loops)); }
};

namespace def {
const OpDef& loops();
}

// The uses of `loop` that a use of loops is, in order.
std::vector<Signature> parts_of(const Signature& s);
// The other way round, of loops that differ in their sizes and in where slices begin.
extern const Together loops_together;

}  // namespace ebb::ops
