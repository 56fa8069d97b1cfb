#include "passes/schedule/hoist.h"

#include <algorithm>

#include "base/error.h"
#include "ir/op.h"
#include "passes/schedule/graph_cut.h"
#include "passes/uses.h"

namespace ebb {
namespace {

enum class Depends : uint8_t { on_nothing, on_weights, on_kept, on_more };

class Hoister {
 public:
  Hoister(const Graph& g, const std::function<bool(const Source&)>& kept)
      : g_(g), depends_(static_cast<size_t>(g.values()), Depends::on_more) {
    for (const Source& s : g.sources()) at(s.value) = depends_of(s, kept);
    for (const Node& n : g.nodes()) {
      const Depends d = depends_of(n);
      for (const int32_t v : n.out) at(v) = d;
    }
  }

  HoistedGraph run() const {
    HoistedGraph out;
    Rewriter step(g_), hoisted(g_);
    // An input itself is none of the values that cross: it is an input of the step.
    const GraphCut cut(g_,
                       [&](int32_t v) { return at(v) == Depends::on_kept && g_.producer(v) >= 0; });
    const std::vector<bool> early = with_operands_of(g_, cut.crossing());
    const auto moved = [&](const Source& s) { return at(s.value) == Depends::on_kept; };
    for (const Source& s : g_.sources()) {
      if (early[static_cast<size_t>(s.value)]) copy_source(hoisted, s);
      if (cut.in_step(s.value) || !moved(s)) copy_source(step, s);
    }
    for (const Node& n : g_.nodes())
      if (std::ranges::any_of(n.out, [&](int32_t v) { return early[static_cast<size_t>(v)]; }))
        hoisted.copy(n);
    for (int32_t v = 0; v < g_.values(); ++v) {
      if (!cut.crosses(v)) continue;
      const std::string name = step.to().fresh_name(str("hoisted.", out.states.size()));
      const Type type = g_.type(v);
      step.set(v, step.to().source(Source::Kind::state, name, type));
      hoisted.to().source(Source::Kind::state, name, type);
      hoisted.to().update(name, hoisted.map(v));
      out.states.push_back(name);
    }
    for (const Node& n : g_.nodes())
      if (cut.in_step(n)) step.copy(n);
    step.copy_ends();
    out.step = step.take();
    out.hoisted = hoisted.take();
    return out;
  }

 private:
  Depends& at(int32_t v) { return depends_[static_cast<size_t>(v)]; }
  Depends at(int32_t v) const { return depends_[static_cast<size_t>(v)]; }

  Depends depends_of(const Source& s, const std::function<bool(const Source&)>& kept) const {
    if (s.kind == Source::Kind::input) return kept(s) ? Depends::on_kept : Depends::on_more;
    return is_updated(g_, s) ? Depends::on_more : Depends::on_weights;
  }

  Depends depends_of(const Node& n) const {
    Depends all = Depends::on_nothing;
    int64_t read = 0, made = 0;
    for (const int32_t v : n.in) {
      all = std::max(all, at(v));
      read += g_.type(v).shape.numel();
    }
    for (const int32_t v : n.out) made += g_.type(v).shape.numel();
    const bool grows = all == Depends::on_kept && made > read;
    return grows && is_cheap(n, made) ? Depends::on_more : all;
  }

  // Reading a number takes as long as many operations.
  bool is_cheap(const Node& n, int64_t made) const {
    constexpr double flops_of_reading = 32;
    return cost_of(g_.signature(n)).flops < flops_of_reading * static_cast<double>(made);
  }

  static void copy_source(Rewriter& rw, const Source& s) {
    rw.set(s.value, rw.to().source(s.kind, s.name, rw.from().type(s.value)));
  }

  const Graph& g_;
  std::vector<Depends> depends_;  // by value
};

}  // namespace

HoistedGraph hoist(const Graph& g, const std::function<bool(const Source&)>& kept) {
  HoistedGraph out = Hoister(g, kept).run();
  verify(out.step, "hoist");
  verify(out.hoisted, "hoist");
  return out;
}

}  // namespace ebb
