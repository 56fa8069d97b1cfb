#include "passes/precision/narrow_states.h"

#include <algorithm>
#include <vector>

#include "ir/op.h"
#include "passes/simplify.h"
#include "passes/uses.h"

namespace ebb {
namespace {

class StateNarrower {
 public:
  StateNarrower(const Graph& g, DType dtype)
      : g_(g), dtype_(dtype), narrow_(static_cast<size_t>(g.values())) {
    for (const Source& s : g.sources()) narrow(s.value) = is_frozen(s);
    for (const Node& n : g.nodes())
      if (only_copies(n) && std::ranges::all_of(n.in, [&](int32_t v) { return narrow(v); }))
        for (const int32_t v : n.out) narrow(v) = true;
    for (const auto* ends : {&g.outputs(), &g.updates()})
      for (const NamedValue& e : *ends) narrow(e.value) = false;
    while (leave_out_what_is_read_in_f32()) {
    }
  }

  Graph run() {
    Rewriter rw(g_);
    for (const Source& s : g_.sources()) {
      Type type = g_.type(s.value);
      if (narrow(s.value)) type.dtype = dtype_;
      rw.set(s.value, rw.to().source(s.kind, s.name, type));
    }
    for (const Node& n : g_.nodes()) {
      if (is_cast(g_, n) && narrow(n.in[0]))
        rw.set(n.out[0], rw.map(n.in[0]));
      else
        rw.copy(n);
    }
    rw.copy_ends();
    return rw.take();
  }

 private:
  std::vector<bool>::reference narrow(int32_t v) { return narrow_[static_cast<size_t>(v)]; }

  bool is_frozen(const Source& s) const {
    return s.kind == Source::Kind::state && g_.type(s.value).dtype == DType::f32 &&
           !is_updated(g_, s);
  }
  static bool only_copies(const Node& n) { return n.op->renames || n.op->copy != nullptr; }

  // A node takes its operands and results in one dtype, unless it casts to the narrow one.
  bool leave_out_what_is_read_in_f32() {
    bool any = false;
    const auto leave_out = [&](int32_t v) {
      any = any || narrow(v);
      narrow(v) = false;
    };
    for (const Node& n : g_.nodes()) {
      const bool to_narrow = is_cast(g_, n) && g_.type(n.out[0]).dtype == dtype_;
      const auto is_narrow = [&](int32_t v) { return bool{narrow(v)}; };
      const bool copies = only_copies(n) && std::ranges::all_of(n.in, is_narrow) &&
                          std::ranges::all_of(n.out, is_narrow);
      if (to_narrow || copies) continue;
      for (const int32_t v : n.in) leave_out(v);
      for (const int32_t v : n.out) leave_out(v);
    }
    return any;
  }

  const Graph& g_;
  DType dtype_;
  std::vector<bool> narrow_;  // by value
};

}  // namespace

Graph narrow_states(const Graph& g, DType dtype) {
  if (dtype == DType::f32) return g;
  Graph out = StateNarrower(g, dtype).run();
  verify(out, "narrow_states");
  return out;
}

}  // namespace ebb
