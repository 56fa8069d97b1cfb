#include "runtime/lowering.h"

#include <algorithm>

#include "base/error.h"
#include "base/names.h"
#include "ops/loop/op.h"
#include "ops/loops/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/table.h"
#include "passes/contractions/fold_producers.h"
#include "passes/contractions/fuse_epilogues.h"
#include "passes/contractions/merge_matmuls.h"
#include "passes/fusion/fuse_horizontally.h"
#include "passes/fusion/fuse_loops.h"
#include "passes/fusion/inline_producers.h"
#include "passes/fusion/rematerialise.h"
#include "passes/lower.h"
#include "passes/precision/narrow_results.h"
#include "passes/precision/narrow_weights.h"
#include "passes/schedule/place_collectives.h"
#include "passes/simplify.h"
#include "passes/views/copies.h"
#include "passes/views/elide_copies.h"
#include "passes/views/hoist_views.h"

namespace ebb {
namespace {

// Whether both signatures have a preferred kernel and these are `alike`.
auto preferred_kernels(Lowering& l, bool (*alike)(const Kernel&, const Kernel&)) {
  return [&l, alike](const Signature& a, const Signature& b) {
    const Kernel *for_a = l.preferred(a), *for_b = l.preferred(b);
    return for_a && for_b && alike(*for_a, *for_b);
  };
}
auto same_kernel(Lowering& l) {
  return preferred_kernels(l, [](const Kernel& a, const Kernel& b) { return &a == &b; });
}
auto same_family(Lowering& l) {
  return preferred_kernels(l, [](const Kernel& a, const Kernel& b) {
    return &a == &b || (!a.family.empty() && a.family == b.family);
  });
}

auto is_weight(const Graph& g, const Lowering& l) {
  return [&g, &weights = *l.options.weights](const Source& s) { return weights.holds(g, s); };
}

// Whether no adapter changes a weight.
auto is_unchanged(Lowering& l) {
  return [&l](const Source& s) {
    const bool changed = l.options.weights->is_changed(s.name);
    l.changed[s.name] = changed;
    return !changed;
  };
}

// Updates need computed values: a source that updates another one is copied by a node of its own.
Graph with_computed_updates(const Graph& g, Lowering&) {
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) rw.copy(n);
  for (const NamedValue& o : g.outputs()) rw.to().output(o.name, rw.map(o.value));
  for (const NamedValue& u : g.updates()) {
    Value v = rw.map(u.value);
    if (g.producer(root_of(g, u.value)) < 0)
      v = ops::map(
          {v}, [](auto x) { return x[0]; }, v.dtype());
    rw.to().update(u.name, v);
  }
  return rw.take();
}

// Activations in epilogues could not be recomputed cheaply.
Graph with_epilogues(const Graph& g, Lowering& l) {
  FuseEpilogues how{.supports = same_kernel(l), .sums_only = l.mode != LoweringMode::no_recompute};
  if (l.options.weights) how.is_weight = is_weight(g, l);
  return fuse_epilogues(g, how);
}

Graph split_off_weights(const Graph& g, Lowering& l) {
  l.prepared = prepare(g, is_weight(g, l));
  return std::move(l.prepared.step);
}

bool stores_weights(const Lowering& l) { return l.options.weights != nullptr; }
// On the host, weights are read where the file has them.
bool merges_weights(const Lowering& l) {
  return stores_weights(l) && l.options.fuse && !l.device.on_host();
}
bool reads_files(const Lowering& l) { return stores_weights(l) && l.device.on_host(); }
bool fuses(const Lowering& l) { return l.options.fuse; }
bool has_ranks(const Lowering& l) { return l.device.communicator() != nullptr; }

Graph with_placed_collectives(const Graph& g, Lowering& l) {
  PlaceCollectives how;
  if (l.options.gather_again) how.again_after = l.options.recompute.loss;
  return place_collectives(g, how);
}

InlineCosts inline_costs(const Lowering& l) {
  return {l.device.flops_per_pass(), l.device.hoists_row_scalars()};
}

constexpr Pass passes[] = {
    {.name = "as_stored",
     .what = "parameters in their files' dtypes and layouts",
     .run = [](const Graph& g, Lowering& l) { return l.options.weights->as_stored(g); },
     .when = stores_weights},
    {.name = "dead_code",
     .what = "what no output or update needs is left out",
     .run = [](const Graph& g, Lowering&) { return dead_code(g); }},
    {.name = "lower",
     .what = "ops without a kernel become their decompositions",
     .run = [](const Graph& g, Lowering& l) { return dead_code(lower(g, l.supported())); }},
    {.name = "common_subexpressions",
     .what = "equal nodes are one",
     .run = [](const Graph& g, Lowering&) { return common_subexpressions(g); }},
    {.name = "merge_casts",
     .what = "a cast of a lossless cast is one cast, and statistics are of what was cast",
     .run = [](const Graph& g, Lowering& l) { return merge_casts(g, l.supported()); }},
    {.name = "merge_matmuls",
     .what = "GEMMs of one embedding are one",
     .run = [](const Graph& g, Lowering& l) { return merge_matmuls(g, is_weight(g, l)); },
     .when = merges_weights},
    {.name = "fold_producers",
     .what = "convolutions of upsampled images are transposed convolutions",
     .run = [](const Graph& g,
               Lowering& l) { return fold_producers(g, is_weight(g, l), same_family(l)); },
     .when = merges_weights},
    {.name = "narrow_weights",
     .what = "weights of 16 bits stay so, where a kernel widens them when it reads them",
     .run =
         [](const Graph& g, Lowering& l) {
           return narrow_weights(g, is_weight(g, l), is_unchanged(l), l.supported());
         },
     .when = reads_files},
    {.name = "narrow_results",
     .what = "what is only read as a narrower dtype is made in it",
     .run = [](const Graph& g, Lowering& l) { return narrow_results(g, same_kernel(l)); },
     .when = fuses},
    {.name = "fuse_epilogues",
     .what = "GEMMs and convolutions compute what is made of their products",
     .run = with_epilogues,
     .when = fuses},
    {.name = "prepare",
     .what = "what depends on weights alone leaves the graph",
     .run = split_off_weights,
     .when = stores_weights},
    // Behind it no pass makes sources of values, or drops copies.
    {.name = "compute_updates",
     .what = "updates have computed values",
     .run = with_computed_updates},
    {.name = "hoist_views",
     .what = "what is read through a view is computed of views: at both elements of a rotated pair",
     .run = [](const Graph& g, Lowering&) { return hoist_views(g); },
     .makes = ops::def::loop,
     .when = fuses},
    {.name = "inline_producers",
     .what = "pointwise nodes are part of their readers",
     .run = [](const Graph& g,
               Lowering& l) { return dead_code(inline_producers(g, inline_costs(l))); },
     .when = fuses},
    {.name = "fuse_loops",
     .what = "nodes of one iteration space are one: norms and what is around them, siblings",
     .run =
         [](const Graph& g, Lowering& l) {
           return fuse_loops(g, {l.supported(), l.mode == LoweringMode::blocks,
                                 l.has_kernels_of(ops::def::loop())});
         },
     .when = fuses},
    {.name = "rematerialise",
     .what = "every other sum of residual blocks is made again where it is read",
     .run = [](const Graph& g,
               Lowering& l) { return rematerialise(g, l.options.recompute.loss, l.supported()); },
     .makes = ops::def::loop,
     .when = fuses},
    {.name = "elide_copies",
     .what = "slices, permutations and concatenations are views of the nodes around them",
     .run = [](const Graph& g, Lowering& l) { return elide_copies(g, l.supported()); },
     .when = fuses},
    {.name = "fuse_horizontally",
     .what = "equal work on many tensors is one node",
     .run = [](const Graph& g,
               Lowering& l) { return lower(fuse_horizontally(g, l.supported()), l.supported()); },
     .makes = ops::def::loops,
     .when = fuses},
    {.name = "place_collectives",
     .what = "collectives begin early, many tensors at once",
     .run = with_placed_collectives,
     .when = has_ranks},
};

}  // namespace

bool Lowering::has_kernels_of(const OpDef& op) const {
  return !kernels_of(op.name, device.backend()).empty();
}

const Kernel* Lowering::preferred(const Signature& s) {
  const std::vector<const Kernel*>& all = kernels.of(s);
  return all.empty() ? nullptr : all[0];
}

std::function<bool(const Signature&)> Lowering::supported() {
  return [this](const Signature& s) { return kernels.has(s); };
}

bool Pass::runs(const Lowering& l) const {
  return (!when || when(l)) && (!makes || l.has_kernels_of(makes()));
}

std::span<const Pass> lowering_passes() { return passes; }

Graph lowered(const Graph& g, Lowering& l, std::string_view last) {
  if (last.empty()) last = std::end(passes)[-1].name;
  const Pass& end = find_known("lowering: unknown pass", last, passes, &Pass::name);
  Graph out = g;
  for (const Pass* p = passes; p <= &end; ++p) {
    if (!p->runs(l)) continue;
    out = p->run(out, l);
    if (l.verify_each) verify(out, p->name);
  }
  if (l.verify_each) return out;
  try {
    verify(out, end.name);
  } catch (const Error&) {
    l.verify_each = true;  // it finds the pass
    lowered(g, l, last);
    throw;
  }
  return out;
}

Graph lowered_for(const Graph& g, const Device& device, const CompileOptions& options) {
  Lowering l{device, options};
  return lowered(g, l);
}

}  // namespace ebb
