#include "codegen/loops/map_flat.h"

#include <optional>

#include "codegen/expr_writer.h"
#include "codegen/index.h"
#include "codegen/loops/work_split.h"

namespace ebb::codegen {
namespace {

constexpr int scalar_step = -1;  // of the loop over single elements

class FlatWriter {
 public:
  FlatWriter(const FlatForm& form, const Target& target)
      : form_(form),
        b_("pointwise", target),
        writer_(b_, form.expr, rates(form), narrow_results(form.out)),
        loaded_(form.in.size()) {
    std::vector<DType> full = form.out;
    int loads = 0;
    for (size_t i = 0; i < form.in.size(); ++i) {
      if (!form.expr.uses(static_cast<int64_t>(i))) continue;
      flat_.used.push_back(i);
      if (form.kinds[i] == FlatOperand::scalar) continue;
      full.push_back(form.in[i]);
      ++loads;
    }
    flat_.vector = form.unaligned ? 1 : vector_of(full);
    const int64_t of_step = int64_t{flat_.threads} * flat_.vector;
    steps_ = steps_for(steps_of(loads, writer_.cost(flat_.vector)), form.elements, of_step,
                       target.sm_count);
    flat_.chunk = of_step * steps_;
    flat_.first_entry = form.segmented ? 8 : 0;
    flat_.entry_bytes = flat_entry_bytes(flat_.used.size() + form.out.size());
    flat_.parameter_bytes = flat_.first_entry + flat_.entry_bytes * form.segments;
  }

  FlatKernel write() {
    find_segment();
    find_chunk();
    writer_.write_invariant(1, [this](size_t i, int s, int e) { return load(i, s, e); });
    vectors();
    singles();
    const int blocks = form_.segmented ? 5 : 4;
    flat_.kernel = b_.finish(flat_.threads, blocks, flat_.parameter_bytes);
    return std::move(flat_);
  }

 private:
  static std::vector<InputRate> rates(const FlatForm& form) {
    std::vector<InputRate> r;
    for (const FlatOperand k : form.kinds)
      r.push_back(k == FlatOperand::full ? InputRate{true, 1} : InputRate{false, 0});
    return r;
  }

  // ---- the thread block's segment ------------------------------------------------------------

  // A field of the block's segment.
  template <Kind K>
  Typed<K> field(int64_t offset) {
    if (!form_.segmented) return b_.param<K>(offset);
    return b_.param_at<K>(entry_, flat_.first_entry + offset);
  }

  // entry_ and block_: the last segment whose first block is not after this one, and the block's
  // number within it.
  void find_segment() {
    block_ = b_.block_index();
    if (!form_.segmented) return;
    const auto low = b_.var(b_.u32(0));
    const auto high = b_.var(b_.param<Kind::u32>(0) - 1);
    const auto entry_of = [&](U32 index) {
      return index * static_cast<uint32_t>(flat_.entry_bytes);
    };
    b_.loop([&] {
      b_.break_unless(low.get() < high.get());
      const U32 middle = (low.get() + high.get() + 1) >> 1;
      const Pred before = b_.param_at<Kind::u32>(entry_of(middle), flat_.first_entry) <= block_;
      low.set(select(before, middle, low.get()));
      high.set(select(before, high.get(), middle - 1));
    });
    entry_ = entry_of(low.get());
    block_ = block_ - field<Kind::u32>(0);
  }

  // left_: elements from the chunk's start to its end; full_: those in full vectors; and the
  // pointers at the chunk's start.
  void find_chunk() {
    const U64 start = mul_wide(block_, flat_.chunk);
    const U64 rest = field<Kind::u64>(8) - start;
    left_ = low(min(rest, b_.u64(static_cast<uint64_t>(flat_.chunk))));
    full_ = flat_.vector == 1 ? left_ : left_ & ~static_cast<uint32_t>(flat_.vector - 1);
    int64_t at = 16;
    const auto next = [&](DType dtype, bool full) {
      const U64 base = form_.segmented ? b_.param_pointer_at(entry_, flat_.first_entry + at)
                                       : b_.param_pointer(at);
      at += 8;
      return full ? address(base, start, dtype) : base;
    };
    in_.resize(form_.in.size());
    for (const size_t i : flat_.used)
      in_[i] = next(form_.in[i], form_.kinds[i] == FlatOperand::full);
    for (const DType t : form_.out) out_.push_back(next(t, true));
  }

  // ---- evaluation ------------------------------------------------------------------------------

  F32 load(size_t i, int step, int element) {
    if (form_.kinds[i] == FlatOperand::scalar)
      return b_.element(b_.load(form_.in[i], 1, {in_[i]}), 0);
    if (step == scalar_step) return b_.element(single_[i], 0);
    return b_.element(loaded_[i][static_cast<size_t>(step)], element);
  }

  void vectors() {
    const int span = flat_.threads * flat_.vector;  // elements of the block in one step
    const U32 at = b_.thread_index() * static_cast<uint32_t>(flat_.vector);
    const U64 offset = widen(at);
    std::vector<Pred> inside;
    for (int s = 0; s < steps_; ++s)
      inside.push_back((s == 0 ? at : at + static_cast<uint32_t>(s * span)) < full_);
    for (const size_t i : flat_.used) {
      if (form_.kinds[i] == FlatOperand::scalar) continue;
      const U64 base = address(in_[i], offset, form_.in[i]);
      for (int s = 0; s < steps_; ++s)
        loaded_[i].push_back(
            b_.load(form_.in[i], flat_.vector,
                    {base, s * span * size_of(form_.in[i]), inside[static_cast<size_t>(s)]}));
    }
    std::vector<U64> to;
    for (size_t k = 0; k < form_.out.size(); ++k)
      to.push_back(address(out_[k], offset, form_.out[k]));
    for (int s = 0; s < steps_; ++s) {
      const auto values = evaluate(s, flat_.vector);
      for (size_t k = 0; k < form_.out.size(); ++k)
        b_.store(form_.out[k], values[k],
                 {to[k], s * span * size_of(form_.out[k]), inside[static_cast<size_t>(s)]});
    }
  }

  // The elements after the last full vector.
  void singles() {
    if (flat_.vector == 1) return;
    const U32 first = full_ + b_.thread_index();
    b_.for_range(first, left_, b_.u32(static_cast<uint32_t>(flat_.threads)), [&](U32 at) {
      const U64 offset = widen(at);
      single_.resize(form_.in.size());
      for (const size_t i : flat_.used)
        if (form_.kinds[i] == FlatOperand::full)
          single_[i] = b_.load(form_.in[i], 1, {address(in_[i], offset, form_.in[i])});
      const auto values = evaluate(scalar_step, 1);
      for (size_t k = 0; k < form_.out.size(); ++k)
        b_.store(form_.out[k], values[k], {address(out_[k], offset, form_.out[k])});
    });
  }

  // By result, by element.
  std::vector<std::vector<F32>> evaluate(int step, int elements) {
    std::vector<std::vector<F32>> values(form_.out.size());
    for (int e = 0; e < elements; ++e)
      for (size_t k = 0; k < values.size(); ++k)
        values[k].push_back(
            writer_.result(k, step, e, [this](size_t i, int s, int x) { return load(i, s, x); }));
    return values;
  }

  const FlatForm& form_;
  Builder b_;
  ExprWriter writer_;
  FlatKernel flat_;
  int steps_ = 1;
  U32 block_, entry_, left_, full_;
  std::vector<U64> in_, out_;
  std::vector<std::vector<Words>> loaded_;  // by input, by step
  std::vector<Words> single_;               // by input
};

}  // namespace

FlatKernel write_flat(const FlatForm& form, const Target& target) {
  return FlatWriter(form, target).write();
}

}  // namespace ebb::codegen
