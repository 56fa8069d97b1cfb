#include "codegen/loops/reduce_kernel.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>

#include "codegen/expr_writer.h"
#include "codegen/index.h"
#include "codegen/reduce.h"

namespace ebb::codegen {
namespace {

class ReduceWriter {
 public:
  ReduceWriter(const ReduceForm& form, const ReduceLayout& layout, const Target& target)
      : form_(form),
        layout_(layout),
        b_("reduce", target),
        results_(form.expr.results().size()),
        writer_(b_, form.expr, rates(), std::vector<bool>(results_, form.narrow)) {
    for (size_t i = 0; i < form.in.size(); ++i)
      if (form.expr.uses(static_cast<int64_t>(i))) loop_.used.push_back(i);
  }

  LoopKernel write() {
    for (size_t i = 0; i < loop_.used.size(); ++i) base_.push_back(b_.pointer(loop_.pointers));
    for (size_t k = 0; k < (layout_.direct ? results_ : 1); ++k)
      out_.push_back(b_.pointer(loop_.pointers));
    form_.rows() ? rows() : columns();
    loop_.kernel = b_.finish(256, 4);
    loop_.parameters = std::move(b_.parameters());
    return std::move(loop_);
  }

 private:
  enum Group : uint8_t { kept_group, run_group, inner_group };

  // ---- strides ---------------------------------------------------------------------------------

  std::pair<size_t, size_t> range(Group g) const {
    if (g == kept_group) return {0, form_.kept_dims};
    if (g == run_group) return {form_.kept_dims, form_.run_end};
    return {form_.run_end, form_.space.sizes.size()};
  }
  bool innermost(Group g) const { return g == (form_.rows() ? run_group : inner_group); }
  std::vector<int64_t> sizes(Group g) const {
    const auto [first, last] = range(g);
    std::vector<int64_t> s(form_.space.sizes.begin() + static_cast<int64_t>(first),
                           form_.space.sizes.begin() + static_cast<int64_t>(last));
    if (innermost(g)) s.back() /= layout_.vector;
    return s;
  }
  std::vector<int64_t> strides(size_t i, Group g) const {
    const auto [first, last] = range(g);
    const std::vector<int64_t>& all = form_.space.strides[i];
    std::vector<int64_t> s(all.begin() + static_cast<int64_t>(first),
                           all.begin() + static_cast<int64_t>(last));
    if (innermost(g)) s.back() *= layout_.vector;
    return s;
  }
  bool moves(size_t i) const {  // along the run
    const auto s = strides(i, run_group);
    return std::any_of(s.begin(), s.end(), [](int64_t v) { return v != 0; });
  }
  int width(size_t i) const { return form_.space.strides[i].back() == 0 ? 1 : layout_.vector; }
  std::vector<InputRate> rates() const {
    std::vector<InputRate> r;
    for (size_t i = 0; i < form_.in.size(); ++i)
      r.push_back({moves(i), form_.space.strides[i].back() == 0 ? 0 : 1});
    return r;
  }

  // ---- loop-invariant values -------------------------------------------------------------------

  // fixed_: the addresses at these kept (and inner) indices and the run's start.
  void fix(U32 kept, U32 inner) {
    for (size_t u = 0; u < loop_.used.size(); ++u) fixed_.push_back(base_[u]);
    fix_group(kept_group, kept);
    if (!form_.rows()) fix_group(inner_group, inner);
  }
  void fix_group(Group g, U32 number) {
    const auto [first, last] = range(g);
    if (first == last) return;
    const Coordinates split(b_, sizes(g));
    const std::vector<U32> at = split.of(number);
    std::map<std::vector<int64_t>, U64> known;
    for (size_t u = 0; u < loop_.used.size(); ++u) {
      const auto s = strides(loop_.used[u], g);
      if (!known.contains(s)) known[s] = Strides(b_, s).offset(at);
      fixed_[u] = address(fixed_[u], known[s], form_.in[loop_.used[u]]);
    }
  }

  // Loop-invariant values of the loop along the run.
  void prepare_loop() {
    fixed_words_.resize(form_.in.size());
    for (size_t u = 0; u < loop_.used.size(); ++u) {
      const size_t i = loop_.used[u];
      if (!moves(i)) fixed_words_[i] = b_.load(form_.in[i], width(i), {fixed_[u]});
    }
    writer_.write_invariant(layout_.vector,
                            [this](size_t i, int s, int e) { return loaded(i, s, e); });
    run_split_.emplace(b_, sizes(run_group));
    for (const size_t i : loop_.used) {
      const auto s = strides(i, run_group);
      if (!run_strides_.contains(s)) run_strides_.emplace(s, Strides(b_, s));
    }
  }

  F32 loaded(size_t i, int step, int element) {
    const int e = width(i) == 1 ? 0 : element;
    if (!moves(i)) return b_.element(fixed_words_[i], e);
    return b_.element(loaded_[i][static_cast<size_t>(step)], e);
  }

  // ---- the loop along the run ------------------------------------------------------------------

  // at, at + stride, ... below end. Accumulates into acc_[result][slot]. The loads of a step are
  // in flight while the previous steps are computed.
  void loop(U32 at, U32 end, U32 stride) {
    std::vector<U32> first = {at};
    for (int s = 1; s < layout_.steps; ++s) first.push_back(first.back() + stride);
    std::vector<Var<Kind::u32>> number;
    std::vector<Var<Kind::pred>> inside;
    loaded_.resize(form_.in.size());
    for (const size_t i : loop_.used)
      for (int s = 0; s < layout_.steps && moves(i); ++s)
        loaded_[i].push_back(b_.words_var(form_.in[i], width(i)));
    for (const U32 n : first) {
      number.push_back(b_.var(n));
      inside.push_back(b_.var(n < end));
    }
    const U32 ahead = stride * static_cast<uint32_t>(layout_.steps);
    for (size_t s = 0; s < number.size(); ++s) load_step(s, number[s].get(), inside[s].get());
    b_.loop([&] {
      b_.break_unless(inside[0].get());
      for (size_t s = 0; s < number.size(); ++s) {
        accumulate(static_cast<int>(s), s == 0 ? Pred() : inside[s].get());
        const U32 next = number[s].get() + ahead;
        const Pred there = next < end;
        number[s].set(next);
        inside[s].set(there);
        load_step(s, number[s].get(), inside[s].get());
      }
    });
  }

  void load_step(size_t step, U32 number, Pred inside) {
    const std::vector<U32> at = run_split_->of(number);
    std::map<std::vector<int64_t>, U64> offset;
    for (size_t u = 0; u < loop_.used.size(); ++u) {
      const size_t i = loop_.used[u];
      if (!moves(i)) continue;
      const auto by = strides(i, run_group);
      if (!offset.contains(by)) offset[by] = run_strides_.at(by).offset(at);
      const Address from{address(fixed_[u], offset[by], form_.in[i]), 0, inside};
      b_.set(loaded_[i][step], b_.load(form_.in[i], width(i), from));
    }
  }

  F32 combine(F32 a, F32 b) const { return form_.maximum ? max(a, b) : sum(a, b); }

  void accumulate(int step, Pred inside) {
    const auto load = [this](size_t i, int s, int e) { return loaded(i, s, e); };
    for (size_t k = 0; k < results_; ++k) {
      F32 all;  // rows: of the vector
      for (int e = 0; e < layout_.vector; ++e) {
        const F32 v = writer_.result(k, step, e, load);
        if (form_.rows()) {
          all = e == 0 ? v : combine(all, v);
        } else {
          const Var<Kind::f32> acc = acc_[k][static_cast<size_t>(e)];
          b_.when(inside, [&] { acc.set(combine(acc.get(), v)); });
        }
      }
      if (!form_.rows()) continue;
      const Var<Kind::f32> acc = acc_[k][static_cast<size_t>(step)];
      b_.when(inside, [&] { acc.set(combine(acc.get(), all)); });
    }
  }

  void start_accumulators(int slots) {
    const float start = form_.maximum ? -std::numeric_limits<float>::infinity() : 0.0f;
    acc_.resize(results_);
    for (auto& a : acc_)
      for (int i = 0; i < slots; ++i) a.push_back(b_.var(b_.f32(start)));
  }

  F32 scaled(F32 v) {
    if (!layout_.direct || form_.maximum) return v;
    if (!scale_) scale_ = b_.param<Kind::f32>(b_.parameters().add_value(form_.scale));
    return v * scale_;
  }

  DType dtype(size_t k) const { return layout_.direct ? form_.out[k] : DType::f32; }

  // The address of result k of (kept, chunk, inner element).
  Address target(size_t k, U32 kept, U32 chunk, U32 inner) {
    U32 index = kept;
    if (!layout_.direct) {
      if (k > 0) index = index + b_.number(form_.kept() * static_cast<int64_t>(k));
      index = mul_add(index, b_.number(layout_.chunks), chunk);
    }
    const U64 offset =
        form_.rows() ? widen(index) : mul_wide_add(index, b_.number(form_.inner()), widen(inner));
    return {address(out_[layout_.direct ? k : 0], offset, dtype(k))};
  }

  // ---- rows: neighbouring threads along the run ----------------------------------------------

  void rows() {
    const int subgroup = b_.target().subgroup;
    const bool block = layout_.lanes > subgroup;
    const U32 tid = b_.thread_index(), cta = b_.block_index();
    U32 kept = cta, chunk = b_.u32(0), lane = tid;
    Pred valid;
    const int64_t per_block = loop_.threads / layout_.lanes;
    loop_.blocks = (form_.kept() + per_block - 1) / per_block * layout_.chunks;
    if (block) {
      const auto at = Coordinates(b_, {form_.kept(), layout_.chunks}).of(cta);
      kept = at[0];
      chunk = at[1];
    } else {
      kept = mul_add(cta, per_block, b_.subgroup_index(layout_.lanes));
      lane = b_.lane(layout_.lanes);
      const U32 count = b_.number(form_.kept());
      valid = kept < count;
      kept = min(kept, count - 1);  // all lanes take part
    }
    fix(kept, {});
    prepare_loop();
    start_accumulators(layout_.steps);
    const U32 per_chunk = b_.number(layout_.per_chunk);
    const U32 begin = chunk * per_chunk;
    const U32 end = min(begin + per_chunk, b_.number(form_.run() / layout_.vector));
    loop(begin + lane, end, b_.u32(static_cast<uint32_t>(layout_.lanes)));
    std::vector<F32> total;
    for (const auto& a : acc_) {
      F32 of_steps = a[0].get();
      for (size_t s = 1; s < a.size(); ++s) of_steps = combine(of_steps, a[s].get());
      total.push_back(of_steps);
    }
    const auto by = [this](size_t, F32 a, F32 b) { return combine(a, b); };
    if (layout_.lanes > 1) {
      b_.subgroup_barrier();
      total = subgroup_reduce(b_, total, std::min(layout_.lanes, subgroup), by);
    }
    if (block) total = block_reduce(b_, total, loop_.threads, by);
    const Pred first = both(lane == 0u, valid);
    for (size_t k = 0; k < results_; ++k) {
      Address to = target(k, kept, chunk, {});
      to.when = first;
      const F32 v[] = {scaled(total[k])};
      b_.store(dtype(k), v, to);
    }
  }

  // ---- columns: neighbouring threads across the inner dims ------------------------------------

  void columns() {
    loop_.threads = layout_.across * layout_.down;
    loop_.blocks = form_.kept() * layout_.chunks * layout_.tiles;
    const U32 tid = b_.thread_index(), cta = b_.block_index();
    const auto at = Coordinates(b_, {form_.kept(), layout_.chunks, layout_.tiles}).of(cta);
    const U32 across = b_.number(layout_.across), down = b_.number(layout_.down);
    const U32 row = quotient(b_, tid, layout_.across);
    U32 column = mul_add(at[2], across, tid - row * across);
    const U32 vectors = b_.number(form_.inner() / layout_.vector);
    const Pred valid = column < vectors;
    column = min(column, vectors - 1);  // all take part in barriers
    fix(at[0], column);
    prepare_loop();
    start_accumulators(layout_.vector);
    const U32 per_chunk = b_.number(layout_.per_chunk);
    const U32 begin = at[1] * per_chunk;
    const U32 end = min(begin + per_chunk, b_.number(form_.run()));
    loop(begin + row, end, down);
    if (layout_.down > 1) return write_sums(tid, at[0], at[1], at[2]);
    const U32 element = column * static_cast<uint32_t>(layout_.vector);
    for (size_t k = 0; k < results_; ++k) {
      Address to = target(k, at[0], at[1], element);
      to.when = valid;
      std::vector<F32> v;
      for (const auto& a : acc_[k]) v.push_back(scaled(a.get()));
      b_.store(dtype(k), v, to);
    }
  }

  // Threads that sum up one element.
  int parts() const {
    const int subgroup = b_.target().subgroup, elements = layout_.across * layout_.vector;
    int n = 1;
    while (loop_.threads % subgroup == 0 && 2 * n <= std::min(layout_.down, subgroup) &&
           2 * n * elements <= loop_.threads)
      n *= 2;
    return n;
  }

  // Sums over the block's rows of threads, by way of shared memory: neighbours take every n-th row
  // of an element, and their neighbours the next element. One barrier, where halving the rows takes
  // two each time.
  void write_sums(U32 tid, U32 kept, U32 chunk, U32 tile) {
    constexpr int banks = 32;
    const int elements = layout_.across * layout_.vector, n = parts();
    const int pad = n > 1 ? 1 : banks / layout_.vector;  // neighbours read other banks
    const int64_t stride = loop_.threads + pad;          // floats from element to element
    const SharedArray memory =
        b_.shared_array(4, static_cast<int64_t>(results_) * layout_.vector * stride);
    const SharedAddress own = b_.at(memory, tid);
    int64_t slot = 0;
    for (const auto& a : acc_)
      for (const auto& v : a) {
        const F32 value[] = {v.get()};
        b_.store(value, SharedAddress{own.base, 4 * stride * slot++});
      }
    b_.barrier();
    const U32 part = b_.lane(n), first = tile * static_cast<uint32_t>(elements);
    const U32 inner = b_.number(form_.inner());
    for (int from = 0; from < elements; from += loop_.threads / n) {
      const U32 element = b_.subgroup_index(n) + static_cast<uint32_t>(from);
      const U32 at = min(element, b_.u32(static_cast<uint32_t>(elements - 1)));
      const U32 column = at >> std::countr_zero(static_cast<uint32_t>(layout_.vector));
      const U32 row = mul_add(part, layout_.across, column);
      const SharedAddress begin =
          b_.at(memory, mul_add(at & static_cast<uint32_t>(layout_.vector - 1), stride, row));
      const Pred there = both(element < static_cast<uint32_t>(elements), first + element < inner);
      for (size_t k = 0; k < results_; ++k) {
        Address to = target(k, kept, chunk, first + element);
        to.when = n == 1 ? there : both(there, part == 0u);
        const int64_t of_result = static_cast<int64_t>(k) * layout_.vector * stride;
        const F32 v[] = {scaled(sum_of_rows(begin, of_result, n))};
        b_.store(dtype(k), v, to);
      }
    }
  }
  F32 sum_of_rows(const SharedAddress& begin, int64_t first, int n) {
    F32 all;
    for (int row = 0; row < layout_.down; row += n) {
      const int64_t at = 4 * (first + int64_t{row} * layout_.across);
      const F32 v = b_.element(b_.load(DType::f32, 1, SharedAddress{begin.base, at}), 0);
      all = row == 0 ? v : combine(all, v);
    }
    for (int by = 1; by < n; by *= 2) all = combine(all, b_.shuffle_xor(all, by));
    return all;
  }

  const ReduceForm& form_;
  const ReduceLayout& layout_;
  Builder b_;
  size_t results_;
  ExprWriter writer_;
  LoopKernel loop_;
  std::vector<U64> base_, out_, fixed_;
  F32 scale_;
  std::vector<Words> fixed_words_;             // by input that does not move
  std::vector<std::vector<WordsVar>> loaded_;  // by input, by step
  std::optional<Coordinates> run_split_;
  std::map<std::vector<int64_t>, Strides> run_strides_;
  std::vector<std::vector<Var<Kind::f32>>> acc_;  // by result: rows by step, columns by element
};

}  // namespace

LoopKernel write_reduce(const ReduceForm& form, const ReduceLayout& layout, const Target& target) {
  return ReduceWriter(form, layout, target).write();
}

}  // namespace ebb::codegen
