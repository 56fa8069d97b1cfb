// Graph: typed values and the nodes that compute them, in topological order.
// A graph is built by appending and is never changed afterwards; passes make new ones.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "ir/attrs.h"

namespace ebb {

struct OpDef;
struct Signature;
class Graph;

// A value of a graph under construction. Default-made: no value (a zero gradient).
struct Value {
  Graph* graph = nullptr;
  int32_t id = -1;
  explicit operator bool() const { return graph != nullptr; }
  Type type() const;  // by value: adding nodes moves the graph's own
  Shape shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
};

// How a parameter is initialised, stored in files and trained.
struct ParamInfo {
  std::string init = "zeros";  // zeros | ones | normal | uniform | sin_cos_2d
  double scale = 1;            // standard deviation (normal) or bound (uniform)
  Shape file_shape;            // in checkpoint files; empty: as here
  bool channels_last = false;  // file is [O,I,KH,KW], here [O,KH,KW,I]
  // groups of interleaved q, k, v rows: file [groups,3,rows,..], here [3,groups,rows,..]
  int64_t qkv_interleave = 1;
  bool decay = true;  // weight decay applies
};

// Values that come from outside of the graph.
struct Source {
  enum class Kind : uint8_t {
    input,  // given anew to every run
    param,  // trained; kept between runs
    state,  // kept between runs: optimiser moments, averages, buffers
  };
  Kind kind = Kind::input;
  std::string name;
  int32_t value = -1;
  ParamInfo info;
};

struct Node {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<int32_t> in, out;
  std::string at;  // model path of the layer it came from
};

struct NamedValue {
  std::string name;
  int32_t value = -1;
};

class Graph {
 public:
  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;
  Graph(const Graph&) = default;
  Graph& operator=(const Graph&) = default;

  // ---- building
  Value source(Source::Kind kind, std::string_view name, Type type, ParamInfo info = {});
  Value input(std::string_view name, Type type) { return source(Source::Kind::input, name, type); }
  // Appends a node; its output types follow from the op's rule. Throws the rule's Error.
  std::vector<Value> add(const OpDef& op, Attrs attrs, std::span<const Value> in);
  Value add1(const OpDef& op, Attrs attrs, std::initializer_list<Value> in);
  void output(std::string_view name, Value v);
  Value take_output(std::string_view name);  // removes the output; throws Error
  // After a run the source named `name` (param or state) holds `v`.
  void update(std::string_view name, Value v);
  // The model path given to nodes added from now on; returns the one before.
  std::string at(std::string path);
  const std::string& at() const { return at_; }

  // ---- reading
  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<NamedValue>& outputs() const { return outputs_; }
  const std::vector<NamedValue>& updates() const { return updates_; }  // name of the source
  int32_t values() const { return static_cast<int32_t>(types_.size()); }
  const Type& type(int32_t value) const { return types_[static_cast<size_t>(value)]; }
  int32_t producer(int32_t value) const { return producer_[static_cast<size_t>(value)]; }  // or -1
  Value value(int32_t id) { return {this, id}; }
  const Source* find_source(std::string_view name) const;
  Value find(std::string_view source_name);  // throws Error, suggests the nearest
  Signature signature(const Node& n) const;
  std::string fresh_name(std::string_view stem) const;  // not yet the name of a source

 private:
  int32_t new_value(Type type, int32_t producer);

  std::vector<Type> types_;
  std::vector<int32_t> producer_;
  std::vector<Source> sources_;
  std::vector<Node> nodes_;
  std::vector<NamedValue> outputs_, updates_;
  std::string at_;
};

inline Type Value::type() const { return graph->type(id); }

// Sets the model path for the life of the scope.
class AtScope {
 public:
  AtScope(Graph& g, std::string path) : graph_(g), before_(g.at(std::move(path))) {}
  ~AtScope() { graph_.at(before_); }
  AtScope(const AtScope&) = delete;
  AtScope& operator=(const AtScope&) = delete;

 private:
  Graph& graph_;
  std::string before_;
};

// Throws Error unless ids are in order, every node's types follow its op's rule, names are unique
// and updates fit their sources. Run after every pass; `after` names it in the error.
void verify(const Graph& g, std::string_view after);

// ---- rewriting -----------------------------------------------------------------------------

// Copies a graph node by node into a new one. `map[v]` is the new value of old value v.
class Rewriter {
 public:
  explicit Rewriter(const Graph& from) : from_(from), map_(static_cast<size_t>(from.values())) {}
  const Graph& from() const { return from_; }
  Graph& to() { return to_; }
  Value map(int32_t old) const;
  std::vector<Value> map(std::span<const int32_t> old) const;
  void set(int32_t old, Value v);
  void copy_sources();
  void copy(const Node& n);                // as it is, with mapped inputs
  void copy_ends();                        // outputs and updates
  Graph take() { return std::move(to_); }  // the Rewriter's Values are void afterwards

 private:
  const Graph& from_;
  Graph to_;
  std::vector<Value> map_;
};

}  // namespace ebb
