// What the collectives (all_reduce, reduce_scatter, all_gather, broadcast) have in common. Each is
// computed by the device's communicator, over any number of operands at once: more bytes for one
// latency. The graph, and so the plan, is the same on every rank.
#pragma once

#include <vector>

#include "ir/kernel.h"
#include "ir/op.h"

namespace ebb::ops {

struct Collective {
  int64_t ranks = 1;
  void fields(auto&& f) { f("ranks", ranks); }
};

// The types of the results: `scale` times, or one `share`-th of, an operand's leading dim. Throws
// Error where they cannot be.
std::vector<Type> infer_collective(const Signature& sig, int64_t scale, int64_t share);

// A collective's definition: what all have, and what tells them apart.
OpDef collective_op(std::string_view name, decltype(OpDef::infer) infer, decltype(OpDef::vjp) vjp,
                    decltype(OpDef::reference) reference);

// The kernel of a collective: what `method` of the device's communicator does; a copy where there
// is one rank. Element counts are those of the smaller side, results or operands.
using CollectiveMethod = void (Communicator::*)(std::span<const Communicator::Operand>);
bool can_run_collective(const Signature& sig, const Device& device);
Program prepare_collective(const Signature& sig, Device& device, CollectiveMethod method);

template <CollectiveMethod method>
std::vector<Kernel> collective_kernels(std::string_view op, bool in_place) {
  return {{.op = op,
           .name = op,
           .supports = can_run_collective,
           .prepare = +[](const Signature& s, const Tune&,
                          Device& d) { return prepare_collective(s, d, method); },
           .in_place = in_place,
           .may_alias = in_place
                            ? +[](const Signature&, size_t out, size_t in) { return out == in; }
                            : nullptr}};
}

}  // namespace ebb::ops
