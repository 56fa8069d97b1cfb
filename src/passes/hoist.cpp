#include "passes/hoist.h"

#include <algorithm>

#include "base/error.h"
#include "ir/op.h"

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
    find_boundary();
  }

  HoistedGraph run() const {
    HoistedGraph out;
    Rewriter step(g_), hoisted(g_);
    const std::vector<bool> below = ancestors_of_boundary();
    const auto moved = [&](const Source& s) { return at(s.value) == Depends::on_kept; };
    for (const Source& s : g_.sources()) {
      if (below[static_cast<size_t>(s.value)]) copy_source(hoisted, s);
      if (needed(s.value) || !moved(s)) copy_source(step, s);
    }
    for (const Node& n : g_.nodes())
      if (std::ranges::any_of(n.out, [&](int32_t v) { return below[static_cast<size_t>(v)]; }))
        hoisted.copy(n);
    for (int32_t v = 0; v < g_.values(); ++v) {
      if (!boundary_[static_cast<size_t>(v)]) continue;
      const std::string name = step.to().fresh_name(str("hoisted.", out.states.size()));
      const Type type = g_.type(v);
      step.set(v, step.to().source(Source::Kind::state, name, type));
      hoisted.to().source(Source::Kind::state, name, type);
      hoisted.to().update(name, hoisted.map(v));
      out.states.push_back(name);
    }
    for (const Node& n : g_.nodes())
      if (stays(n)) step.copy(n);
    step.copy_ends();
    out.step = step.take();
    out.hoisted = hoisted.take();
    return out;
  }

 private:
  Depends& at(int32_t v) { return depends_[static_cast<size_t>(v)]; }
  Depends at(int32_t v) const { return depends_[static_cast<size_t>(v)]; }
  bool needed(int32_t v) const { return needed_[static_cast<size_t>(v)]; }

  Depends depends_of(const Source& s, const std::function<bool(const Source&)>& kept) const {
    if (s.kind == Source::Kind::input) return kept(s) ? Depends::on_kept : Depends::on_more;
    const bool updated =
        std::ranges::find(g_.updates(), s.name, &NamedValue::name) != g_.updates().end();
    return updated ? Depends::on_more : Depends::on_weights;
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

  bool stays(const Node& n) const {
    return std::ranges::any_of(n.out, [&](int32_t v) { return needed(v); });
  }

  static void copy_source(Rewriter& rw, const Source& s) {
    rw.set(s.value, rw.to().source(s.kind, s.name, rw.from().type(s.value)));
  }

  // From the results back: what the step computes, and which values it reads of the other graph.
  // An input itself is none of these: it is an input of the step.
  void find_boundary() {
    needed_.assign(static_cast<size_t>(g_.values()), false);
    boundary_.assign(static_cast<size_t>(g_.values()), false);
    const auto need = [&](int32_t v) {
      const bool moves = at(v) == Depends::on_kept && g_.producer(v) >= 0;
      (moves ? boundary_ : needed_)[static_cast<size_t>(v)] = true;
    };
    for (const NamedValue& o : g_.outputs()) need(o.value);
    for (const NamedValue& u : g_.updates()) need(u.value);
    for (size_t i = g_.nodes().size(); i-- > 0;)
      if (stays(g_.nodes()[i])) std::ranges::for_each(g_.nodes()[i].in, need);
  }

  std::vector<bool> ancestors_of_boundary() const {
    std::vector<bool> below = boundary_;
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = g_.nodes()[i];
      if (std::ranges::any_of(n.out, [&](int32_t v) { return below[static_cast<size_t>(v)]; }))
        for (const int32_t v : n.in) below[static_cast<size_t>(v)] = true;
    }
    return below;
  }

  const Graph& g_;
  std::vector<Depends> depends_;         // by value
  std::vector<bool> needed_, boundary_;  // by value: of the step; what it reads of the other graph
};

}  // namespace

HoistedGraph hoist(const Graph& g, const std::function<bool(const Source&)>& kept) {
  HoistedGraph out = Hoister(g, kept).run();
  verify(out.step, "hoist");
  verify(out.hoisted, "hoist");
  return out;
}

}  // namespace ebb
