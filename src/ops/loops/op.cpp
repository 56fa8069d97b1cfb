#include "ops/loops/op.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

// The tensors that the operands of a loop are.
size_t tensors_of(const Loop& a) {
  const auto operands = static_cast<size_t>(a.expr.inputs()) - a.reductions.size();
  const Segments& p = a.segments;
  return operands + p.segmented_in.size() * (p.widths.empty() ? 0 : p.widths.size() - 1);
}

void check(const Signature& s) {
  const auto& a = s.as<Loops>();
  require(!a.sizes.empty(), "loops: there are none  at ", s.at);
  require(a.loop.shape.empty() && a.loop.slices.begin.empty() && a.loop.slices.end.empty(),
          "loops: each has its own shape and ranges of slices, in sizes (got shape ",
          Shape(a.loop.shape), " for all)  at ", s.at);
  require(a.loop.expr.inputs() >= std::ssize(a.loop.reductions.items),
          "loops: the expression takes ", a.loop.expr.inputs(), " inputs (for ",
          a.loop.reductions.size(), " reductions)  at ", s.at);
  const size_t count = tensors_of(a.loop);
  require(a.sizes.size() * count == s.in.size(), "loops: ", a.sizes.size(), " of them take ", count,
          " operands each (got ", s.in.size(), ")  at ", s.at);
}

std::vector<Type> infer(const Signature& s) {
  check(s);
  std::vector<Type> out;
  for (const Signature& part : parts_of(s)) out.insert(out.end(), part.out.begin(), part.out.end());
  return out;
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  std::vector<Value> out;
  size_t first = 0;
  for (const Signature& part : parts_of(s)) {
    for (const Value& v : g.add(def::loop(), part.attrs, in.subspan(first, part.in.size())))
      out.push_back(v);
    first += part.in.size();
  }
  return out;
}

Cost cost(const Signature& s) {
  Cost all;
  for (const Signature& part : parts_of(s)) {
    const Cost c = cost_of(part);
    all.bytes += c.bytes;
    all.flops += c.flops;
  }
  return all;
}

// An example of a loop, of as many heads; 0: as it is.
struct OfHeads {
  std::string_view label;
  int64_t heads = 0;
};

Signature use_of(std::span<const Example> all, const OfHeads& how) {
  const Example& e = *std::ranges::find(all, how.label, &Example::label);
  auto a = e.attrs.as<Loop>();
  std::vector<Type> in = e.in;
  if (how.heads > 0) {
    int64_t& heads = a.shape[a.shape.size() - 2];
    for (Type& t : in)
      if (t.shape.rank() > 1 && t.shape[-2] == heads) t.shape[-2] = how.heads;
    heads = how.heads;
  }
  return {&def::loop(), a, in, {}, ""};
}

// Of whole tensors and numbers.
void add_whole(std::vector<Example>& all) {
  const Scalar x = Scalar::input(0), y = Scalar::input(1);
  const Scalar results[] = {x * sigmoid(y), x - y};
  const Expr expr(2, results);
  const Type one{DType::f32, {}}, small{DType::f32, {3}}, odd{DType::f32, {5, 7, 13}};
  const Type rows{DType::f32, {64, 129}}, none{DType::f32, {0, 3}};
  const auto add = [&](const char* label, const ResultDTypes& dtypes, std::vector<Type> in) {
    std::vector<Signature> parts;
    for (size_t i = 0; i < in.size(); i += 2) {
      Signature part{&def::pointwise(), Pointwise{expr, {}, dtypes}, {}, {}, ""};
      part.in = {in[i], in[i + 1]};
      part.out = part.op->infer(part);
      parts.push_back(std::move(part));
    }
    const Signature s = pointwise_together.join(parts);
    all.push_back({.label = label, .attrs = s.attrs, .in = s.in});
  };
  add("shapes", DType::f32, {small, one, odd, one, rows, one, small, one});
  add("full", DType::f32, {odd, odd, small, small, none, none});
  add("numbers", DType::f32, {odd, odd, one, one});
  add("casts", {DType::bf16, DType::f32}, {odd, odd, rows, rows});
}

std::vector<Example> examples() {
  const std::vector<Example> all = loop_examples();
  std::vector<Example> out;
  const auto add = [&](const char* label, std::initializer_list<OfHeads> loops) {
    std::vector<Signature> parts;
    for (const OfHeads& how : loops) parts.push_back(use_of(all, how));
    const Signature s = loops_together.join(parts);
    out.push_back({.label = label, .attrs = s.attrs, .in = s.in});
  };
  add("one", {{"rotation_half_split"}});
  add("maps", {{"rotation_half_split"}, {"rotation_half_split", 7}});
  add("three_maps", {{"rotation_odd", 3}, {"rotation_odd"}, {"rotation_odd", 4}});
  add("slices", {{"heads_of_rotation"}, {"heads_of_rotation"}});
  add("rows", {{"rotated_norm_interleaved"}, {"rotated_norm_interleaved", 2}});
  add("rows_of_heads", {{"rotated_norm_of_heads_odd"}, {"rotated_norm_of_heads_odd"}});
  add("segments", {{"tokens_of_three"}, {"tokens_of_three"}});
  add("sums", {{"gradient_of_heads_partial"}, {"gradient_of_heads_partial"}});
  add("side_by_side", {{"map_concatenated_slices"}, {"map_concatenated_slices"}});
  add_whole(out);
  return out;
}

// ---- sizes as text -----------------------------------------------------------------------------

// A number up to `end`, which is then left behind.
int64_t take_number(std::string_view& text, char end) {
  const size_t length = std::min(text.find(end), text.size());
  const int64_t number = parse_integer(text.substr(0, length), "loops: sizes");
  text.remove_prefix(std::min(length + 1, text.size()));
  return number;
}

// ---- uses that become one ----------------------------------------------------------------------

LoopSizes sizes_of(const Loop& a) { return {a.shape, a.slices.begin, a.slices.end}; }

void set_sizes(Loop& a, const LoopSizes& sizes) {
  a.shape = sizes.shape;
  a.slices.begin = sizes.begin;
  a.slices.end = sizes.end;
}

std::string key_of_loop(const Signature& s) {
  auto a = s.as<Loop>();
  set_sizes(a, {});
  return Attrs(a).text();
}

// Of loops without sizes.
Signature joined_uses(Loops a, std::span<const Signature> parts) {
  Signature s{&def::loops(), std::move(a), {}, {}, parts[0].at, parts[0].aligned};
  for (const Signature& part : parts) {
    s.in.insert(s.in.end(), part.in.begin(), part.in.end());
    s.out.insert(s.out.end(), part.out.begin(), part.out.end());
  }
  return s;
}

Signature join_loops(std::span<const Signature> parts) {
  Loops a{.loop = parts[0].as<Loop>(), .sizes = {}};
  set_sizes(a.loop, {});
  for (const Signature& part : parts) a.sizes.push_back(sizes_of(part.as<Loop>()));
  return joined_uses(std::move(a), parts);
}

// Of operands that are whole or numbers. Larger uses fill a device each.
std::string key_of_pointwise(const Signature& s) {
  constexpr int64_t most_elements = int64_t{1} << 24;
  const Shape& shape = s.out[0].shape;
  if (shape.numel() > most_elements) return "";
  std::string key = s.as<Pointwise>().expr.text();
  bool whole = false;
  for (const Type& t : s.in) {
    const bool number = t.shape.numel() == 1;
    if (!(t.shape == shape) && !number) return "";
    whole = whole || t.shape == shape;
    key += number ? " 1" : " n";
  }
  return whole ? key : "";
}

Signature join_pointwise(std::span<const Signature> parts) {
  Loops a{.loop = {.expr = parts[0].as<Pointwise>().expr}, .sizes = {}};
  for (const Type& t : parts[0].out) a.loop.results.push_back({t.dtype});
  for (const Signature& part : parts)
    a.sizes.push_back({.shape = part.out[0].shape.sizes(), .begin = {}, .end = {}});
  return joined_uses(std::move(a), parts);
}

}  // namespace

std::string text_of(const LoopSizes& s) {
  std::string text = s.shape.empty() ? "-" : separated(s.shape, "x");
  for (size_t i = 0; i < s.begin.size(); ++i) text += joined(':', s.begin[i], '-', s.end[i]);
  return text;
}

void parse_text(LoopSizes& s, std::string_view text) {
  const size_t length = std::min(text.find(':'), text.size());
  std::string_view shape = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  s = {};
  if (shape != "-") {
    do {
      s.shape.push_back(take_number(shape, 'x'));
    } while (!shape.empty());
  }
  while (!text.empty()) {
    s.begin.push_back(take_number(text, '-'));
    s.end.push_back(take_number(text, ':'));
  }
}

Signature part_of(const Signature& s, size_t index) {
  const auto& a = s.as<Loops>();
  const size_t count = tensors_of(a.loop);
  Loop loop = a.loop;
  set_sizes(loop, a.sizes[index]);
  Signature part{&def::loop(), std::move(loop), {}, {}, s.at, s.aligned};
  const auto from = s.in.begin() + static_cast<ptrdiff_t>(index * count);
  part.in.assign(from, from + static_cast<ptrdiff_t>(count));
  part.out = part.op->infer(part);
  return part;
}

std::vector<Signature> parts_of(const Signature& s) {
  std::vector<Signature> parts;
  for (size_t i = 0; i < s.as<Loops>().sizes.size(); ++i) parts.push_back(part_of(s, i));
  return parts;
}

const Together loops_together{.key = key_of_loop,
                              .join = join_loops,
                              .most_elements = int64_t{1} << 29,
                              .most_uses = 8,
                              .most_apart = 16};
const Together pointwise_together{.key = key_of_pointwise, .join = join_pointwise};

const OpDef& def::loops() {
  static const OpDef d{.name = "loops",
                       .attrs = +[] { return Attrs(Loops{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
