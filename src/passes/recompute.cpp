#include "passes/recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/uses.h"

namespace ebb {
namespace {

constexpr int64_t small = 16;        // times smaller than a block's largest value: kept
constexpr int64_t worthless = 1000;  // what saves so little of the pass does not count

// Nodes up to the loss; those of its gradients follow.
size_t forward_end(const Graph& g, std::string_view loss) {
  const std::optional<size_t> end = end_of(g, loss);
  require(end.has_value(), "recompute: no output '", loss, "'");
  return *end;
}

// Bytes of what a node gives.
int64_t bytes_of(const Graph& g, const Node& n) {
  int64_t bytes = 0;
  for (const int32_t v : n.out) bytes += g.type(v).bytes();
  return bytes;
}

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
  Blocks(const Graph& g, std::string_view loss)
      : g_(g),
        end_(forward_end(g, loss)),
        fixed_(static_cast<size_t>(g.values())),
        of_node_(end_, -1),
        of_value_(static_cast<size_t>(g.values()), -1) {
    find_fixed();
    find_blocks(scopes());
    find_values();
    number();
  }

  size_t end() const { return end_; }
  int32_t count() const { return count_; }
  // Made of weights alone.
  bool fixed(int32_t value) const { return fixed_[static_cast<size_t>(value)]; }
  // The block that can compute a value again, counted among those that have something to; or -1.
  int32_t of(int32_t value) const { return of_value_[static_cast<size_t>(value)]; }

 private:
  void find_fixed() {
    for (const Source& s : g_.sources())
      fixed_[static_cast<size_t>(s.value)] = s.kind != Source::Kind::input;
    for (size_t i = 0; i < end_; ++i) {
      const Node& n = g_.nodes()[i];
      const bool all = std::ranges::all_of(n.in, [&](int32_t v) { return fixed(v); });
      for (const int32_t v : n.out) fixed_[static_cast<size_t>(v)] = all;
    }
  }

  bool is_fixed(const Node& n) const { return n.out.empty() || fixed(n.out[0]); }

  // The paths that nodes have. One that holds more than half of the pass is no block: a network
  // that stands in a scope of its own.
  std::set<std::string> scopes() {
    std::map<std::string, int64_t> bytes;
    std::set<std::string> out;
    for (size_t i = 0; i < end_; ++i) {
      const Node& n = g_.nodes()[i];
      if (is_fixed(n)) continue;
      const int64_t made = bytes_of(g_, n);
      total_ += made;
      each_prefix(n.at, [&](const std::string& path) {
        bytes[path] += made;
        return false;
      });
      out.insert(n.at);
    }
    std::erase_if(out, [&](const std::string& path) { return 2 * bytes[path] > total_; });
    return out;
  }

  void find_blocks(const std::set<std::string>& scopes) {
    std::map<std::string, int32_t> blocks;
    std::vector<size_t> between;
    for (size_t i = 0; i < end_; ++i) {
      if (is_fixed(g_.nodes()[i])) continue;
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
    return n < 0 || static_cast<size_t>(n) >= end_ ? -1 : of_node_[static_cast<size_t>(n)];
  }

  // What a block makes and no other reads going forward, if it is not small.
  void find_values() {
    std::map<int32_t, int64_t> largest;
    for (size_t i = 0; i < end_; ++i)
      for (const int32_t v : g_.nodes()[i].out) {
        of_value_[static_cast<size_t>(v)] = of_node_[i];
        largest[of_node_[i]] = std::max(largest[of_node_[i]], g_.type(v).bytes());
      }
    const auto keep = [&](int32_t v) { of_value_[static_cast<size_t>(v)] = -1; };
    for (int32_t v = 0; v < g_.values(); ++v)
      if (of(v) >= 0 && g_.type(v).bytes() * small <= largest[of(v)]) keep(v);
    for (size_t i = 0; i < end_; ++i)
      for (const int32_t v : g_.nodes()[i].in)
        if (block_of_producer(v) != of_node_[i]) keep(v);
    for (const NamedValue& o : g_.outputs()) keep(o.value);
    for (const NamedValue& u : g_.updates()) keep(u.value);
  }

  // Blocks of which the backward pass wants next to nothing do not count.
  void number() {
    std::set<int32_t> wanted;
    for (size_t i = end_; i < g_.nodes().size(); ++i)
      for (const int32_t v : g_.nodes()[i].in)
        if (of(v) >= 0) wanted.insert(v);
    std::map<int32_t, int64_t> bytes;
    for (const int32_t v : wanted) bytes[of(v)] += g_.type(v).bytes();
    std::map<int32_t, int32_t> numbers;
    for (const auto& [block, saved] : bytes)
      if (saved * worthless >= total_) numbers[block] = count_++;
    for (int32_t& b : of_value_) b = numbers.contains(b) ? numbers[b] : -1;
  }

  const Graph& g_;
  size_t end_;
  std::vector<bool> fixed_;        // by value
  std::vector<int32_t> of_node_;   // block, in order; -1: none
  std::vector<int32_t> of_value_;  // block; -1: kept
  int64_t total_ = 0;              // bytes of all values going forward
  int32_t count_ = 0;
};

// The values of the forward pass that one formula makes again of what is at hand anyway.
class Formulas {
 public:
  Formulas(const Graph& g, const Blocks& blocks) : g_(g), of_value_(size_of(g), -1) {
    const std::vector<bool> wanted = wanted_going_back(blocks.end());
    int64_t total = 0;
    for (size_t i = 0; i < blocks.end(); ++i) total += made(g.nodes()[i]);
    for (size_t i = 0; i < blocks.end(); ++i) {
      const Node& n = g.nodes()[i];
      if (n.out.size() != 1 || blocks.fixed(n.out[0])) continue;
      int32_t& number = of_value_[static_cast<size_t>(n.out[0])];
      if (n.op == &ops::def::reshape()) number = of(n.in[0]);
      if (n.op != &ops::def::pointwise() || !wanted[static_cast<size_t>(n.out[0])]) continue;
      const bool at_hand = std::ranges::all_of(n.in, [&](int32_t v) {
        return g.type(v).bytes() * small <= made(n) || blocks.fixed(v) ||
               (wanted[static_cast<size_t>(v)] && of(v) < 0);
      });
      if (at_hand && made(n) * worthless >= total) number = count_++;
    }
    for (const NamedValue& o : g.outputs()) of_value_[static_cast<size_t>(o.value)] = -1;
    for (const NamedValue& u : g.updates()) of_value_[static_cast<size_t>(u.value)] = -1;
  }

  int32_t count() const { return count_; }
  // The formula that can make a value again, or whose value it is in another shape; or -1.
  int32_t of(int32_t value) const { return of_value_[static_cast<size_t>(value)]; }

 private:
  static size_t size_of(const Graph& g) { return static_cast<size_t>(g.values()); }

  int64_t made(const Node& n) const { return n.op == &ops::def::reshape() ? 0 : bytes_of(g_, n); }

  // By value: whether the backward pass reads it, in this shape or another.
  std::vector<bool> wanted_going_back(size_t end) const {
    std::vector<bool> wanted(size_of(g_));
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = g_.nodes()[i];
      const bool renamed = n.op == &ops::def::reshape() && wanted[static_cast<size_t>(n.out[0])];
      if (i < end && !renamed) continue;
      for (const int32_t v : n.in) wanted[static_cast<size_t>(v)] = true;
    }
    return wanted;
  }

  const Graph& g_;
  std::vector<int32_t> of_value_;
  int32_t count_ = 0;
};

class Recomputer {
 public:
  Recomputer(const Graph& g, const Blocks& blocks, const Formulas& formulas, Again most)
      : g_(g), blocks_(blocks), formulas_(formulas), most_(most), rw_(g) {}

  Recomputed run() {
    rw_.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      const std::vector<Value> out = add(i, i >= blocks_.end());
      for (size_t k = 0; k < out.size(); ++k) rw_.set(n.out[k], out[k]);
    }
    rw_.copy_ends();
    return {rw_.take(), std::move(origin_)};
  }

 private:
  bool again(int32_t v) const {
    return (blocks_.of(v) >= 0 && blocks_.of(v) < most_.blocks) ||
           (formulas_.of(v) >= 0 && formulas_.of(v) < most_.formulas);
  }

  // Node i once more; going backward it reads what is computed again.
  std::vector<Value> add(size_t i, bool backward) {
    const Node& n = g_.nodes()[i];
    std::vector<Value> in;
    for (const int32_t v : n.in) in.push_back(backward && again(v) ? computed(v) : rw_.map(v));
    const AtScope scope(rw_.to(), n.at);
    origin_.push_back(i);
    return rw_.to().add(*n.op, n.attrs, in);
  }

  // v computed again, after all that it needs; once.
  Value computed(int32_t v) {
    if (const auto at = copies_.find(v); at != copies_.end()) return at->second;
    const auto i = static_cast<size_t>(g_.producer(v));
    const std::vector<Value> out = add(i, true);
    for (size_t k = 0; k < out.size(); ++k) copies_[g_.nodes()[i].out[k]] = out[k];
    return copies_.at(v);
  }

  const Graph& g_;
  const Blocks& blocks_;
  const Formulas& formulas_;
  Again most_;
  Rewriter rw_;
  std::vector<size_t> origin_;
  std::map<int32_t, Value> copies_;
};

}  // namespace

Again most_again(const Graph& g, std::string_view loss) {
  const Blocks blocks(g, loss);
  return {Formulas(g, blocks).count(), blocks.count()};
}

Recomputed recompute(const Graph& g, std::string_view loss, Again again) {
  const Blocks blocks(g, loss);
  const Formulas formulas(g, blocks);
  Recomputed out = Recomputer(g, blocks, formulas, again).run();
  verify(out.graph, "recompute");
  return out;
}

}  // namespace ebb
