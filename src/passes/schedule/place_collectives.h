// place_collectives: when collectives begin, and which are one.
//
// - What depends on inputs, as sums of gradients do, begins as soon as its operands are there.
// - What depends on parameters and states alone, as weights that the ranks hold in parts do, begins
//   ahead of its first reader by about two buckets.
//
// Collectives of one op that would begin at about the same place become one node of many operands,
// a bucket: one latency for many bytes. Buckets are in the order in which their operands are there
// (Li et al. 2020, arXiv:2006.15704), or are needed. What nothing hides is small: the first weights
// that are gathered and the last sums; from there buckets grow. Small operands all come with these,
// so that the other ones need no packing.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace ebb {

struct PlaceCollectives {
  int64_t bucket = int64_t{32} << 20;  // bytes; a larger operand is one of its own
  int64_t growing = 3;                 // buckets, each of half the bytes of the next one
  int64_t small = int64_t{64} << 10;   // bytes: to copy fewer takes no less time
  // What depends on parameters alone is not kept from the forward to the backward pass, which
  // begins behind the output of this name, but gathered again. Empty: it is kept.
  std::string again_after = {};
};

Graph place_collectives(const Graph& g, const PlaceCollectives& how);

}  // namespace ebb
