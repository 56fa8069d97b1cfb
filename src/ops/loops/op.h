// loops: several loops that do not depend on each other, in one launch: queries and keys, each with
// heads of its own, or the optimiser over all weights. They differ in their sizes and in where
// slices begin, and in nothing else. Made by passes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/list_of.h"
#include "ops/loop/op.h"

namespace ebb::ops {

// What a loop has for itself.
struct LoopSizes {
  std::vector<int64_t> shape;
  std::vector<int64_t> begin, end;  // of its slices
};

std::string text_of(const LoopSizes& s);               // "2x3x8", "-" without dims; "2x8:0-8:16-24"
void parse_text(LoopSizes& s, std::string_view text);  // throws Error

// Inputs: those of the first loop, of the second, ...; outputs likewise.
struct Loops {
  Loop loop;  // without what `sizes` has, one a loop
  ListOf<LoopSizes> sizes;
  void fields(auto&& f) {
    loop.fields(f);
    f("sizes", sizes);
  }
};

namespace def {
const OpDef& loops();
}

// The use of `loop` that a use of loops has in its place `index`; and all, in order.
Signature part_of(const Signature& s, size_t index);
std::vector<Signature> parts_of(const Signature& s);
// The other way round, of uses of `loop`.
extern const Together loops_together;

}  // namespace ebb::ops
