#include "codegen/loops/row_kernel.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <span>

#include "base/error.h"
#include "codegen/expr_writer.h"
#include "codegen/index.h"
#include "codegen/loops/row_addresses.h"
#include "codegen/loops/work_split.h"
#include "codegen/reduce.h"

namespace ebb::codegen {
namespace {

constexpr int phase_steps = 64;  // the writer's step: phase * phase_steps + step

using Residency = RowLayout::Residency;

class RowWriter {
 public:
  RowWriter(const RowForm& form, const RowLayout& layout, const Target& target)
      : form_(form),
        layout_(layout),
        b_("rows", target),
        subgroup_(b_.target().subgroup),
        rounds_(rounds_of(form)),
        writer_(b_, form.expr, rates(), narrow()),
        reduced_(form.reductions()) {
    for (size_t i = 0, tensor = 0; i < form.in.size(); tensor += form.segments.of(i++)) {
      if (layout.residency[i] == Residency::none || source(i) != i) continue;
      used_.push_back(i);
      for (size_t k = 0; k < form.segments.of(i); ++k) loop_.used.push_back(tensor + k);
    }
  }

  LoopKernel write() {
    b_.share_launch(form_.uses, form_.alternate);
    find_row();
    find_addresses();
    place_shared();
    load_all(Residency::loop_invariant);
    load_all(Residency::resident);
    if (form_.partial_rows > 0) {
      accumulate_rows();
      write_partials();
    } else {
      row();
    }
    finish();
    return std::move(loop_);
  }

 private:
  // ---- what moves how ------------------------------------------------------------------------

  size_t source(size_t i) const { return source_of(form_, i, layout_.vector); }
  bool along(size_t i) const {
    return layout_.residency[i] != Residency::none && layout_.residency[i] != Residency::row;
  }
  // Whether there is one vector of an input that moves along rows.
  bool repeats(size_t i) const { return repeats_each_step(form_, layout_, i); }
  std::vector<InputRate> rates() const {
    std::vector<InputRate> r;
    for (size_t i = 0; i < form_.in.size(); ++i)
      r.push_back(along(source(i)) ? InputRate{!repeats(source(i)), 1} : InputRate{false, 0});
    r.resize(r.size() + form_.reductions(), {false, 0});
    return r;
  }
  std::vector<bool> narrow() const {
    std::vector<bool> n(form_.reductions());
    for (const bool b : narrow_results(form_.out)) n.push_back(b);
    return n;
  }
  int64_t vectors() const { return form_.length() / layout_.vector; }
  bool per(size_t k, RowExtent what) const { return form_.extents[k] == what; }

  // ---- a row, or those of a partial reduction ------------------------------------------------

  void row() {
    load_rows();
    const int last = rounds_.empty() ? 0 : *std::max_element(rounds_.begin(), rounds_.end());
    for (phase_ = 0; phase_ <= last; ++phase_) run_reductions();
    write_row_numbers();
    write_elements();
  }

  // A row is computed while the next is on its way.
  void accumulate_rows() {
    start_sums();
    hold_rows();
    const auto number = b_.var(b_.u32(0));
    const U32 end = b_.number(form_.partial_rows);
    b_.loop([&] {
      const U32 at = number.get() + 1;
      number.set(at);
      const Pred more = at < end;
      const Pred more_inside = inside_ ? both(inside_, more) : Pred();
      const std::vector<U64> here = inputs_here(), behind = inputs_behind(here);
      in_ = behind;
      std::vector<std::vector<Words>> next(form_.in.size());
      for (const size_t i : used_)
        for (size_t s = 0; s < held_[i].size(); ++s)
          next[i].push_back(
              load(i, static_cast<int>(s), inside(static_cast<int>(s)) ? more_inside : more));
      in_ = here;
      for (size_t k = 0; k < out_.size(); ++k)
        if (out_at_[k]) out_[k] = out_at_[k].get();
      row();
      add_to_sums();
      for (const size_t i : used_) {
        for (size_t s = 0; s < next[i].size(); ++s) b_.set(held_[i][s], next[i][s]);
        if (in_at_[i]) in_at_[i].set(behind[i]);
      }
      advance_outputs();
      swap_stages();
      b_.break_unless(more);
    });
  }

  // Bytes from row to row; none if all rows share the operand.
  U64 row_bytes(size_t i, DType dtype, bool by_row) {
    const int64_t stride = by_row ? 1 : form_.row_stride(i);
    return stride == 0 ? U64() : mul_wide(b_.number(stride), size_of(dtype));
  }
  // The variables of the loop along the rows.
  void hold_rows() {
    held_.resize(form_.in.size());
    in_at_.resize(form_.in.size());
    out_at_.resize(form_.out.size());
    for (const size_t i : used_) {
      if (layout_.residency[i] == Residency::resident)
        for (int s = 0; s < layout_.steps; ++s) held_[i].push_back(b_.var(loaded_[i].at(s)));
      if (form_.row_stride(i) != 0) in_at_[i] = b_.var(in_[i]);
    }
    for (size_t k = 0; k < form_.out.size(); ++k)
      if (!per(k, RowExtent::partial) &&
          (per(k, RowExtent::row) || form_.row_stride(form_.in.size()) != 0))
        out_at_[k] = b_.var(out_[k]);
    if (!block_sums_) return;
    own_at_ = b_.var(own_.base);
    other_at_ = b_.var(other_.base);
    stage_offset_ = b_.var(b_.u32(static_cast<uint32_t>(stage_bytes_)));
  }
  std::vector<U64> inputs_here() {
    std::vector<U64> at = in_;
    for (const size_t i : used_)
      if (in_at_[i]) at[i] = in_at_[i].get();
    if (block_sums_) {
      own_.base = own_at_.get();
      other_.base = other_at_.get();
    }
    return at;
  }
  std::vector<U64> inputs_behind(std::vector<U64> at) {
    for (const size_t i : used_)
      if (in_at_[i]) at[i] = at[i] + row_bytes(i, form_.in[i], false);
    return at;
  }
  void advance_outputs() {
    for (size_t k = 0; k < form_.out.size(); ++k)
      if (out_at_[k])
        out_at_[k].set(out_[k] + row_bytes(form_.in.size(), form_.out[k], per(k, RowExtent::row)));
  }

  // ---- where a thread works ------------------------------------------------------------------

  void find_row() {
    tid_ = b_.thread_index();
    const U32 cta = b_.block_index();
    const int per_block = layout_.threads / layout_.lanes;
    const int64_t groups = form_.rows() / std::max<int64_t>(form_.partial_rows, 1);
    loop_.threads = layout_.threads;
    loop_.blocks = (groups + per_block - 1) / per_block;
    lane_ = tid_;
    group_ = cta;
    if (per_block > 1) {
      // of 2^31 elements in rows of 2, threads would not fit into 32 bits
      group_ = mul_add(cta, per_block, b_.subgroup_index(layout_.lanes));
      lane_ = b_.lane(layout_.lanes);
      const U32 count = b_.number(groups);
      valid_ = group_ < count;
      group_ = min(group_, count - 1);  // all lanes take part
    }
    row_ = group_;
    if (form_.partial_rows > 0) row_ = group_ * b_.number(form_.partial_rows);
    store_all_ = valid_;
    if (vectors() % layout_.lanes == 0) return;
    const U32 at = lane_ + static_cast<uint32_t>((layout_.steps - 1) * layout_.lanes);
    inside_ = at < b_.number(vectors());
    store_last_ = both(inside_, valid_);
  }

  // Of the vectors at a step: whether the row has them; and whether the thread writes them.
  Pred inside(int step) const { return step + 1 == layout_.steps ? inside_ : Pred(); }
  Pred writes(int step) const { return inside(step) ? store_last_ : store_all_; }

  void find_addresses() {
    std::vector<U64> base;
    for (size_t i = 0; i < loop_.used.size() + form_.out.size(); ++i)
      base.push_back(b_.pointer(loop_.pointers));
    const auto row_dim = form_.row_dim();
    const std::vector<int64_t> sizes(form_.space.sizes.begin(),
                                     form_.space.sizes.begin() + row_dim);
    const std::vector<U32> at = Coordinates(b_, sizes).of(row_);
    const U64 first = mul_wide(lane_, layout_.vector);
    std::map<std::vector<int64_t>, U64> known;
    const auto row = [&](U64 from, const std::vector<int64_t>& strides, DType dtype) {
      const std::vector<int64_t> outer(strides.begin(), strides.begin() + row_dim);
      if (!known.contains(outer)) known[outer] = Strides(b_, outer).offset(at);
      return address(from, known[outer], dtype);
    };
    in_.resize(form_.in.size());
    size_t tensor = 0;
    for (const size_t i : used_) {
      const size_t count = form_.segments.of(i);
      in_[i] = count == 1 ? row(base[tensor], form_.space.strides[i], form_.in[i])
                          : addresses_.in_segment(i, std::span(base).subspan(tensor, count), at);
      tensor += count;
      if (!along(i)) continue;
      if (addresses_.moves(i))
        moved_[i] = addresses_.vectors(i, lane_);
      else
        in_[i] = address(in_[i], first, form_.in[i]);
    }
    for (size_t k = 0; k < form_.out.size(); ++k) {
      const U64 from = base[tensor + k];
      if (per(k, RowExtent::row))
        out_.push_back(address(from, widen(row_), form_.out[k]));
      else
        out_.push_back(per(k, RowExtent::partial)
                           ? from
                           : address(row(from, form_.space.strides.back(), form_.out[k]), first,
                                     form_.out[k]));
    }
  }

  // ---- loads ---------------------------------------------------------------------------------

  Words load(size_t i, int step, Pred when) {
    if (const auto by = moved_.find(i); by != moved_.end())
      return b_.load(form_.in[i], layout_.vector,
                     Address{in_[i] + by->second[static_cast<size_t>(step)], 0, when});
    const int64_t offset = int64_t{step} * layout_.lanes * layout_.vector * size_of(form_.in[i]);
    return b_.load(form_.in[i], layout_.vector, Address{in_[i], offset, when});
  }

  void load_all(Residency residency) {
    loaded_.resize(form_.in.size());
    for (int s = 0; s < layout_.steps; ++s)
      for (const size_t i : used_)
        if (layout_.residency[i] == residency && (s == 0 || !repeats(i)))
          loaded_[i].emplace(s, load(i, s, inside(s)));
  }
  void load_rows() {
    for (const size_t i : used_)
      if (layout_.residency[i] == Residency::row)
        loaded_[i].emplace(0, b_.load(form_.in[i], 1, Address{in_[i]}));
  }

  F32 value(size_t i, int step, int element) {
    if (i >= form_.in.size()) return reduced_[i - form_.in.size()];
    element = form_.swaps.element(i, layout_.vector, element);
    i = source(i);
    if (layout_.residency[i] == Residency::row) return b_.element(loaded_[i].at(0), 0);
    const int s = repeats(i) ? 0 : step % phase_steps;
    const int key = layout_.residency[i] == Residency::streamed && !repeats(i) ? step : s;
    if (!held_.empty() && !held_[i].empty())
      return b_.element(held_[i][static_cast<size_t>(s)], element);
    auto at = loaded_[i].find(key);
    if (at == loaded_[i].end()) at = loaded_[i].emplace(key, load(i, s, inside(s))).first;
    return b_.element(at->second, element);
  }

  F32 result(size_t k, int step, int element) {
    return writer_.result(k, phase_ * phase_steps + step, element,
                          [this](size_t i, int s, int e) { return value(i, s, e); });
  }

  // ---- reductions ----------------------------------------------------------------------------

  F32 combine(size_t t, F32 a, F32 b) const { return form_.maximum[t] ? max(a, b) : sum(a, b); }
  F32 start(size_t t) {
    return b_.f32(form_.maximum[t] ? -std::numeric_limits<float>::infinity() : 0.0f);
  }

  void run_reductions() {
    std::vector<size_t> now;
    std::vector<Var<Kind::f32>> sums;
    for (size_t t = 0; t < rounds_.size(); ++t) {
      if (rounds_[t] != phase_) continue;
      now.push_back(t);
      sums.push_back(b_.var(start(t)));
    }
    for (int s = 0; s < layout_.steps; ++s)
      for (size_t k = 0; k < now.size(); ++k) {
        const size_t t = now[k];
        F32 vector = result(t, s, 0);
        for (int e = 1; e < layout_.vector; ++e) vector = combine(t, vector, result(t, s, e));
        b_.when(inside(s), [&] { sums[k].set(combine(t, sums[k].get(), vector)); });
      }
    b_.subgroup_barrier();
    std::vector<F32> totals;
    for (const auto& v : sums) totals.push_back(v.get());
    totals = across(now, totals, std::min(layout_.lanes, subgroup_));
    if (layout_.lanes > subgroup_) totals = across_block(now, totals);
    for (size_t k = 0; k < now.size(); ++k) reduced_[now[k]] = totals[k];
  }

  std::vector<F32> across(const std::vector<size_t>& now, const std::vector<F32>& v, int lanes) {
    return subgroup_reduce(b_, v, lanes,
                           [&](size_t k, F32 a, F32 b) { return combine(now[k], a, b); });
  }

  int subgroups() const { return layout_.lanes / subgroup_; }
  // Lanes that read what all subgroups left: each every so many-th value.
  int readers() const {
    return std::min(subgroup_, static_cast<int>(std::bit_ceil(static_cast<unsigned>(subgroups()))));
  }

  // Where the subgroups of a block leave their reductions, and find those of all.
  void place_shared() {
    block_sums_ = layout_.lanes > subgroup_ && form_.reductions() > 0;
    if (!block_sums_) return;
    stage_bytes_ = 4 * subgroups() * static_cast<int>(form_.reductions());
    const SharedArray memory =
        b_.shared_array(4, stage_bytes_ / 4 * (form_.partial_rows > 0 ? 2 : 1));
    const U32 lane = b_.lane(readers());
    own_ = b_.at(memory, b_.subgroup_index());
    other_ = b_.at(memory, lane);
    leads_ = b_.lane() == 0u;
    if (const int last = subgroups() % readers(); last != 0)
      there_ = lane < static_cast<uint32_t>(last);
  }

  std::vector<F32> across_block(const std::vector<size_t>& now, const std::vector<F32>& values) {
    const int first = taken_;
    taken_ += subgroups() * static_cast<int>(now.size());
    const auto slot = [&](size_t k) { return 4 * (first + subgroups() * static_cast<int>(k)); };
    b_.when(leads_, [&] {
      for (size_t k = 0; k < now.size(); ++k)
        b_.store(std::span(&values[k], 1), SharedAddress{own_.base, slot(k)});
    });
    b_.barrier();
    std::vector<F32> all;
    for (size_t k = 0; k < now.size(); ++k)
      for (int s = 0; s < subgroups(); s += readers()) {
        const F32 v = left_by(s, slot(k), start(now[k]));
        if (s == 0)
          all.push_back(v);
        else
          all.back() = combine(now[k], all.back(), v);
      }
    return across(now, all, readers());
  }
  // What a lane reads of the subgroups from `first` on, or `otherwise` where there are no more.
  F32 left_by(int first, int slot, F32 otherwise) {
    const auto read = [&] {
      const SharedAddress at{other_.base, slot + 4 * first};
      return b_.element(b_.load(DType::f32, 1, at), 0);
    };
    if (first + readers() <= subgroups()) return read();
    const auto v = b_.var(otherwise);
    b_.when(there_, [&] { v.set(read()); });
    return v.get();
  }

  // Double buffering: the next row's reductions use the other half of the shared memory, since a
  // subgroup may still read this one.
  void swap_stages() {
    if (!block_sums_) return;
    const U32 by = stage_offset_.get();
    own_at_.set(b_.move(own_, by).base);
    other_at_.set(b_.move(other_, by).base);
    stage_offset_.set(b_.u32(0) - by);
  }

  // ---- outputs -------------------------------------------------------------------------------

  void write_row_numbers() {
    Pred first;
    for (size_t k = 0; k < form_.out.size(); ++k) {
      if (!per(k, RowExtent::row)) continue;
      if (!first) first = both(lane_ == 0u, valid_);
      const F32 v[] = {result(form_.reductions() + k, 0, 0)};
      b_.store(form_.out[k], v, {out_[k], 0, first});
    }
  }

  // Streamed inputs are loaded a step ahead: loads do not move above stores by themselves.
  void write_elements() {
    const auto fetch = [this](int s) {
      if (s < layout_.steps)
        for (const size_t i : used_)
          if (layout_.residency[i] == Residency::streamed) value(i, phase_ * phase_steps + s, 0);
    };
    std::vector<size_t> outputs;
    for (size_t k = 0; k < form_.out.size(); ++k)
      if (per(k, RowExtent::element)) outputs.push_back(k);
    if (outputs.empty()) return;
    fetch(0);
    for (int s = 0; s < layout_.steps; ++s) {
      fetch(s + 1);
      std::vector<std::vector<F32>> values(form_.out.size());
      for (int e = 0; e < layout_.vector; ++e)
        for (const size_t k : outputs) values[k].push_back(result(form_.reductions() + k, s, e));
      for (const size_t k : outputs)
        b_.store(form_.out[k], values[k], {out_[k], offset(s, k), writes(s)});
    }
  }
  int64_t offset(int step, size_t k) const {
    return int64_t{step} * layout_.lanes * layout_.vector * size_of(form_.out[k]);
  }

  // ---- sums across rows ------------------------------------------------------------------------

  void start_sums() {
    sums_.resize(form_.out.size());
    for (size_t k = 0; k < form_.out.size(); ++k)
      for (int i = 0; per(k, RowExtent::partial) && i < layout_.steps * layout_.vector; ++i)
        sums_[k].push_back(b_.var(b_.f32(0.0f)));
  }
  void add_to_sums() {
    for (int s = 0; s < layout_.steps; ++s)
      for (int e = 0; e < layout_.vector; ++e)
        for (size_t k = 0; k < form_.out.size(); ++k) {
          if (sums_[k].empty()) continue;
          const F32 v = result(form_.reductions() + k, s, e);
          const auto& total = sums_[k][static_cast<size_t>(s * layout_.vector + e)];
          total.set(sum(total.get(), v));
        }
  }
  void write_partials() {
    const U64 number = mul_wide(group_, b_.number(form_.length()));
    const U64 first = mul_wide_add(lane_, b_.u32(static_cast<uint32_t>(layout_.vector)), number);
    for (size_t k = 0; k < form_.out.size(); ++k) {
      if (sums_[k].empty()) continue;
      const U64 to = address(out_[k], first, form_.out[k]);
      for (int s = 0; s < layout_.steps; ++s) {
        std::vector<F32> v;
        for (int e = 0; e < layout_.vector; ++e)
          v.push_back(sums_[k][static_cast<size_t>(s * layout_.vector + e)].get());
        b_.store(form_.out[k], v, {to, offset(s, k), writes(s)});
      }
    }
  }

  void finish() {
    constexpr int64_t registers = 65536;
    const int64_t blocks = registers / (int64_t{layout_.threads} * layout_.registers);
    loop_.kernel = b_.finish(layout_.threads, static_cast<int>(std::max<int64_t>(1, blocks)));
    loop_.parameters = std::move(b_.parameters());
  }

  const RowForm& form_;
  const RowLayout& layout_;
  Builder b_;
  int subgroup_;
  std::vector<int> rounds_;
  ExprWriter writer_;
  LoopKernel loop_;
  std::vector<size_t> used_;   // inputs
  int phase_ = 0, taken_ = 0;  // taken_: floats of shared memory in use
  U32 tid_, lane_, group_, row_;
  Pred valid_, inside_, store_all_, store_last_;
  // of the sums across a block
  bool block_sums_ = false;
  int stage_bytes_ = 0;
  SharedAddress own_, other_;
  Pred leads_, there_;
  std::vector<U64> in_, out_;                 // addresses
  std::map<size_t, std::vector<U64>> moved_;  // of inputs, by step
  RowAddresses addresses_{b_, form_, layout_};
  std::vector<F32> reduced_;
  std::vector<std::vector<Var<Kind::f32>>> sums_;  // by output, by element
  std::vector<std::map<int, Words>> loaded_;       // by input, by step
  // of the loop along the rows of a partial reduction
  std::vector<std::vector<WordsVar>> held_;  // by input, by step
  std::vector<Var<Kind::u64>> in_at_, out_at_;
  Var<Kind::u32> own_at_, other_at_, stage_offset_;
};

}  // namespace

LoopKernel write_rows(const RowForm& form, const RowLayout& layout, const Target& target) {
  require(layout.lanes <= target.subgroup || layout.lanes == layout.threads,
          "rows: a row of several subgroups must have a block (", layout.lanes, " lanes of ",
          layout.threads, " threads, subgroups of ", target.subgroup, ")");
  return RowWriter(form, layout, target).write();
}

}  // namespace ebb::codegen
