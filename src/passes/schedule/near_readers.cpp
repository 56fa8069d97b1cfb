#include "passes/schedule/near_readers.h"

#include <numeric>

#include "ir/op.h"
#include "passes/simplify.h"
#include "passes/uses.h"

namespace ebb {
namespace {

constexpr size_t near = 32;  // nodes

class Placer {
 public:
  explicit Placer(const Graph& g)
      : g_(g), restored_(restored_values(g)), read_at_(restored_.size()), rw_(g) {}

  NearReaders run() {
    rw_.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      if (!n.out.empty() && is_restored(n.out[0])) continue;
      make_operands(n, i);
      copy(i);
    }
    for (const auto* ends : {&g_.outputs(), &g_.updates()})
      for (const NamedValue& e : *ends)
        if (is_restored(e.value)) make(e.value, g_.nodes().size());
    rw_.copy_ends();
    return {rw_.take(), std::move(origin_)};
  }

 private:
  bool is_restored(int32_t v) const { return restored_[static_cast<size_t>(v)]; }

  void make_operands(const Node& n, size_t reader) {
    for (const int32_t v : n.in)
      if (is_restored(v)) make(v, reader);
  }

  // Before the reader, unless it was made for one nearby.
  void make(int32_t v, size_t reader) {
    size_t& read_at = read_at_[static_cast<size_t>(v)];  // + 1; 0: by none
    const bool there = read_at > 0 && reader - (read_at - 1) <= near;
    const auto i = static_cast<size_t>(g_.producer(v));
    for (const int32_t out : g_.nodes()[i].out) read_at_[static_cast<size_t>(out)] = reader + 1;
    if (there) return;
    make_operands(g_.nodes()[i], reader);
    copy(i);
  }

  void copy(size_t i) {
    rw_.copy(g_.nodes()[i]);
    origin_.push_back(i);
  }

  const Graph& g_;
  std::vector<bool> restored_;
  std::vector<size_t> read_at_;  // by value
  Rewriter rw_;
  std::vector<size_t> origin_;
};

}  // namespace

std::vector<bool> restored_values(const Graph& g) {
  std::vector<bool> stays(static_cast<size_t>(g.values())), codes(stays.size());
  const auto at = [](std::vector<bool>& v, int32_t value) -> std::vector<bool>::reference {
    return v[static_cast<size_t>(value)];
  };
  for (const Source& s : g.sources()) {
    at(stays, s.value) = s.kind == Source::Kind::state && !is_updated(g, s);
    at(codes, s.value) = at(stays, s.value) && g.type(s.value).dtype == DType::u8;
  }
  std::vector<bool> out(stays.size());
  for (const Node& n : g.nodes()) {
    bool all = !n.in.empty(), any = false;
    for (const int32_t v : n.in) {
      all = all && at(stays, v);
      any = any || at(codes, v);
    }
    for (const int32_t v : n.out) {
      at(stays, v) = all;
      at(codes, v) = at(out, v) = all && any;
    }
  }
  return out;
}

NearReaders near_readers(const Graph& g) {
  NearReaders out = Placer(g).run();
  verify(out.graph, "near_readers");
  return out;
}

}  // namespace ebb
