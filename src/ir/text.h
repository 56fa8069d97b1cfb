// The text form of graphs: printed for people, read back for tests and tools.
//
//   param conv_in.weight : f32[64,3,3,3]
//   input x : f32[2,32,32,3]
//   %2 = conv2d(%1, %0) {stride=1} : f32[2,32,32,64]  @ conv_in
//   output y = %2
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ir/op.h"

namespace ebb {

std::string to_text(const Graph& g);

// Reads what to_text wrote; ops are looked up by name. Throws Error naming the line.
Graph parse_graph(std::string_view text, const std::function<const OpDef&(std::string_view)>& op);

}  // namespace ebb
