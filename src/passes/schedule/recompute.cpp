#include "passes/schedule/recompute.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "ops/loop/op.h"
#include "passes/uses.h"

namespace ebb {
namespace {

constexpr int64_t small = 16;        // relative size below which a value is kept
constexpr int64_t worthless = 1000;  // relative saving below which it does not count

// Facts about a graph's values, by value.
struct Facts {
  size_t end = 0;            // of the forward pass
  std::vector<bool> fixed;   // depends on parameters only
  std::vector<bool> wanted;  // the backward pass reads it, directly or through reshapes
  int64_t bytes = 0;         // written by the forward pass, without parameter-only values

  bool is_fixed(int32_t v) const { return fixed[static_cast<size_t>(v)]; }
  bool is_fixed(const Node& n) const { return n.out.empty() || is_fixed(n.out[0]); }
  bool is_wanted(int32_t v) const { return wanted[static_cast<size_t>(v)]; }
  bool counts(int64_t saved) const { return saved * worthless >= bytes; }
};

// Whether each element of the results is computed by itself, with or without views.
bool is_by_element(const Graph& g, const Node& n) {
  const std::optional<ops::Loop> loop = ops::loop_of(g, n);
  return n.op->by_index ||
         (loop && kind_of(*loop) == ops::LoopKind::map && loop->segments.widths.empty());
}

// Bytes written by a node.
int64_t written(const Graph& g, const Node& n) {
  int64_t bytes = 0;
  for (const int32_t v : n.out) bytes += n.op->renames ? 0 : g.type(v).bytes();
  return bytes;
}

Facts facts_of(const Graph& g, std::string_view loss) {
  const std::optional<size_t> end = end_of(g, loss);
  require(end.has_value(), "recompute: no output '", loss, "'");
  const auto values = static_cast<size_t>(g.values());
  Facts f{.end = *end, .fixed = std::vector<bool>(values), .wanted = std::vector<bool>(values)};
  for (const Source& s : g.sources())
    f.fixed[static_cast<size_t>(s.value)] = s.kind != Source::Kind::input;
  for (size_t i = 0; i < f.end; ++i) {
    const Node& n = g.nodes()[i];
    const bool all = std::ranges::all_of(n.in, [&](int32_t v) { return f.is_fixed(v); });
    for (const int32_t v : n.out) f.fixed[static_cast<size_t>(v)] = all;
    if (!all) f.bytes += written(g, n);
  }
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.nodes()[i];
    if (i < f.end && !(n.op->renames && f.is_wanted(n.out[0]))) continue;
    for (const int32_t v : n.in) f.wanted[static_cast<size_t>(v)] = true;
  }
  return f;
}

// Outputs and updates live to the end, so the backward pass can read them.
void keep_ends(const Graph& g, std::vector<int32_t>& of_value) {
  for (const NamedValue& o : g.outputs()) of_value[static_cast<size_t>(o.value)] = -1;
  for (const NamedValue& u : g.updates()) of_value[static_cast<size_t>(u.value)] = -1;
}

// ---- expressions --------------------------------------------------------------------------------

// Forward values that one pointwise node recomputes from kept values, random numbers (recomputed
// from their key), and reshapes of both.
class Expressions {
 public:
  Expressions(const Graph& g, const Facts& facts)
      : g_(g), facts_(facts), of_value_(static_cast<size_t>(g.values()), -1) {}

  // By value: its number, or -1. Adds to `count`.
  std::vector<int32_t> find(int64_t& count) {
    for (size_t i = 0; i < facts_.end; ++i) {
      const Node& n = g_.nodes()[i];
      if (n.out.size() != 1 || facts_.is_fixed(n)) continue;
      if (n.op->renames) of_value_[static_cast<size_t>(n.out[0])] = of(n.in[0]);
      if (is_expression(n))
        of_value_[static_cast<size_t>(n.out[0])] = static_cast<int32_t>(count++);
    }
    keep_ends(g_, of_value_);
    return std::move(of_value_);
  }

 private:
  int32_t of(int32_t v) const { return of_value_[static_cast<size_t>(v)]; }

  bool is_expression(const Node& n) const {
    const int64_t saved = written(g_, n);
    return is_by_element(g_, n) && facts_.is_wanted(n.out[0]) && facts_.counts(saved) &&
           std::ranges::all_of(n.in, [&](int32_t v) {
             return g_.type(v).bytes() * small <= saved || facts_.is_fixed(v) ||
                    (facts_.is_wanted(v) && of(v) < 0);
           });
  }

  const Graph& g_;
  const Facts& facts_;
  std::vector<int32_t> of_value_;
};

// ---- blocks ----------------------------------------------------------------------------------

// Calls `f` with "a", "a.b" and "a.b.c" for a path a.b.c until it returns true.
template <class F>
void each_prefix(const std::string& at, F&& f) {
  for (size_t end = at.empty() ? 0 : at.find('.'); end > 0; end = at.find('.', end + 1)) {
    if (f(at.substr(0, end)) || end == std::string::npos) return;
  }
}

// The blocks of a forward pass, and which of their values need not be kept.
class Blocks {
 public:
  Blocks(const Graph& g, const Facts& facts)
      : g_(g),
        facts_(facts),
        of_node_(facts.end, -1),
        of_value_(static_cast<size_t>(g.values()), -1) {}

  // By value: the block that recomputes it, or -1. Adds to `count`.
  std::vector<int32_t> find(int64_t& count) {
    find_blocks(scopes());
    find_values();
    number(count);
    return std::move(of_value_);
  }

 private:
  int32_t of(int32_t v) const { return of_value_[static_cast<size_t>(v)]; }

  // The paths of nodes. A path that holds more than half of the pass is not a block but a scope
  // around the network.
  std::set<std::string> scopes() const {
    std::map<std::string, int64_t> bytes;
    std::set<std::string> out;
    for (size_t i = 0; i < facts_.end; ++i) {
      const Node& n = g_.nodes()[i];
      if (facts_.is_fixed(n)) continue;
      each_prefix(n.at, [&](const std::string& path) {
        bytes[path] += written(g_, n);
        return false;
      });
      out.insert(n.at);
    }
    std::erase_if(out, [&](const std::string& path) { return 2 * bytes[path] > facts_.bytes; });
    return out;
  }

  void find_blocks(const std::set<std::string>& scopes) {
    std::map<std::string, int32_t> blocks;
    std::vector<size_t> between;
    for (size_t i = 0; i < facts_.end; ++i) {
      if (facts_.is_fixed(g_.nodes()[i])) continue;
      std::string path;
      each_prefix(g_.nodes()[i].at, [&](const std::string& prefix) {
        if (scopes.contains(prefix)) path = prefix;
        return !path.empty();
      });
      between.push_back(i);
      if (path.empty()) continue;
      const int32_t block =
          blocks.try_emplace(path, static_cast<int32_t>(blocks.size())).first->second;
      for (const size_t k : between) of_node_[k] = block;
      between.clear();
    }
  }

  int32_t block_of_producer(int32_t value) const {
    const int32_t n = g_.producer(value);
    return n < 0 || static_cast<size_t>(n) >= facts_.end ? -1 : of_node_[static_cast<size_t>(n)];
  }

  // Values that no other block reads in the forward pass, unless they are small.
  void find_values() {
    std::map<int32_t, int64_t> largest;
    for (size_t i = 0; i < facts_.end; ++i)
      for (const int32_t v : g_.nodes()[i].out) {
        of_value_[static_cast<size_t>(v)] = of_node_[i];
        largest[of_node_[i]] = std::max(largest[of_node_[i]], g_.type(v).bytes());
      }
    const auto keep = [&](int32_t v) { of_value_[static_cast<size_t>(v)] = -1; };
    for (int32_t v = 0; v < g_.values(); ++v)
      if (of(v) >= 0 && g_.type(v).bytes() * small <= largest[of(v)]) keep(v);
    for (size_t i = 0; i < facts_.end; ++i)
      for (const int32_t v : g_.nodes()[i].in)
        if (block_of_producer(v) != of_node_[i]) keep(v);
    keep_ends(g_, of_value_);
  }

  // Blocks of which the backward pass reads next to nothing do not count.
  void number(int64_t& count) {
    std::set<int32_t> read;
    for (size_t i = facts_.end; i < g_.nodes().size(); ++i)
      for (const int32_t v : g_.nodes()[i].in)
        if (of(v) >= 0) read.insert(v);
    std::map<int32_t, int64_t> saved;
    for (const int32_t v : read) saved[of(v)] += g_.type(v).bytes();
    std::map<int32_t, int32_t> numbers;
    for (const auto& [block, bytes] : saved)
      if (facts_.counts(bytes)) numbers[block] = static_cast<int32_t>(count++);
    for (int32_t& b : of_value_) b = numbers.contains(b) ? numbers[b] : -1;
  }

  const Graph& g_;
  const Facts& facts_;
  std::vector<int32_t> of_node_;   // block, in order; -1: none
  std::vector<int32_t> of_value_;  // block; -1: kept
};

// ---- the new graph ---------------------------------------------------------------------------

class Copier {
 public:
  // `again`, by value: recomputed where the backward pass, from node `end` on, reads it.
  Copier(const Graph& g, size_t end, const std::vector<bool>& again)
      : g_(g), end_(end), again_(again), rw_(g) {}

  Recomputed run() {
    rw_.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      const std::vector<Value> out = add(i, i >= end_);
      for (size_t k = 0; k < out.size(); ++k) rw_.set(n.out[k], out[k]);
    }
    rw_.copy_ends();
    return {rw_.take(), std::move(origin_)};
  }

 private:
  // A copy of node i; in the backward pass it reads recomputed values.
  std::vector<Value> add(size_t i, bool backward) {
    const Node& n = g_.nodes()[i];
    std::vector<Value> in;
    for (const int32_t v : n.in)
      in.push_back(backward && again_[static_cast<size_t>(v)] ? computed(v) : rw_.map(v));
    const AtScope scope(rw_.to(), n.at);
    origin_.push_back(i);
    return rw_.to().add(*n.op, n.attrs, in);
  }

  // v recomputed, after its dependencies; once.
  Value computed(int32_t v) {
    if (const auto at = copies_.find(v); at != copies_.end()) return at->second;
    const auto i = static_cast<size_t>(g_.producer(v));
    const std::vector<Value> out = add(i, true);
    for (size_t k = 0; k < out.size(); ++k) copies_[g_.nodes()[i].out[k]] = out[k];
    return copies_.at(v);
  }

  const Graph& g_;
  size_t end_;
  const std::vector<bool>& again_;
  Rewriter rw_;
  std::vector<size_t> origin_;
  std::map<int32_t, Value> copies_;
};

}  // namespace

Recomputable::Recomputable(const Graph& g, std::string_view loss) : g_(g) {
  const Facts facts = facts_of(g, loss);
  end_ = facts.end;
  expression_ = Expressions(g, facts).find(most_.pointwise);
  block_ = Blocks(g, facts).find(most_.blocks);
}

// A pointwise value that depends on a recomputed block would have that block recomputed early, as
// soon as the next block reads the value, and the block before it for that one. Such a value is
// kept, or recomputed with its own block.
Recomputed Recomputable::with(const RecomputeCount& chosen) const {
  std::vector<bool> by_block(block_.size()), again(block_.size());
  for (size_t v = 0; v < block_.size(); ++v)
    again[v] = by_block[v] = block_[v] >= 0 && block_[v] < chosen.blocks;
  for (size_t i = 0; i < end_; ++i) {
    const Node& n = g_.nodes()[i];
    const bool kept =
        std::ranges::none_of(n.in, [&](int32_t v) { return by_block[static_cast<size_t>(v)]; });
    for (const int32_t v : n.out) {
      const int32_t f = expression_[static_cast<size_t>(v)];
      if (kept && f >= 0 && f < chosen.pointwise) again[static_cast<size_t>(v)] = true;
    }
  }
  Recomputed out = Copier(g_, end_, again).run();
  verify(out.graph, "recompute");
  return out;
}

}  // namespace ebb
