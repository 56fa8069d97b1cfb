#include "passes/schedule/memory.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "ir/copy_form.h"
#include "ir/op.h"
#include "passes/views/copies.h"

namespace ebb {
namespace {

constexpr int64_t alignment = 64;

int64_t aligned(int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// An allocation: one or more values that share memory, live from the first write to the last read.
struct Storage {
  int64_t bytes = 0;
  int32_t first = 0, last = -1;  // nodes
  int32_t source = -1;
  int64_t offset = 0;
  bool live = true;  // false: merged into another
};

class Planner {
 public:
  // `joins`: operands of concatenations may be made in their place.
  Planner(const Graph& g, const std::vector<NodeMemory>& memory, bool joins)
      : g_(g),
        memory_(memory),
        joins_(joins),
        of_value_(static_cast<size_t>(g.values()), -1),
        offset_(static_cast<size_t>(g.values())),
        in_place_already_(g.nodes().size()) {
    for (const NamedValue& u : g.updates()) updated_.insert(root_of(g, u.value));
  }

  MemoryPlan run() {
    make_storages();
    place_updates();
    share_in_place();
    add_workspaces();
    place();
    return result();
  }
  bool has_joined() const { return has_joined_; }

 private:
  Storage& storage(int32_t value) {
    return storages_[static_cast<size_t>(of_value_[static_cast<size_t>(value)])];
  }
  int32_t end() const { return static_cast<int32_t>(g_.nodes().size()); }
  // The last node that may run concurrently with node `i`.
  int32_t done(int32_t i) const {
    return std::min(i + memory_[static_cast<size_t>(i)].extended_lifetime, end() - 1);
  }

  void make_storages() {
    for (size_t i = 0; i < g_.sources().size(); ++i) {
      of_value_[static_cast<size_t>(g_.sources()[i].value)] =
          static_cast<int32_t>(storages_.size());
      storages_.push_back({.first = -1, .source = static_cast<int32_t>(i)});
    }
    for (int32_t i = 0; i < end(); ++i) {
      const Node& n = g_.nodes()[static_cast<size_t>(i)];
      for (const int32_t v : n.in) storage(v).last = std::max(storage(v).last, done(i));
      if (memory_[static_cast<size_t>(i)].alias) {
        for (const int32_t v : n.out) put(v, {n.in[0], 0});
        continue;
      }
      if (lie_in_operands(n) || made_in_place(n)) {
        for (const int32_t v : n.out) storage(v).last = std::max(storage(v).last, done(i));
        in_place_already_[static_cast<size_t>(i)] = true;
        continue;
      }
      for (const int32_t v : n.out) {
        of_value_[static_cast<size_t>(v)] = static_cast<int32_t>(storages_.size());
        storages_.push_back({.bytes = g_.type(v).bytes(), .first = i, .last = done(i)});
      }
    }
    for (const NamedValue& o : g_.outputs()) storage(o.value).last = end();
  }

  // A range of a value's memory.
  struct Range {
    int32_t value = -1;
    int64_t begin = 0;  // bytes
  };
  void put(int32_t v, const Range& at) {
    of_value_[static_cast<size_t>(v)] = of_value_[static_cast<size_t>(at.value)];
    offset_[static_cast<size_t>(v)] = offset_[static_cast<size_t>(at.value)] + at.begin;
  }
  // Puts all that lies in a storage, into another one.
  void move_storage(int32_t from, int32_t to, int64_t offset) {
    storages_[static_cast<size_t>(from)].live = false;
    for (size_t v = 0; v < of_value_.size(); ++v) {
      if (of_value_[v] != from) continue;
      of_value_[v] = to;
      offset_[v] += offset;
    }
  }
  // Whether a value's storage holds it and no more.
  bool is_whole(int32_t v) {
    return offset_[static_cast<size_t>(v)] == 0 && storage(v).bytes == g_.type(v).bytes();
  }

  bool any_updated(const std::vector<int32_t>& values) const {
    return std::ranges::any_of(values,
                               [&](int32_t v) { return updated_.contains(root_of(g_, v)); });
  }

  // The bytes of a step along the dim of a copy, where ranges of it are ranges of memory at
  // alignment.
  std::optional<int64_t> step_of(const Shape& x, int64_t dim, DType dtype) const {
    for (int64_t d = 0; d < dim; ++d)
      if (x[d] != 1) return {};
    return x.strides()[static_cast<size_t>(dim)] * static_cast<int64_t>(size_of(dtype));
  }

  // Slices and splits that are ranges of their operands. What an update gives its source must be in
  // memory of its own: the operand's may be another source, and written before the copy.
  bool lie_in_operands(const Node& n) {
    if (!n.op->copy || any_updated(n.out)) return false;
    const CopyForm form = n.op->copy(g_.signature(n));
    std::vector<Range> ranges;
    for (const std::vector<CopyForm::Part>& parts : form.results) {
      if (parts.size() != 1) return false;
      const int32_t x = n.in[parts[0].operand];
      const auto step = step_of(g_.type(x).shape, form.dim, g_.type(x).dtype);
      if (!step || *step * parts[0].begin % alignment != 0) return false;
      ranges.push_back({x, *step * parts[0].begin});
    }
    for (size_t k = 0; k < ranges.size(); ++k) put(n.out[k], ranges[k]);
    return true;
  }

  // A concatenation of values that may lie side by side from the start.
  bool made_in_place(const Node& n) {
    if (!joins_ || !n.op->copy || n.out.size() != 1 || any_updated(n.in)) return false;
    const CopyForm form = n.op->copy(g_.signature(n));
    const Type& whole = g_.type(n.out[0]);
    const auto step = step_of(whole.shape, form.dim, whole.dtype);
    std::set<int32_t> storages;
    std::vector<int64_t> begins;
    int64_t at = 0;
    for (const CopyForm::Part& part : form.results[0]) {
      const int32_t x = n.in[part.operand];
      const bool all = part.begin == 0 && part.end == g_.type(x).shape[form.dim];
      const bool fresh = storages.insert(of_value_[static_cast<size_t>(x)]).second;
      if (!step || *step * at % alignment != 0 || !all || !fresh || storage(x).source >= 0 ||
          !is_whole(x))
        return false;
      begins.push_back(*step * at);
      at += part.end;
    }
    Storage joined{.bytes = whole.bytes(), .first = end()};
    for (const int32_t s : storages) {
      joined.first = std::min(joined.first, storages_[static_cast<size_t>(s)].first);
      joined.last = std::max(joined.last, storages_[static_cast<size_t>(s)].last);
    }
    const auto to = static_cast<int32_t>(storages_.size());
    storages_.push_back(joined);
    for (size_t k = 0; k < begins.size(); ++k)
      move_storage(of_value_[static_cast<size_t>(n.in[form.results[0][k].operand])], to, begins[k]);
    of_value_[static_cast<size_t>(n.out[0])] = to;
    return has_joined_ = true;
  }

  // Places an update's value in its source from the start, if the old content has no later reader.
  void place_updates() {
    for (const NamedValue& u : g_.updates()) {
      const Source& target = *g_.find_source(u.name);
      Storage& from = storage(u.value);
      const Storage old = storage(target.value);
      bool fits =
          from.source < 0 && is_whole(u.value) && from.last < end() && old.last <= from.first;
      if (fits && old.last == from.first) fits = may_alias(from.first, u.value, target.value);
      if (fits) {
        from.source = old.source;
      } else {
        from.last = end();
        copies_.push_back(u);
      }
    }
  }

  // May the output `out` of node `i` take the memory of its input `in`?
  bool may_alias(int32_t i, int32_t out, int32_t in) const {
    const Node& n = g_.nodes()[static_cast<size_t>(i)];
    if (!memory_[static_cast<size_t>(i)].in_place || !(g_.type(out) == g_.type(in))) return false;
    const auto is_direct = [&](int32_t v) { return v == in; };
    const auto reads = std::count_if(n.in.begin(), n.in.end(), [&](int32_t v) {
      return of_value_[static_cast<size_t>(v)] == of_value_[static_cast<size_t>(in)];
    });
    const auto makes = std::find(n.out.begin(), n.out.end(), out);
    return makes != n.out.end() && reads == std::count_if(n.in.begin(), n.in.end(), is_direct) &&
           kernel_allows(i, static_cast<size_t>(makes - n.out.begin()), in);
  }

  bool kernel_allows(int32_t i, size_t out, int32_t in) const {
    const auto& allows = memory_[static_cast<size_t>(i)].may_alias;
    const auto& inputs = g_.nodes()[static_cast<size_t>(i)].in;
    for (size_t k = 0; k < inputs.size() && allows; ++k)
      if (inputs[k] == in && !allows(out, k)) return false;
    return true;
  }

  void share_in_place() {
    for (int32_t i = 0; i < end(); ++i) {
      const Node& n = g_.nodes()[static_cast<size_t>(i)];
      if (!memory_[static_cast<size_t>(i)].in_place) continue;
      std::vector<int32_t> taken;
      for (const int32_t out : n.out) {
        if (storage(out).source >= 0 || !is_whole(out)) continue;
        for (const int32_t in : n.in) {
          Storage& s = storage(in);
          if (s.source >= 0 || s.last != i || s.first == i || !may_alias(i, out, in)) continue;
          if (std::find(taken.begin(), taken.end(), in) != taken.end()) continue;
          taken.push_back(in);
          s.last = std::max(s.last, storage(out).last);
          move_storage(of_value_[static_cast<size_t>(out)], of_value_[static_cast<size_t>(in)],
                       offset_[static_cast<size_t>(in)]);
          break;
        }
      }
    }
  }

  void add_workspaces() {
    for (int32_t i = 0; i < end(); ++i) {
      workspace_.push_back(static_cast<int32_t>(storages_.size()));
      storages_.push_back(
          {.bytes = memory_[static_cast<size_t>(i)].workspace, .first = i, .last = done(i)});
    }
  }

  // Largest first, each at the lowest offset that is free for its whole life.
  void place() {
    std::vector<Storage*> todo, placed;
    for (Storage& s : storages_)
      if (s.live && s.source < 0 && s.bytes > 0) todo.push_back(&s);
    std::stable_sort(todo.begin(), todo.end(),
                     [](const Storage* a, const Storage* b) { return a->bytes > b->bytes; });
    for (Storage* s : todo) {
      const int64_t bytes = aligned(s->bytes);
      int64_t at = 0;
      for (const Storage* p : placed) {  // ordered by offset
        if (p->last < s->first || s->last < p->first) continue;
        if (p->offset >= at + bytes) break;
        at = std::max(at, p->offset + aligned(p->bytes));
      }
      s->offset = at;
      arena_ = std::max(arena_, at + bytes);
      placed.insert(std::upper_bound(
                        placed.begin(), placed.end(), s,
                        [](const Storage* a, const Storage* b) { return a->offset < b->offset; }),
                    s);
    }
  }

  MemoryPlan result() {
    MemoryPlan plan;
    for (int32_t v = 0; v < g_.values(); ++v)
      plan.values.push_back(
          {storage(v).source, storage(v).offset + offset_[static_cast<size_t>(v)]});
    plan.in_place_already = std::move(in_place_already_);
    for (const int32_t w : workspace_)
      plan.workspace.push_back(storages_[static_cast<size_t>(w)].offset);
    plan.copies = copies_;
    plan.arena_bytes = arena_;
    return plan;
  }

  const Graph& g_;
  const std::vector<NodeMemory>& memory_;
  bool joins_;
  bool has_joined_ = false;
  std::set<int32_t> updated_;  // what updates give their sources: root_of() each
  std::vector<Storage> storages_;
  std::vector<int32_t> of_value_;  // storage of a value
  std::vector<int64_t> offset_;    // of a value in its storage, bytes
  std::vector<bool> in_place_already_;
  std::vector<int32_t> workspace_;  // storage of a node's workspace
  std::vector<NamedValue> copies_;
  int64_t arena_ = 0;
};

}  // namespace

int64_t source_bytes(const Graph& g) {
  int64_t n = 0;
  for (const Source& s : g.sources()) n += g.type(s.value).bytes();
  return n;
}

MemoryPlan plan_memory(const Graph& g, const std::function<NodeMemory(const Node&)>& memory_of) {
  std::vector<NodeMemory> memory;
  for (const Node& n : g.nodes()) memory.push_back(memory_of(n));
  Planner planner(g, memory, true);
  MemoryPlan joined = planner.run();
  if (!planner.has_joined()) return joined;
  // Parts that are made in place take the whole's memory from the first of them on.
  MemoryPlan copied = Planner(g, memory, false).run();
  return joined.arena_bytes <= copied.arena_bytes ? joined : copied;
}

}  // namespace ebb
