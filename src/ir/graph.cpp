#include "ir/graph.h"

#include <algorithm>

#include "base/error.h"
#include "base/names.h"
#include "ir/op.h"

namespace ebb {

int32_t Graph::new_value(Type type, int32_t producer) {
  types_.push_back(std::move(type));
  producer_.push_back(producer);
  return values() - 1;
}

Value Graph::source(Source::Kind kind, std::string_view name, Type type) {
  require(find_source(name) == nullptr, "graph: source '", name, "' exists already  ", type);
  const int32_t id = new_value(std::move(type), -1);
  source_index_.emplace(name, sources_.size());
  sources_.push_back({kind, std::string(name), id});
  return {this, id};
}

std::vector<Value> Graph::add(const OpDef& op, Attrs attrs, std::span<const Value> in) {
  Node node{&op, std::move(attrs), {}, {}, at_};
  for (const Value& v : in) {
    require(v.graph == this, op.name, ": input belongs to another graph  at ", at_);
    node.in.push_back(v.id);
  }
  const std::vector<Type> types = op.infer(signature(node));
  return append(std::move(node), types);
}

std::vector<Value> Graph::append(Node node, std::span<const Type> types) {
  std::vector<Value> out;
  for (const Type& t : types) {
    node.out.push_back(new_value(t, static_cast<int32_t>(nodes_.size())));
    out.push_back({this, node.out.back()});
  }
  nodes_.push_back(std::move(node));
  return out;
}

Value Graph::add1(const OpDef& op, Attrs attrs, std::initializer_list<Value> in) {
  return add(op, std::move(attrs), std::span<const Value>(in.begin(), in.size()))[0];
}

void Graph::output(std::string_view name, Value v) {
  require(v.graph == this, "graph: output '", name, "' belongs to another graph");
  outputs_.push_back({std::string(name), v.id});
}

Value Graph::take_output(std::string_view name) {
  std::vector<std::string> known;
  for (auto it = outputs_.begin(); it != outputs_.end(); ++it) {
    known.push_back(it->name);
    if (it->name != name) continue;
    const Value v{this, it->value};
    outputs_.erase(it);
    return v;
  }
  fail("graph: no output '", name, "'", suggestion(name, known));
}

void Graph::update(std::string_view name, Value v) {
  require(v.graph == this, "graph: update '", name, "' belongs to another graph");
  updates_.push_back({std::string(name), v.id});
}

std::string Graph::at(std::string path) {
  std::swap(path, at_);
  return path;
}

const Source* Graph::find_source(std::string_view name) const {
  const auto it = source_index_.find(name);
  return it == source_index_.end() ? nullptr : &sources_[it->second];
}

Value Graph::find(std::string_view source_name) {
  return {this, find_known("graph: no source", source_name, sources_, &Source::name).value};
}

Signature Graph::signature(const Node& n) const {
  Signature s{n.op, n.attrs, {}, {}, n.at};
  s.in.reserve(n.in.size());
  s.out.reserve(n.out.size());
  for (const int32_t v : n.in) s.in.push_back(type(v));
  for (const int32_t v : n.out) s.out.push_back(type(v));
  return s;
}

std::string Graph::fresh_name(std::string_view stem) const {
  std::string name(stem);
  for (int64_t i = 2; find_source(name); ++i) name = str(stem, ".", i);
  return name;
}

// ---- verifying -----------------------------------------------------------------------------

namespace {

void verify_node(const Graph& g, size_t index, std::string_view after) {
  const Node& n = g.nodes()[index];
  require(n.op != nullptr, "verify after ", after, ": node ", index, " has no op");
  for (const int32_t v : n.in)
    require(v >= 0 && v < g.values() && g.producer(v) < static_cast<int32_t>(index),
            "verify after ", after, ": ", n.op->name, " reads %", v, " before it is computed  at ",
            n.at);
  for (const int32_t v : n.out)
    require(g.producer(v) == static_cast<int32_t>(index), "verify after ", after, ": ", n.op->name,
            " does not own its output %", v, "  at ", n.at);
  Signature s = g.signature(n);
  const std::vector<Type> have = s.out;
  s.out.clear();
  require(n.op->infer(s) == have, "verify after ", after, ": ", n.op->name,
          " has other output types than its rule gives  at ", n.at);
}

void verify_unique(std::vector<std::string> names, std::string_view what, std::string_view after) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  require(twice == names.end(), "verify after ", after, ": two ", what, " are called '",
          twice == names.end() ? "" : *twice, "'");
}

}  // namespace

void verify(const Graph& g, std::string_view after) {
  std::vector<std::string> sources, outputs, updates;
  for (const Source& s : g.sources()) {
    require(g.producer(s.value) == -1, "verify after ", after, ": source '", s.name,
            "' is computed");
    sources.push_back(s.name);
  }
  for (const NamedValue& o : g.outputs()) outputs.push_back(o.name);
  for (const NamedValue& u : g.updates()) updates.push_back(u.name);
  verify_unique(sources, "sources", after);
  verify_unique(outputs, "outputs", after);
  verify_unique(updates, "updates", after);
  for (size_t i = 0; i < g.nodes().size(); ++i) verify_node(g, i, after);
  for (const NamedValue& o : g.outputs())
    require(o.value >= 0 && o.value < g.values(), "verify after ", after, ": output '", o.name,
            "' has no value");
  for (const NamedValue& u : g.updates()) {
    const Source* s = g.find_source(u.name);
    require(s != nullptr && s->kind != Source::Kind::input, "verify after ", after, ": update '",
            u.name, "' names no parameter or state");
    require(g.type(s->value) == g.type(u.value), "verify after ", after, ": update '", u.name,
            "' has another type (", g.type(u.value), " for ", g.type(s->value), ")");
  }
}

// ---- rewriting -----------------------------------------------------------------------------

Value Rewriter::map(int32_t old) const {
  const Value v = map_[static_cast<size_t>(old)];
  require(static_cast<bool>(v), "rewrite: %", old, " is not mapped yet");
  return v;
}

std::vector<Value> Rewriter::map(std::span<const int32_t> old) const {
  std::vector<Value> out;
  for (const int32_t v : old) out.push_back(map(v));
  return out;
}

void Rewriter::set(int32_t old, Value v) { map_[static_cast<size_t>(old)] = v; }

void Rewriter::copy_sources() {
  to_.types_.reserve(from_.types_.size());
  to_.producer_.reserve(from_.producer_.size());
  to_.sources_.reserve(from_.sources_.size());
  to_.nodes_.reserve(from_.nodes_.size());
  for (const Source& s : from_.sources())
    set(s.value, to_.source(s.kind, s.name, from_.type(s.value)));
}

void Rewriter::copy(const Node& n) {
  Node node{n.op, n.attrs, {}, {}, n.at};
  // A node that a pass made (passes/made_node.h) may give its inputs other types than they had.
  bool same = true;
  node.in.reserve(n.in.size());
  for (const int32_t v : n.in) {
    node.in.push_back(map(v).id);
    same = same && to_.type(node.in.back()) == from_.type(v);
  }
  if (!same) {
    const AtScope scope(to_, n.at);
    const std::vector<Value> out = to_.add(*n.op, n.attrs, map(n.in));
    for (size_t i = 0; i < out.size(); ++i) set(n.out[i], out[i]);
    return;
  }
  // The op's rule is a function of what is the same: its answer is known.
  node.out.reserve(n.out.size());
  for (const int32_t v : n.out) {
    node.out.push_back(to_.new_value(from_.type(v), static_cast<int32_t>(to_.nodes_.size())));
    set(v, {&to_, node.out.back()});
  }
  to_.nodes_.push_back(std::move(node));
}

void Rewriter::copy_ends() {
  for (const NamedValue& o : from_.outputs()) to_.output(o.name, map(o.value));
  for (const NamedValue& u : from_.updates()) to_.update(u.name, map(u.value));
}

}  // namespace ebb
