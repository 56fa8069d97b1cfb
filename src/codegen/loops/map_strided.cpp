#include "codegen/loops/map_strided.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "codegen/expr_writer.h"
#include "codegen/index.h"
#include "codegen/loops/work_split.h"

namespace ebb::codegen {
namespace {

constexpr size_t no_dim = ~size_t{0};

// A thread computes `vector` consecutive elements of the flat output, in chunks of `chunk` elements
// that are contiguous along the innermost dim, at `steps` indices of the dim `steps_dim`.
struct Shape3 {
  int vector = 1, chunk = 1, steps = 1;
  size_t steps_dim = no_dim;
  int chunks() const { return vector / chunk; }
};

bool is_full(const StridedForm& f, size_t i) { return f.space.strides[i] == f.full_strides(); }
bool is_scalar(const StridedForm& f, size_t i) {
  return std::all_of(f.space.strides[i].begin(), f.space.strides[i].end(),
                     [](int64_t s) { return s == 0; });
}

// The dim, but the innermost, along which most bytes repeat; none if nothing does.
size_t repeating_dim(const StridedForm& f, const std::vector<size_t>& used) {
  size_t best = no_dim;
  int64_t most = 0;
  for (size_t d = 0; d + 1 < f.space.sizes.size(); ++d) {
    int64_t bytes = 0;
    for (const size_t i : used)
      if (!is_scalar(f, i) && f.space.strides[i][d] == 0)
        bytes += size_of(f.in[i]) * (f.space.strides[i].back() == 0 ? 1 : 8);
    if (bytes > most) {
      most = bytes;
      best = d;
    }
  }
  return best;
}

Shape3 shape_of(const StridedForm& f, const std::vector<size_t>& used) {
  Shape3 s;
  if (f.unaligned) return s;
  std::vector<DType> full = f.out;
  for (const size_t i : used)
    if (is_full(f, i)) full.push_back(f.in[i]);
  const int64_t best = vector_of(full), inner = f.space.sizes.back();
  int along = static_cast<int>(std::gcd(best, inner));
  for (const int64_t w : f.segments.widths) along = static_cast<int>(std::gcd<int64_t>(along, w));
  for (const size_t i : used)
    if (f.space.strides[i].back() != 0)
      along = static_cast<int>(std::gcd<int64_t>(along, f.slices.grain(i)));
  along = static_cast<int>(f.swaps.widest(along));
  constexpr int worth = 4;
  const bool single = along >= worth || along == best || !f.segments.widths.empty() ||
                      f.swaps.any() || f.concatenated > 0;
  s.vector = single ? along : static_cast<int>(std::gcd(best, f.numel));
  s.chunk = std::gcd(s.vector, along);
  if (s.chunks() == 1) s.steps_dim = repeating_dim(f, used);
  return s;
}

class StridedWriter {
 public:
  StridedWriter(const StridedForm& form, const Target& target)
      : form_(form), b_("pointwise", target) {
    for (size_t i = 0; i < form.in.size(); ++i)
      if (form.expr.uses(static_cast<int64_t>(i))) used_.push_back(i);
    shape_ = shape_of(form, used_);
    std::erase_if(used_, [this](size_t i) { return source(i) != i; });
    for (size_t i = 0, tensor = 0; i < form.in.size(); ++i) {
      const size_t tensors = form.segments.of(i, form.segments.segmented_in);
      if (std::ranges::find(used_, i) != used_.end())
        for (size_t k = 0; k < tensors; ++k) loop_.used.push_back(tensor + k);
      tensor += tensors;
    }
    if (shape_.steps_dim != no_dim) {
      Builder scratch("cost", target);
      const ExprWriter trial(scratch, form.expr, rates(), narrow_results(form.out));
      int loads = 0;
      for (const size_t i : used_) loads += is_full(form, i);
      shape_.steps = std::max(2, steps_of(loads, trial.cost(shape_.vector)));
      shape_.steps = steps_for(shape_.steps, form.elements, int64_t{loop_.threads} * shape_.vector,
                               target.sm_count);
      if (form.most_steps > 0) shape_.steps = std::min(shape_.steps, form.most_steps);
      while (form.space.sizes[shape_.steps_dim] % shape_.steps != 0) shape_.steps /= 2;
    }
    if (shape_.steps == 1) shape_.steps_dim = no_dim;
    loop_.steps = shape_.steps;
    work_ = form.numel / shape_.vector / shape_.steps;
    loop_.blocks = ceil_div(work_, loop_.threads);
  }

  LoopKernel write() {
    b_.share_launch(form_.uses, form_.alternate);
    const U32 thread = thread_number(b_, loop_.threads);
    b_.when(thread < b_.number(work_), [&] { vector(thread); });
    loop_.kernel = b_.finish(loop_.threads, 4);
    loop_.parameters = std::move(b_.parameters());
    return std::move(loop_);
  }

 private:
  // The input whose vectors are those of input i, which reads its elements in another order.
  size_t source(size_t i) const {
    if (i >= form_.same.size() || form_.same[i] < 0) return i;
    const auto k = static_cast<size_t>(form_.same[i]);
    const bool together = form_.expr.uses(static_cast<int64_t>(k)) && shape_.chunks() == 1 &&
                          form_.swaps.within(i, shape_.vector) && form_.swaps.run(k) == 0 &&
                          form_.space.strides[i] == form_.space.strides[k];
    return together ? k : i;
  }
  bool repeats(size_t i) const { return form_.space.strides[i].back() == 0; }
  bool in_steps(size_t i) const {
    return shape_.steps_dim != no_dim && form_.space.strides[i][shape_.steps_dim] != 0;
  }

  std::vector<InputRate> rates() const {
    std::vector<InputRate> r;
    for (size_t i = 0; i < form_.in.size(); ++i) {
      InputRate rate{in_steps(i), 1};
      if (is_scalar(form_, i))
        rate.elements = 0;
      else if (repeats(i))
        rate.elements = shape_.chunks() == 1 ? 0 : shape_.chunk;
      r.push_back(rate);
    }
    return r;
  }

  // The vector of a thread.
  void vector(U32 thread) {
    ExprWriter writer(b_, form_.expr, rates(), narrow_results(form_.out));
    write_addresses(thread);
    load_all();
    const auto load = [this](size_t i, int s, int e) { return loaded(i, s, e); };
    for (int s = 0; s < shape_.steps; ++s) {
      std::vector<std::vector<F32>> values(form_.out.size());
      for (int e = 0; e < shape_.vector; ++e)
        for (size_t k = 0; k < values.size(); ++k)
          values[k].push_back(writer.result(k, s, e, load));
      for (size_t k = 0; k < values.size(); ++k)
        b_.store(form_.out[k], values[k], {out_[k][static_cast<size_t>(s)]});
    }
  }

  // Elements per load of input i.
  int load_width(size_t i) const {
    if (repeats(i)) return 1;
    return is_full(form_, i) ? shape_.vector : shape_.chunk;
  }

  // The dims that the thread index runs through, and the strides along each.
  std::vector<int64_t> thread_dims() const {
    std::vector<int64_t> sizes = form_.space.sizes;
    sizes.back() /= shape_.chunk;
    if (shape_.steps_dim != no_dim) sizes[shape_.steps_dim] /= shape_.steps;
    return sizes;
  }
  std::vector<int64_t> thread_strides(std::vector<int64_t> strides) const {
    strides.back() *= shape_.chunk;
    if (shape_.steps_dim != no_dim) strides[shape_.steps_dim] *= shape_.steps;
    return strides;
  }

  // The addresses of one operand: by step, or by chunk.
  std::vector<U64> step_addresses(U64 base, U64 offset, DType dtype, int64_t stride) {
    std::vector<U64> at = {address(base, offset, dtype)};
    if (shape_.steps == 1 || stride == 0) return at;
    const U64 bytes = mul_wide(b_.number(stride), size_of(dtype));
    for (int s = 1; s < shape_.steps; ++s) at.push_back(at.back() + bytes);
    return at;
  }

  void write_addresses(U32 thread) {
    std::vector<std::vector<U64>> base;  // by operand and output, by segment
    const auto tensors = [&](size_t i, const std::vector<bool>& segmented) {
      base.emplace_back();
      for (size_t k = 0; k < form_.segments.of(i, segmented); ++k)
        base.back().push_back(b_.pointer(loop_.pointers));
    };
    for (const size_t i : used_) tensors(i, form_.segments.segmented_in);
    for (size_t k = 0; k < form_.out.size(); ++k) tensors(k, form_.segments.segmented_out);
    const Coordinates split(b_, thread_dims());
    std::vector<std::vector<U32>> coordinates;  // by chunk of the vector
    for (int j = 0; j < shape_.chunks(); ++j) {
      U32 number = thread;
      if (shape_.chunks() > 1)
        number = mul_add(thread, shape_.chunks(), b_.u32(static_cast<uint32_t>(j)));
      coordinates.push_back(split.of(number));
    }
    const U64 flat = shape_.chunks() == 1 ? U64() : mul_wide(thread, shape_.vector);
    std::vector<std::pair<std::vector<int64_t>, std::vector<U64>>> known;  // offsets by strides
    const auto offsets = [&](const std::vector<int64_t>& strides) {
      for (const auto& [s, o] : known)
        if (s == strides) return o;
      const Strides by(b_, thread_strides(strides));
      std::vector<U64> o;
      for (const auto& c : coordinates) o.push_back(by.offset(c));
      known.emplace_back(strides, o);
      return o;
    };
    const auto locate = [&](size_t i, const std::vector<U64>& at, DType dtype) {
      const std::vector<int64_t>& strides = form_.space.strides[i];
      if (form_.swaps.moves(i, shape_.vector))
        return step_addresses(at[0], swapped_offset(i, coordinates[0]), dtype,
                              step_stride(strides));
      if (at.size() > 1) return part_addresses(at, coordinates[0], dtype);
      if (is_scalar(form_, i)) return at;
      if (shape_.chunks() == 1)
        return step_addresses(at[0], offsets(strides)[0], dtype, step_stride(strides));
      if (strides == form_.full_strides()) return std::vector<U64>{address(at[0], flat, dtype)};
      std::vector<U64> all;
      for (const U64& o : offsets(strides)) all.push_back(address(at[0], o, dtype));
      return all;
    };
    in_.resize(form_.in.size());
    for (size_t u = 0; u < used_.size(); ++u)
      in_[used_[u]] = locate(used_[u], base[u], form_.in[used_[u]]);
    for (size_t k = 0; k < form_.out.size(); ++k)
      out_.push_back(locate(form_.strides_of(k), base[used_.size() + k], form_.out[k]));
  }

  // Of a thread's vector in operand i, whose runs change places.
  U64 swapped_offset(size_t i, std::vector<U32> coordinates) {
    coordinates.back() = swapped_vector(b_, coordinates.back(), form_.swaps.run(i) / shape_.vector);
    return Strides(b_, thread_strides(form_.space.strides[i])).offset(coordinates);
  }

  int64_t step_stride(const std::vector<int64_t>& strides) const {
    return shape_.steps_dim == no_dim ? 0 : strides[shape_.steps_dim];
  }

  // The addresses in a segmented tensor, by step. `base`: by segment.
  std::vector<U64> part_addresses(const std::vector<U64>& base, const std::vector<U32>& coordinates,
                                  DType dtype) {
    if (!choice_) find_segments(coordinates);
    std::vector<std::vector<U64>> by_step(static_cast<size_t>(shape_.steps));
    for (size_t k = 0; k < base.size(); ++k) {
      const auto at =
          step_addresses(base[k], segments_[k].offset, dtype, step_stride(segments_[k].strides));
      for (size_t s = 0; s < by_step.size(); ++s) by_step[s].push_back(at[at.size() > 1 ? s : 0]);
    }
    std::vector<U64> chosen;
    for (const auto& at : by_step) chosen.push_back(choice_->choose(at));
    return chosen;
  }

  void find_segments(const std::vector<U32>& coordinates) {
    const std::vector<int64_t>& widths = form_.segments.widths;
    choice_.emplace(b_, widths, shape_.chunk, coordinates.back());
    for (size_t k = 0; k < widths.size(); ++k) {
      Segment segment{form_.full_strides(), {}};
      for (size_t d = 0; d + 1 < segment.strides.size(); ++d)
        segment.strides[d] = segment.strides[d] / form_.space.sizes.back() * widths[k];
      std::vector<U32> at = coordinates;
      at.back() = choice_->column(k);
      segment.offset = Strides(b_, thread_strides(segment.strides)).offset(at);
      segments_.push_back(segment);
    }
  }

  void load_all() {
    packed_.resize(form_.in.size());
    for (const size_t i : used_)
      for (const U64& at : in_[i]) packed_[i].push_back(b_.load(form_.in[i], load_width(i), {at}));
  }

  F32 loaded(size_t i, int step, int element) {
    element = form_.swaps.element(i, shape_.vector, element);
    i = source(i);
    const std::vector<Words>& all = packed_[i];
    size_t which = 0;
    if (all.size() > 1)
      which = static_cast<size_t>(shape_.chunks() > 1 ? element / shape_.chunk : step);
    const int width = load_width(i);
    return b_.element(all[which], width == 1 ? 0 : element % width);
  }

  // A segment of a tensor, and the offset of the thread's vector in it.
  struct Segment {
    std::vector<int64_t> strides;
    U64 offset;
  };

  const StridedForm& form_;
  Builder b_;
  std::vector<size_t> used_;  // operands
  std::vector<Segment> segments_;
  std::optional<SegmentChoice> choice_;  // set by the first segmented tensor
  LoopKernel loop_;
  int64_t work_ = 0;  // threads needed
  Shape3 shape_;
  std::vector<std::vector<U64>> in_, out_;  // addresses by tensor, by step or chunk
  std::vector<std::vector<Words>> packed_;
};

}  // namespace

LoopKernel write_strided(const StridedForm& form, const Target& target) {
  return StridedWriter(form, target).write();
}

}  // namespace ebb::codegen
