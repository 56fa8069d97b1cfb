// How training is split over ranks: each rank computes on its share of every batch, and what all
// of them would keep alike may be kept in parts (Rajbhandari et al. 2020, arXiv:1910.02054).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "ir/graph.h"

namespace ebb::train {

// What each rank keeps a part of, besides the batch.
enum class Shard : uint8_t {
  none,       // nothing; gradients are summed over all ranks
  optimizer,  // weights, averages and moments; the weights that a step reads are gathered for it
  weights,    // the same, and they are gathered again for the backward pass
};
const std::vector<std::string>& shard_names();  // in the order of the enumerators
std::vector<std::string> shard_choices();       // "auto", and those
// auto: states in parts take less memory and their update less time, and no more is sent in a step;
// but of every micro-batch where gradients accumulate, which whole ones send once. Throws Error.
Shard parse_shard(const std::string& name, bool accumulates = false);

struct Split {
  int64_t ranks = 1, rank = 0;
  Shard shard = Shard::none;
  DType sent = DType::f32;  // of gradients, while ranks exchange them
  int64_t grain = 1;        // elements: parts are multiples, as Optimizer::grain has it
};

// Whether a trained weight of this type, its average and its moments are kept in parts. What is
// small, or not a multiple of the ranks and their grain, is kept whole on each.
bool is_split(const Type& whole, const Split& split);
// The type of a part, and that of this rank, which shares the memory of the whole.
Type part_type(const Type& whole, const Split& split);
Tensor part_of(const Tensor& whole, const Split& split);

// `g` with the trained weights that are split as sources of their parts, gathered where they are
// read: as what they are cast to, where they are cast. Its gradients are sums over all ranks.
Graph gather_parts(const Graph& g, const Split& split);

// `g` with the f32 sums over ranks whose parts they keep as sums of `sent`, from which on they are
// f32 again.
Graph send_sums_in(const Graph& g, DType sent);
// The sum of an f32 value over all ranks, sent in that dtype.
Value sum_over_ranks(Value v, const Split& split);

}  // namespace ebb::train
