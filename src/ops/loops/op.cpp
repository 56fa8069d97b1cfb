#include "ops/loops/op.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ebb::ops {
namespace {

// The tensors that the operands of a loop are.
size_t tensors_of(const Loop& a) {
  const auto operands = static_cast<size_t>(a.expr.inputs()) - a.reductions.size();
  const Segments& p = a.segments;
  return operands + p.segmented_in.size() * (p.widths.empty() ? 0 : p.widths.size() - 1);
}

std::vector<Type> infer(const Signature& s) {
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
  add("segments_and_sums", {{"tokens_of_three"}, {"gradient_of_heads_partial"}});
  return out;
}

}  // namespace

std::string LoopList::text() const {
  return joined('[', separated(items, ";", [](const Loop& l) { return Attrs(l).text(); }), ']');
}

void LoopList::parse(std::string_view text) {
  require(text.size() >= 2 && text.front() == '[' && text.back() == ']',
          "loops: must stand in brackets (got '", text, "')");
  text = text.substr(1, text.size() - 2);
  items.clear();
  while (!text.empty()) {
    const size_t end = std::min(text.find("};{"), text.size() - 1);
    items.push_back(Attrs(Loop{}).parsed(text.substr(0, end + 1)).as<Loop>());
    text.remove_prefix(std::min(end + 2, text.size()));
  }
}

std::vector<Signature> parts_of(const Signature& s) {
  const auto& a = s.as<Loops>();
  require(!a.loops.items.empty(), "loops: there are none  at ", s.at);
  std::vector<Signature> parts;
  size_t first = 0;
  for (const Loop& l : a.loops.items) {
    const size_t count = tensors_of(l);
    require(first + count <= s.in.size(), "loops: they take more than ", s.in.size(),
            " operands  at ", s.at);
    Signature part{&def::loop(), l, {}, {}, s.at, s.aligned};
    const auto from = s.in.begin() + static_cast<ptrdiff_t>(first);
    part.in.assign(from, from + static_cast<ptrdiff_t>(count));
    part.out = part.op->infer(part);
    parts.push_back(std::move(part));
    first += count;
  }
  require(first == s.in.size(), "loops: they take ", first, " operands (got ", s.in.size(),
          ")  at ", s.at);
  return parts;
}

namespace {
std::string key_of(const Signature& s) {
  auto a = s.as<Loop>();
  a.shape.clear();
  a.slices.begin.clear();
  a.slices.end.clear();
  return Attrs(a).text();
}

Signature join(std::span<const Signature> parts) {
  Loops a;
  Signature s{&def::loops(), {}, {}, {}, parts[0].at, parts[0].aligned};
  for (const Signature& part : parts) {
    a.loops.items.push_back(part.as<Loop>());
    s.in.insert(s.in.end(), part.in.begin(), part.in.end());
    s.out.insert(s.out.end(), part.out.begin(), part.out.end());
  }
  s.attrs = a;
  return s;
}
}  // namespace

const Together loops_together{key_of, join};

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
