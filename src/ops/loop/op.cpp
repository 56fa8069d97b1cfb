#include "ops/loop/op.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ops/expressions.h"
#include "ops/group_affine_grad/op.h"
#include "ops/loops/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

using Over = LoopReduction::Over;

// "a:b" as its halves.
std::pair<std::string_view, std::string_view> halves(std::string_view text) {
  const size_t colon = text.find(':');
  require(colon != std::string_view::npos, "loop: expected two words with a colon (got '", text,
          "')");
  return {text.substr(0, colon), text.substr(colon + 1)};
}

bool has_views(const Loop& a) {
  return !a.segments.widths.empty() || !a.slices.operands.empty() || a.concatenated != 0 ||
         !a.swaps.empty();
}

// ---- types -----------------------------------------------------------------------------------

// What is reduced depends on earlier reductions only; values of rows and of channels on nothing
// that changes along the row or with the pixels.
void check_order(const Signature& s, LoopKind kind) {
  const auto& a = s.as<Loop>();
  const size_t reductions = a.reductions.size();
  const Shape shape(a.shape);
  const auto changes = [&](const Shape& t) {
    return kind == LoopKind::pixels ? varies_over_pixels(t, shape)
                                    : varies_along_rows(t, a.row_dims);
  };
  for (size_t k = 0; k < reductions + a.results.size(); ++k) {
    const bool reduced = k < reductions;
    const bool whole = reduced ? a.reductions[k].over == Over::groups
                               : a.results[k - reductions].extent == Extent::row ||
                                     a.results[k - reductions].extent == Extent::channel;
    const std::vector<bool> used = inputs_of(a.expr, k, k + 1);
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      require(!reduced || i < s.in.size() + k, "loop: reduction ", k,
              " may only use those before it  at ", s.at);
      require(!whole || i >= s.in.size() || !changes(s.in[i].shape),
              "loop: ", reduced ? "reduction " : "result ", reduced ? k : k - reductions,
              " is one value a ", kind == LoopKind::pixels ? "channel" : "row", " but takes ",
              s.in[i], "  at ", s.at);
    }
  }
}

void check_result(const Loop& a, const LoopResult& r, LoopKind kind, std::string_view at) {
  const Shape shape(a.shape);
  const bool known =
      r.extent == Extent::element ||
      (r.extent == Extent::channel ? kind == LoopKind::pixels : kind == LoopKind::rows);
  require(known, "loop: results of extent ", name_of(r.extent),
          " need reductions of their kind  at ", at);
  require(r.extent != Extent::partial ||
              (r.dtype == DType::f32 && a.partial_rows > 0 && shape.rank() > a.row_dims &&
               shape[-1 - a.row_dims] % a.partial_rows == 0),
          "loop: sums of ", a.partial_rows, " rows need f32 and a multiple of rows (got ", r.dtype,
          ", ", shape, ")  at ", at);
}

std::vector<Type> infer_whole(const Signature& s) {
  const auto& a = s.as<Loop>();
  const LoopKind kind = kind_of(a);
  const Shape shape(a.shape);
  require(
      kind == LoopKind::map || shape.rank() >= (kind == LoopKind::rows ? a.row_dims.value() : 3),
      "loop: reductions need rows, or pixels and channels (got ", shape, ")  at ", s.at);
  require(a.row_dims > 0 && (kind == LoopKind::rows || a.row_dims == 1), "loop: rows of ",
          a.row_dims.value(), " dims are of loops along rows, and one at least  at ", s.at);
  const bool sums_rows = std::ranges::any_of(
      a.results, [](const LoopResult& r) { return r.extent == Extent::partial; });
  require((kind == LoopKind::pixels || a.groups == 1) && (sums_rows || a.partial_rows == 0),
          "loop: groups (", a.groups, ") are of loops over pixels, partial rows (", a.partial_rows,
          ") of results that sum them  at ", s.at);
  require(kind != LoopKind::pixels || (a.groups > 0 && shape[-1] % a.groups == 0),
          "loop: ", a.groups, " groups must divide the channels of ", shape, "  at ", s.at);
  require(a.expr.inputs() == static_cast<int64_t>(s.in.size() + a.reductions.size()),
          "loop: the expression takes ", a.expr.inputs(), " inputs (got ", s.in.size(), " and ",
          a.reductions.size(), " reductions)  at ", s.at);
  require(!a.results.empty() && a.reductions.size() + a.results.size() == a.expr.results().size(),
          "loop: the expression gives ", a.expr.results().size(), " results (for ",
          a.reductions.size(), " reductions and ", a.results.size(), " results)  at ", s.at);
  for (const Type& t : s.in)
    require(broadcastable(t.shape, shape), "loop: ", t, " does not broadcast to ", shape, "  at ",
            s.at);
  check_order(s, kind);
  std::vector<Type> out;
  for (const LoopResult& r : a.results) {
    check_result(a, r, kind, s.at);
    out.push_back({r.dtype, shape_of(a, r.extent)});
  }
  return out;
}

void check_views(const Signature& whole, const Loop& a) {
  const Segments& p = a.segments;
  const Shape shape(a.shape);
  check_swaps(a.swaps, whole.in, "loop");
  require(p.widths.empty() || (p.dim < 0 && shape.rank() >= -p.dim && p.width() == shape[p.dim]),
          "loop: segments (", p.width(), ") must fill dim ", p.dim.value(), " of ", shape, "  at ",
          whole.at);
  for (const int64_t i : p.segmented_in)
    require(p.dim != -1 || whole.in[static_cast<size_t>(i)].shape == shape, "loop: operand ", i,
            " is segmented and must be of shape ", shape, " (got ",
            whole.in[static_cast<size_t>(i)], ")  at ", whole.at);
  for (const int64_t k : p.segmented_out)
    require(a.results[static_cast<size_t>(k)].extent == Extent::element, "loop: result ", k,
            " has no value for each element and no segments  at ", whole.at);
}

void check_same(const std::vector<int64_t>& same, std::span<const Type> operands,
                std::string_view at) {
  require(same.empty() || same.size() == operands.size(), "loop: of ", operands.size(),
          " operands ", same.size(), " say which they are  at ", at);
  for (size_t i = 0; i < same.size(); ++i) {
    const int64_t k = same[i];
    require(
        k < static_cast<int64_t>(i) && (k < 0 || operands[static_cast<size_t>(k)] == operands[i]),
        "loop: operand ", i, " cannot be operand ", k, "  at ", at);
  }
}

// The last of the results as one.
std::vector<Type> concatenated_types(const Loop& a, std::vector<Type> out) {
  if (a.concatenated == 0) return out;
  const auto all = static_cast<int64_t>(a.results.size());
  require(2 <= a.concatenated && a.concatenated <= all && !a.shape.empty(),
          "loop: ", a.concatenated, " results cannot be concatenated (there are ", all, ", of ",
          Shape(a.shape), ")");
  for (int64_t k = 1; k <= a.concatenated; ++k) {
    const auto at = static_cast<size_t>(all - k);
    const LoopResult &r = a.results[at], &last = a.results.items.back();
    require(!a.segments.has_out(at), "loop: result ", at, " is concatenated and has no segments");
    require(r.extent == last.extent && r.dtype == last.dtype,
            "loop: concatenated results must be alike (got ", text_of(r), " and ", text_of(last),
            ")");
  }
  out.resize(out.size() - static_cast<size_t>(a.concatenated - 1));
  out.back().shape[-1] *= a.concatenated;
  return out;
}

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Loop>();
  const auto operands = a.expr.inputs() - static_cast<int64_t>(a.reductions.size());
  require(operands >= 0, "loop: the expression takes ", a.expr.inputs(), " inputs (for ",
          a.reductions.size(), " reductions)  at ", s.at);
  check_segments(a.segments, static_cast<size_t>(operands), a.results.size(), "loop");
  check_disjoint(a.segments, a.slices, "loop");
  if (!has_views(a)) {
    check_same(a.same.values, s.in, s.at);
    return infer_whole(s);
  }
  const Signature whole = without_views(s);
  check_views(whole, a);
  check_same(a.same.values, whole.in, s.at);
  return concatenated_types(a, split_types(a.segments, whole.out));
}

// ---- semantics -------------------------------------------------------------------------------

// [...,T,R...] to sums of `partial_rows` rows each, [...,T/partial_rows,R...].
Value partial_sums(const Loop& a, Value v) {
  const Shape out = shape_of(a, Extent::partial);
  std::vector<int64_t> split = out.sizes();
  split.insert(split.end() - a.row_dims, a.partial_rows);
  return reshape(sum(reshape(v, Shape(split)), {-1 - a.row_dims}), out);
}

std::vector<int64_t> dims_of(const Loop& a, Over over) {
  const auto rank = static_cast<int64_t>(a.shape.size());
  const bool row = over == Over::row;
  std::vector<int64_t> dims;
  for (int64_t d = row ? rank - a.row_dims : 1; d < rank - (row ? 0 : 1); ++d) dims.push_back(d);
  return dims;
}

Value reduction(Graph& g, const Loop& a, size_t k, std::span<const Value> known) {
  const OneResult p = one_result(a.expr, k);
  const LoopReduction& r = a.reductions[k];
  if (r.over != Over::groups)
    return reduce(g, {p.expr, dims_of(a, r.over), r.kind, 1, a.shape}, p.of(known))[0];
  const Shape channels = shape_of(a, Extent::channel);
  const Value v = pointwise(g, {p.expr, channels.sizes(), DType::f32}, p.of(known))[0];
  return expand_groups(group_sums(v, a.groups), channels[-1]);
}

std::vector<Value> concatenated_values(const Loop& a, std::vector<Value> out) {
  if (a.concatenated == 0) return out;
  const auto first = out.end() - a.concatenated;
  const Value whole = concat({first, out.end()}, -1);
  out.erase(first, out.end());
  out.push_back(whole);
  return out;
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<Loop>();
  std::vector<Value> known =
      swap_values(a.swaps, slice_values(a.slices, concat_values(a.segments, in)));
  std::vector<Value> out;
  for (size_t k = 0; k < a.reductions.size(); ++k) known.push_back(reduction(g, a, k, known));
  for (size_t k = 0; k < a.results.size(); ++k) {
    const OneResult p = one_result(a.expr, a.reductions.size() + k);
    const LoopResult& r = a.results[k];
    const bool partial = r.extent == Extent::partial;
    const Shape shape = shape_of(a, partial ? Extent::element : r.extent);
    const Value v = pointwise(g, {p.expr, shape.sizes(), r.dtype}, p.of(known))[0];
    out.push_back(partial ? partial_sums(a, v) : v);
  }
  return concatenated_values(a, split_values(a.segments, out));
}

Cost cost(const Signature& s) {
  const auto& a = s.as<Loop>();
  const std::vector<Type> in = has_views(a) ? without_views(s).in : s.in;
  Cost c;
  for (size_t i = 0; i < in.size(); ++i)
    if (a.same.empty() || a.same.values[i] < 0) c.bytes += static_cast<double>(in[i].bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = a.expr.flops() * static_cast<double>(Shape(a.shape).numel());
  return c;
}

}  // namespace

std::string text_of(const LoopReduction& r) { return str(name_of(r.kind), ":", name_of(r.over)); }
std::string text_of(const LoopResult& r) { return str(r.dtype, ":", name_of(r.extent)); }

void parse_text(LoopReduction& r, std::string_view text) {
  const auto [kind, over] = halves(text);
  r = {.over = parse_name<Over>(over), .kind = parse_name<ReduceKind>(kind)};
}
void parse_text(LoopResult& r, std::string_view text) {
  const auto [dtype, extent] = halves(text);
  r = {.dtype = parse_dtype(dtype), .extent = parse_name<Extent>(extent)};
}

LoopKind kind_of(const Loop& loop) {
  if (loop.reductions.empty()) return LoopKind::map;
  const auto is_row = [](const LoopReduction& r) { return r.over == Over::row; };
  const bool rows = is_row(loop.reductions[0]);
  for (const LoopReduction& r : loop.reductions) {
    require(is_row(r) == rows,
            "loop: reductions run along rows or over pixels and groups, not both");
    require(rows || r.kind != ReduceKind::max, "loop: a maximum runs along rows");
  }
  return rows ? LoopKind::rows : LoopKind::pixels;
}

Shape shape_of(const Loop& loop, Extent extent) {
  Shape s(loop.shape);
  for (int64_t d = 1; extent == Extent::row && d <= loop.row_dims; ++d) s[-d] = 1;
  if (extent == Extent::partial) s[-1 - loop.row_dims] /= loop.partial_rows;
  for (int64_t d = 1; extent == Extent::channel && d + 1 < s.rank(); ++d) s[d] = 1;
  return s;
}

Signature without_views(const Signature& s) {
  Signature whole = s;
  Loop a = s.as<Loop>();
  whole.in = slice_types(a.slices, concat_types(a.segments, s.in, "loop"), "loop");
  a.segments = {};
  a.slices = {};
  a.swaps = {};
  a.concatenated = 0;
  whole.attrs = a;
  whole.out = infer_whole(whole);
  return whole;
}

std::optional<Loop> loop_of(const Graph& g, const Node& n) {
  if (const Loop* loop = n.attrs.get<Loop>()) return *loop;
  const auto* elements = n.attrs.get<Pointwise>();
  if (!elements) return {};
  Loop a{.expr = elements->expr, .shape = g.type(n.out[0]).shape.sizes()};
  for (const int32_t v : n.out) a.results.push_back({g.type(v).dtype});
  return a;
}

bool is_loop(const Node& n, LoopKind kind) {
  const Loop* loop = n.attrs.get<Loop>();
  return loop && kind_of(*loop) == kind;
}

bool varies_along_rows(const Shape& tensor, int64_t row_dims) {
  for (int64_t d = 1; d <= std::min(row_dims, tensor.rank()); ++d)
    if (tensor[-d] != 1) return true;
  return false;
}

bool varies_over_pixels(const Shape& tensor, const Shape& shape) {
  for (int64_t d = 1; d + 1 < shape.rank(); ++d) {
    const int64_t own = d - shape.rank() + tensor.rank();
    if (shape[d] != 1 && own >= 0 && tensor[own] != 1) return true;
  }
  return false;
}

const OpDef& def::loop() {
  static const OpDef d{.name = "loop",
                       .attrs = +[] { return Attrs(Loop{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = loop_examples,
                       .differentiable = false,
                       .together = &loops_together};
  return d;
}

}  // namespace ebb::ops
