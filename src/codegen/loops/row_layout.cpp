// Partitioning of rows among threads, and the choice of inputs kept in registers.
#include <algorithm>
#include <numeric>

#include "codegen/loops/row_kernel.h"
#include "codegen/loops/work_split.h"
#include "ir/expr_inputs.h"

namespace ebb::codegen {
namespace {

using Residency = RowLayout::Residency;

constexpr int widest = 1024;  // threads of a row, at most

// Another value for every element; what repeats stays in caches.
bool streams(const RowForm& f, size_t i) {
  const std::vector<int64_t>& s = f.space.strides[i];
  return std::find(s.begin(), s.end(), 0) == s.end();
}

class Cutter {
 public:
  Cutter(const RowForm& f, int vector, int subgroup) : f_(f), vector_(vector), subgroup_(subgroup) {
    std::vector<bool> all = inputs_of(f.expr, 0, f.expr.results().size()),
                      terms = inputs_of(f.expr, 0, f.reductions());
    for (size_t i = 0; i < f.in.size(); ++i) {
      const size_t source = source_of(f, i, vector);
      if (source == i) continue;
      terms[source] = terms[source] || terms[i];
      all[i] = terms[i] = false;
    }
    for (size_t i = 0; i < f.in.size(); ++i) {
      residency_.push_back(!all[i]                          ? Residency::none
                           : f.space.strides[i].back() == 0 ? Residency::row
                                                            : Residency::streamed);
      if (residency_[i] == Residency::streamed && streams(f, i))
        (terms[i] ? first_ : second_).push_back(i);
    }
  }

  int64_t vectors() const { return f_.length() / vector_; }
  // The next numbers of threads for a row: a part of a subgroup, or whole ones.
  int fewest() const { return std::min(8, subgroup_); }
  int more(int lanes) const { return lanes + std::min(lanes, subgroup_); }
  int64_t steps(int lanes) const { return ceil_div(vectors(), lanes); }
  // Of the registers for steps, those with something in them.
  double used(int lanes) const {
    return static_cast<double>(vectors()) / static_cast<double>(steps(lanes) * lanes);
  }
  // Registers of what the reductions need; of all that streams.
  int64_t least(int lanes) const { return steps(lanes) * registers_of(first_); }
  int64_t most(int lanes) const { return least(lanes) + steps(lanes) * registers_of(second_); }

  RowLayout layout(int lanes, int64_t budget) const {
    RowLayout l{.vector = vector_, .lanes = lanes, .steps = static_cast<int>(steps(lanes))};
    constexpr int small_block = 128;
    l.threads = lanes > subgroup_ ? lanes : std::max(small_block, subgroup_);
    l.residency = residency_;
    int64_t kept = 0;
    for (const auto* group : {&first_, &second_})
      for (const size_t i : *group) {
        const int64_t more = l.steps * registers(i);
        if (kept + more > budget) continue;
        kept += more;
        l.residency[i] = Residency::resident;
      }
    for (size_t i = 0; i < residency_.size(); ++i)
      if (l.residency[i] == Residency::streamed) kept += 2 * registers(i);
    constexpr int64_t modest = 40;
    l.registers = kept <= modest ? 64 : 96;
    return l;
  }

  // Partial column reductions: two rows in registers, coefficients and the sums of the columns.
  int64_t with_partials(int lanes) const {
    int64_t n = 2 * (registers_of(first_) + registers_of(second_));
    for (size_t i = 0; i < residency_.size(); ++i)
      if (is_loop_invariant(i)) n += registers(i);
    for (const RowExtent per : f_.extents) n += per == RowExtent::partial ? vector_ : 0;
    return n * steps(lanes);
  }
  RowLayout partial_layout(int lanes, int64_t budget) const {
    RowLayout l = layout(lanes, budget);
    for (size_t i = 0; i < residency_.size(); ++i) {
      if (is_loop_invariant(i)) l.residency[i] = Residency::loop_invariant;
      if (l.residency[i] == Residency::streamed && streams(f_, i))
        l.residency[i] = Residency::resident;
    }
    constexpr int64_t modest = 36;
    l.registers = lanes > 512 || with_partials(lanes) <= modest ? 64 : 96;
    return l;
  }

 private:
  bool is_loop_invariant(size_t i) const {
    return residency_[i] == Residency::streamed && !streams(f_, i) && f_.row_stride(i) == 0;
  }
  int64_t registers(size_t i) const {  // of a vector
    const int64_t size = size_of(f_.in[i]), bytes = vector_ * size;
    return size < 4 && bytes % 4 != 0 ? vector_ : ceil_div(bytes, 4);
  }
  int64_t registers_of(const std::vector<size_t>& group) const {
    int64_t n = 0;
    for (const size_t i : group) n += registers(i);
    return n;
  }

  const RowForm& f_;
  int vector_, subgroup_;
  std::vector<Residency> residency_;
  std::vector<size_t> first_, second_;  // streamed inputs: of the reductions; of the outputs only
};

// Elements of a vector: 16 bytes of the widest tensor that streams.
int vector_along(const RowForm& f) {
  std::vector<DType> along;
  for (size_t i = 0; i < f.in.size(); ++i)
    if (f.expr.uses(static_cast<int64_t>(i)) && streams(f, i)) along.push_back(f.in[i]);
  for (size_t k = 0; k < f.out.size(); ++k)
    if (f.extents[k] == RowExtent::element) along.push_back(f.out[k]);
  if (along.empty()) along.push_back(DType::f32);
  int64_t vector = std::gcd<int64_t, int64_t>(vector_of(along), f.run());
  for (size_t i = 0; i < f.in.size(); ++i)
    if (f.expr.uses(static_cast<int64_t>(i)) && f.space.strides[i].back() != 0)
      vector = std::gcd(vector, f.slices.grain(i));
  return static_cast<int>(f.swaps.widest(vector));
}

constexpr double full = 0.9;             // share of the registers for steps that are in use
constexpr int64_t register_budget = 24;  // of a thread, for what streams

// Threads of a row.
int lanes_of(const Cutter& cut) {
  constexpr int64_t most_steps = 6;
  int best = 0;
  for (int lanes = cut.fewest(); lanes <= widest; lanes = cut.more(lanes)) {
    if (cut.least(lanes) > register_budget || cut.steps(lanes) > most_steps) continue;
    if (best == 0 || cut.used(lanes) > cut.used(best)) best = lanes;
    if (cut.used(lanes) >= full && cut.most(lanes) <= register_budget) return lanes;
  }
  return best == 0 ? widest : best;
}

RowLayout laid_out(const RowForm& f, const Cutter& cut, int lanes, int sm_count) {
  // few rows: more threads for each
  constexpr int64_t resident = 512, tight = 32;
  const int64_t rows = std::max(f.rows(), f.shared_rows);
  while (lanes * 2 <= widest && rows * lanes < sm_count * resident && cut.steps(lanes) > 1)
    lanes *= 2;
  constexpr int crowded = 512;
  return cut.layout(lanes, lanes > crowded ? tight : register_budget + 8);
}

// Rows are pipelined one after another, so fewer loads in flight per row suffice: few elements per
// thread.
RowLayout partial_layout(const Cutter& cut) {
  constexpr int64_t budget = 48;
  int lanes = cut.fewest();
  while (lanes < widest && cut.with_partials(lanes) > budget && cut.steps(lanes) > 1)
    lanes = cut.more(lanes);
  return cut.partial_layout(lanes, budget);
}

}  // namespace

size_t source_of(const RowForm& f, size_t i, int64_t vector) {
  if (i >= f.same.size() || f.same[i] < 0) return i;
  const auto k = static_cast<size_t>(f.same[i]);
  const auto read_whole = [&](size_t x) {
    return f.expr.uses(static_cast<int64_t>(x)) && !f.swaps.moves(x, vector);
  };
  const bool together = read_whole(i) && read_whole(k) && f.swaps.run(k) == 0 &&
                        f.space.strides[i] == f.space.strides[k];
  return together ? k : i;
}

RowLayout row_layout(const RowForm& f, const Target& target) {
  const int sm_count = target.sm_count;
  const int widest_vector = f.unaligned ? 1 : vector_along(f);
  const Cutter cut(f, widest_vector, target.subgroup);
  if (f.partial_rows > 0) return partial_layout(cut);
  // Threads with one vector each wait for it, and then for the reductions: where rows divide badly
  // into more, vectors of half the width are faster (rows of 1152 in bf16 on an H200: 46.5 us with
  // 96 threads of 3 x 4 elements, 57 with 160 of 8).
  const int lanes = lanes_of(cut);
  if (widest_vector >= 4 && cut.steps(lanes) == 1 && f.length() > widest_vector * target.subgroup) {
    const Cutter half(f, widest_vector / 2, target.subgroup);
    if (const int more = lanes_of(half); half.steps(more) > 1 && half.used(more) >= full)
      return laid_out(f, half, more, sm_count);
  }
  return laid_out(f, cut, lanes, sm_count);
}

std::vector<int> rounds_of(const RowForm& f) {
  std::vector<int> rounds;
  for (size_t t = 0; t < f.reductions(); ++t) {
    const std::vector<bool> used = inputs_of(f.expr, t, t + 1);
    int round = 0;
    for (size_t before = 0; before < t; ++before)
      if (used[f.in.size() + before]) round = std::max(round, rounds[before] + 1);
    rounds.push_back(round);
  }
  return rounds;
}

}  // namespace ebb::codegen
