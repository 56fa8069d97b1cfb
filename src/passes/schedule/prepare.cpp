#include "passes/schedule/prepare.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "ir/op.h"
#include "passes/schedule/graph_cut.h"
#include "passes/simplify.h"
#include "passes/views/copies.h"

namespace ebb {
namespace {

// What the values of a graph depend on.
enum class Depends : uint8_t { on_nothing, on_weights, on_more };

Depends depends_of(const Graph& g, const Node& n, const std::vector<Depends>& values) {
  Depends all = Depends::on_nothing;
  int64_t read = 0;
  for (const int32_t v : n.in) {
    all = std::max(all, values[static_cast<size_t>(v)]);
    read += g.type(v).shape.numel();
  }
  const bool repeats = !n.op->matrix_work;  // products do more
  if (all == Depends::on_weights && repeats)
    for (const int32_t v : n.out)
      if (g.type(v).shape.numel() > read) return Depends::on_more;
  return all;
}

std::vector<Depends> dependences(const Graph& g,
                                 const std::function<bool(const Source&)>& is_weight) {
  std::vector<Depends> out(static_cast<size_t>(g.values()), Depends::on_more);
  for (const Source& s : g.sources())
    if (s.kind != Source::Kind::input && is_weight(s))
      out[static_cast<size_t>(s.value)] = Depends::on_weights;
  for (const Node& n : g.nodes()) {
    const Depends d = depends_of(g, n, out);
    for (const int32_t v : n.out) out[static_cast<size_t>(v)] = d;
  }
  return out;
}

class Splitter {
 public:
  Splitter(const Graph& g, const std::function<bool(const Source&)>& is_weight)
      : g_(g), depends_(dependences(g, is_weight)) {}

  PreparedGraph run() {
    const GraphCut cut(g_, [&](int32_t v) { return at(v) == Depends::on_weights; });
    std::vector<std::string> keys = keys_of_prepared();
    PreparedGraph out;
    Rewriter step(g_), prepare(g_);
    for (const Source& s : g_.sources()) {
      if (at(s.value) == Depends::on_weights)
        prepare.set(s.value, prepare.to().source(s.kind, s.name, g_.type(s.value)));
      else
        step.set(s.value, step.to().source(s.kind, s.name, g_.type(s.value)));
    }
    for (const Node& n : g_.nodes())
      if (moves(n)) prepare.copy(n);
    for (int32_t v = 0; v < g_.values(); ++v) {
      if (!cut.crosses(v)) continue;
      const int32_t root = root_of(g_, v);
      const std::string name = step.to().fresh_name(name_of_value(v));
      step.set(v, step.to().source(Source::Kind::param, name, g_.type(v)));
      out.values.push_back({name, keys[static_cast<size_t>(root)], -1});
      prepare.to().output(name, prepare.map(root));
    }
    for (const Node& n : g_.nodes())
      if (cut.in_step(n)) step.copy(n);
    step.copy_ends();
    out.step = step.take();
    out.prepare = dead_code(prepare.take());
    for (size_t i = 0; i < out.values.size(); ++i)
      out.values[i].value = out.prepare.outputs()[i].value;
    return out;
  }

 private:
  Depends at(int32_t v) const { return depends_[static_cast<size_t>(v)]; }

  // Constants are computed wherever they are read.
  bool moves(const Node& n) const { return at(n.out[0]) != Depends::on_more; }

  std::vector<std::string> keys_of_prepared() const {
    std::vector<std::string> keys(static_cast<size_t>(g_.values()));
    for (const Source& s : g_.sources()) keys[static_cast<size_t>(s.value)] = s.name;
    for (const Node& n : g_.nodes()) {
      if (!moves(n)) continue;
      std::string key = str(n.op->name, n.attrs.text(), '(');
      for (const int32_t v : n.in) key += keys[static_cast<size_t>(v)] + ',';
      key += ')';
      for (size_t k = 0; k < n.out.size(); ++k)
        keys[static_cast<size_t>(n.out[k])] = k ? str(key, '#', k) : key;
    }
    return keys;
  }

  // "conv.weight", for people: that of the first weight in the expression.
  std::string name_of_value(int32_t v) const {
    for (int32_t n = g_.producer(v); n >= 0; n = g_.producer(v)) {
      const Node& node = g_.nodes()[static_cast<size_t>(n)];
      v = *std::ranges::find_if(node.in, [&](int32_t i) { return at(i) == Depends::on_weights; });
    }
    return std::ranges::find(g_.sources(), v, &Source::value)->name;
  }

  const Graph& g_;
  std::vector<Depends> depends_;  // by value
};

}  // namespace

PreparedGraph prepare(const Graph& g, const std::function<bool(const Source&)>& is_weight) {
  PreparedGraph out = Splitter(g, is_weight).run();
  verify(out.step, "prepare");
  verify(out.prepare, "prepare");
  return out;
}

std::vector<bool> values_from_weights(const Graph& g,
                                      const std::function<bool(const Source&)>& is_weight) {
  std::vector<bool> out;
  for (const Depends d : dependences(g, is_weight)) out.push_back(d == Depends::on_weights);
  return out;
}

std::vector<ValuePart> parts_of(const Graph& g, int32_t value) {
  constexpr int64_t alignment = 256;
  const std::vector<ValuePart> whole = {{value, 0}};
  const int32_t at = g.producer(value);
  if (at < 0) return whole;
  const Node& n = g.nodes()[static_cast<size_t>(at)];
  if (n.op->renames) return parts_of(g, n.in[0]);
  const std::vector<int32_t> parts = concatenated(g, n, 0);
  if (parts.empty()) return whole;
  std::vector<ValuePart> out;
  int64_t offset = 0;
  for (const int32_t in : parts) {
    if (offset % alignment != 0) return whole;
    for (const ValuePart& part : parts_of(g, in)) out.push_back({part.value, offset + part.offset});
    offset += g.type(in).bytes();
  }
  return out;
}

Graph expression_of(const Graph& g, int32_t value, std::vector<std::string>& sources) {
  std::vector<bool> needed(static_cast<size_t>(g.values()));
  needed[static_cast<size_t>(value)] = true;
  needed = with_operands_of(g, std::move(needed));
  Rewriter rw(g);
  sources.clear();
  for (const Source& s : g.sources()) {
    if (!needed[static_cast<size_t>(s.value)]) continue;
    rw.set(s.value,
           rw.to().source(Source::Kind::state, str("in.", sources.size()), g.type(s.value)));
    sources.push_back(s.name);
  }
  for (const Node& n : g.nodes()) {
    if (std::ranges::none_of(n.out, [&](int32_t v) { return needed[static_cast<size_t>(v)]; }))
      continue;
    Node plain = n;
    plain.at.clear();  // the place in the model says nothing of the value
    rw.copy(plain);
  }
  rw.to().output("value", rw.map(value));
  return rw.take();
}

}  // namespace ebb
