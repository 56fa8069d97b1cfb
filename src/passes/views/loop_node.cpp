#include "passes/views/loop_node.h"

#include <algorithm>
#include <numeric>

#include "ir/expr_inputs.h"
#include "ops/prim/reshape/op.h"

namespace ebb {
namespace {

// A loop's expression: what is reduced, and its results.
struct Expressions {
  std::vector<Scalar> reduced, results;
};
Expressions expressions_of(const ops::Loop& loop) {
  const std::vector<Scalar> all = loop.expr.apply(inputs_as_scalars(loop.expr));
  const auto results = all.begin() + static_cast<int64_t>(loop.reductions.size());
  return {{all.begin(), results}, {results, all.end()}};
}
Expr expr_of(int64_t inputs, const Expressions& e) {
  std::vector<Scalar> all = e.reduced;
  all.insert(all.end(), e.results.begin(), e.results.end());
  return Expr(inputs, all);
}

std::vector<int64_t> widths_of(const Graph& g, std::span<const int32_t> segments) {
  std::vector<int64_t> widths;
  for (const int32_t v : segments) widths.push_back(g.type(v).shape[-1]);
  return widths;
}

}  // namespace

Signature LoopNode::signature(const Graph& g) const {
  Signature s{&ops::def::loop(), loop, {}, {}, at};
  for (const Input& i : in) s.in.push_back({g.type(i.value).dtype, i.shape});
  s.out = s.op->infer(s);
  return s;
}

std::optional<LoopNode> loop_node_of(const Graph& g, const Node& n) {
  std::optional<ops::Loop> loop = ops::loop_of(g, n);
  if (!loop) return {};
  LoopNode l{std::move(*loop), {}, n.out, n.at};
  for (const int32_t v : n.in) l.in.push_back({v, g.type(v).shape});
  return l;
}

LoopNode reading_segments(const Graph& g, LoopNode l, int32_t whole,
                          std::span<const int32_t> segments) {
  SegmentInputs inputs{.widths = widths_of(g, segments), .in = {}};
  for (const int32_t v : segments) inputs.in.push_back({v, g.type(v).shape});
  return reading_segments(std::move(l), whole, inputs);
}

LoopNode reading_segments(LoopNode l, int32_t whole, const SegmentInputs& segments) {
  const ops::Segments before = l.loop.segments;
  const std::vector<LoopNode::Input> in = std::exchange(l.in, {});
  l.loop.segments.widths = segments.widths;
  l.loop.segments.dim = segments.dim;
  for (size_t k = 0; k < in.size(); ++k) {
    const size_t operand = operand_of(before, k);
    if (in[k].value != whole || before.has_in(operand)) {
      l.in.push_back(in[k]);
      continue;
    }
    l.loop.segments.segmented_in.push_back(static_cast<int64_t>(operand));
    l.in.insert(l.in.end(), segments.in.begin(), segments.in.end());
  }
  std::ranges::sort(l.loop.segments.segmented_in);
  return l;
}

LoopNode also_writing(const Graph& g, LoopNode l, int32_t whole, size_t operand) {
  Expressions e = expressions_of(l.loop);
  e.results.push_back(Scalar::input(static_cast<int64_t>(operand)));
  l.loop.expr = expr_of(l.loop.expr.inputs(), e);
  l.loop.results.push_back({g.type(whole).dtype});
  l.out.push_back(whole);
  return l;
}

LoopNode reading_slice(LoopNode l, size_t in, const OperandSlice& view) {
  l.loop.slices.add(operand_of(l.loop.segments, in), view.begin, view.end, view.dim);
  l.in[in].value = view.base;
  l.in[in].shape[view.dim] = view.size;
  return l;
}

LoopNode reading_swap(LoopNode l, size_t in, int32_t base, int64_t run) {
  l.loop.swaps.add(operand_of(l.loop.segments, in), run);
  l.in[in].value = base;
  return l;
}

LoopNode writing_segments(const Graph& g, LoopNode l, size_t result,
                          std::span<const int32_t> segments) {
  ops::Segments& s = l.loop.segments;
  size_t at = 0;
  for (size_t k = 0; k < result; ++k) at += s.has_out(k) ? s.widths.size() : 1;
  s.widths = widths_of(g, segments);
  s.segmented_out.push_back(static_cast<int64_t>(result));
  std::ranges::sort(s.segmented_out);
  const auto place = l.out.erase(l.out.begin() + static_cast<int64_t>(at));
  l.out.insert(place, segments.begin(), segments.end());
  return l;
}

LoopNode writing_concatenation(LoopNode l, std::span<const size_t> outputs, int32_t whole) {
  std::vector<size_t> order(l.out.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (const size_t k : outputs) {
    std::erase(order, k);
    order.push_back(k);
  }
  const Expressions before = expressions_of(l.loop);
  Expressions e{before.reduced, {}};
  ListOf<ops::LoopResult> results;
  std::vector<int32_t> out;
  for (const size_t k : order) {
    e.results.push_back(before.results[k]);
    results.push_back(l.loop.results[k]);
    out.push_back(l.out[k]);
  }
  out.resize(out.size() - outputs.size());
  out.push_back(whole);
  l.loop.expr = expr_of(l.loop.expr.inputs(), e);
  l.loop.results = results;
  l.loop.concatenated = static_cast<int64_t>(outputs.size());
  l.out = out;
  return l;
}

// By operand, an earlier one that is the same tensors, or -1; none if there are none. Partners of a
// rotation are told so alone: a loop without views reads a tensor once in any case.
static std::vector<int64_t> same_operands(const LoopNode& l) {
  std::vector<std::vector<std::pair<int32_t, Shape>>> operands;
  std::vector<int64_t> same;
  for (size_t first = 0; !l.loop.swaps.empty() && first < l.in.size();) {
    const bool segmented = l.loop.segments.has_in(operands.size());
    const size_t end = first + (segmented ? l.loop.segments.widths.size() : 1);
    std::vector<std::pair<int32_t, Shape>> own;
    for (; first < end; ++first) own.emplace_back(l.in[first].value, l.in[first].shape);
    const auto at = std::ranges::find(operands, own);
    same.push_back(at == operands.end() ? -1 : at - operands.begin());
    operands.push_back(std::move(own));
  }
  if (std::ranges::all_of(same, [](int64_t k) { return k < 0; })) same.clear();
  return same;
}

void add_loop(const LoopNode& l, Rewriter& rw) {
  const AtScope scope(rw.to(), l.at);
  std::vector<Value> in;
  for (const LoopNode::Input& i : l.in) in.push_back(ops::reshape(rw.map(i.value), i.shape));
  ops::Loop loop = l.loop;
  loop.same = same_operands(l);
  const std::vector<Value> out = rw.to().add(ops::def::loop(), loop, in);
  for (size_t k = 0; k < out.size(); ++k)
    rw.set(l.out[k], ops::reshape(out[k], rw.from().type(l.out[k]).shape));
}

}  // namespace ebb
