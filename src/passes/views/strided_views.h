// strided_views: permutations, slices and concatenations around ops that read and write through
// strides (OpDef::viewed): attention and its gradient.
#pragma once

#include "passes/views/viewed_graph.h"

namespace ebb {

void view_strided(ViewedGraph& v, const Supports& supports);

}  // namespace ebb
