#include "backend/cuda/generated/map_flat.h"

#include "backend/cuda/ptx/expr_writer.h"
#include "backend/cuda/ptx/index.h"

namespace ebb::cuda {

namespace {

using Kind = SegmentedMap::Operand;
constexpr int scalar_step = -1;  // of the loop over single elements

class FlatWriter {
 public:
  FlatWriter(const FlatForm& form, int capability)
      : form_(form),
        ptx_(capability),
        writer_(ptx_, form.expr, rates(form), narrow_results(form.out)),
        loaded_(form.in.size()) {
    std::vector<DType> full = form.out;
    int loads = 0;
    for (size_t i = 0; i < form.in.size(); ++i) {
      if (!form.expr.uses(static_cast<int64_t>(i))) continue;
      text_.used.push_back(i);
      if (form.kinds[i] == Kind::scalar) continue;
      full.push_back(form.in[i]);
      ++loads;
    }
    text_.vector = vector_of(full);
    steps_ = steps_of(loads, writer_.cost(text_.vector));
    text_.chunk = int64_t{text_.threads} * text_.vector * steps_;
    text_.first_entry = form.segmented ? 8 : 0;
    text_.entry_bytes = flat_entry_bytes(text_.used.size() + form.out.size());
    text_.parameter_bytes = text_.first_entry + text_.entry_bytes * form.segments;
  }

  FlatText write() {
    find_segment();
    find_chunk();
    writer_.write_invariant(1, [this](size_t i, int s, int e) { return load(i, s, e); });
    vectors();
    singles();
    text_.text = ptx_.text({.name = "pointwise",
                            .parameter_bytes = text_.parameter_bytes,
                            .threads = text_.threads,
                            .ctas_per_sm = form_.segmented ? 5 : 4});
    return std::move(text_);
  }

 private:
  static std::vector<InputRate> rates(const FlatForm& form) {
    std::vector<InputRate> r;
    for (const Kind k : form.kinds)
      r.push_back(k == Kind::full ? InputRate{true, 1} : InputRate{false, 0});
    return r;
  }

  // ---- the thread block's segment ------------------------------------------------------------

  // A field of the block's segment.
  Reg field(RegKind kind, int64_t offset) {
    if (!form_.segmented) return ptx_.parameter(kind, offset);
    return ptx_.make(kind, kind == RegKind::b64 ? "ld.param.b64" : "ld.param.b32",
                     joined("[", entry_, "+", text_.first_entry + offset, "]"));
  }

  // entry_ and block_: the last segment whose first block is not after this one, and the block's
  // number within it.
  void find_segment() {
    Ptx& p = ptx_;
    block_ = p.b32("mov.u32", "%ctaid.x");
    if (!form_.segmented) return;
    const Reg table = p.b64("mov.u64", "params");
    const Reg low = p.b32("mov.u32", 0);
    const Reg high = p.b32("sub.u32", p.parameter(RegKind::b32, 0), 1);
    const std::string loop = p.new_label(), done = p.new_label();
    const auto entry_of = [&](Reg index) {
      return p.b64("mad.wide.u32", index, text_.entry_bytes, table);
    };
    p.bind(loop);
    p.line("@", p.test("setp.ge.u32", low, high), " bra ", done);
    const Reg sum = p.b32("add.u32", low, high);
    const Reg middle = p.b32("shr.u32", p.b32("add.u32", sum, 1), 1);
    const Reg first =
        p.b32("ld.param.b32", joined("[", entry_of(middle), "+", text_.first_entry, "]"));
    const Reg before = p.test("setp.le.u32", first, block_);
    p.line("@", before, " mov.u32 ", low, ", ", middle);
    p.line("@!", before, " sub.u32 ", high, ", ", middle, ", 1");
    p.line("bra ", loop);
    p.bind(done);
    entry_ = entry_of(low);
    block_ = p.b32("sub.u32", block_, field(RegKind::b32, 0));
  }

  // left_: elements from the chunk's start to its end; full_: those in full vectors; and the
  // pointers at the chunk's start.
  void find_chunk() {
    Ptx& p = ptx_;
    const Reg start = p.b64("mul.wide.u32", block_, text_.chunk);
    const Reg rest = p.b64("sub.u64", field(RegKind::b64, 8), start);
    left_ = p.b32("cvt.u32.u64", p.b64("min.u64", rest, text_.chunk));
    full_ = p.b32("and.b32", left_, field(RegKind::b32, 4));
    int64_t at = 16;
    const auto next = [&](DType dtype, bool full) {
      const Reg base = p.b64("cvta.to.global.u64", field(RegKind::b64, at));
      at += 8;
      return full ? address(p, base, start, dtype) : base;
    };
    in_.resize(form_.in.size());
    for (const size_t i : text_.used) in_[i] = next(form_.in[i], form_.kinds[i] == Kind::full);
    for (const DType t : form_.out) out_.push_back(next(t, true));
  }

  // ---- evaluation ------------------------------------------------------------------------------

  Operand load(size_t i, int step, int element) {
    if (form_.kinds[i] == Kind::scalar) return ptx_.element(ptx_.load(form_.in[i], 1, {in_[i]}), 0);
    if (step == scalar_step) return ptx_.element(single_[i], 0);
    return ptx_.element(loaded_[i][static_cast<size_t>(step)], element);
  }

  void vectors() {
    Ptx& p = ptx_;
    const int span = text_.threads * text_.vector;  // elements of the block in one step
    const Reg tid = p.b32("mov.u32", "%tid.x");
    const Reg at = p.b32("mul.lo.u32", tid, text_.vector);
    const Reg offset = p.b64("cvt.u64.u32", at);
    std::vector<Reg> inside;
    for (int s = 0; s < steps_; ++s)
      inside.push_back(p.test("setp.lt.u32", s == 0 ? at : p.b32("add.u32", at, s * span), full_));
    for (const size_t i : text_.used) {
      if (form_.kinds[i] == Kind::scalar) continue;
      const Reg base = address(p, in_[i], offset, form_.in[i]);
      for (int s = 0; s < steps_; ++s)
        loaded_[i].push_back(
            p.load(form_.in[i], text_.vector,
                   {base, s * span * size_of(form_.in[i]), inside[static_cast<size_t>(s)]}));
    }
    std::vector<Reg> to;
    for (size_t k = 0; k < form_.out.size(); ++k)
      to.push_back(address(p, out_[k], offset, form_.out[k]));
    for (int s = 0; s < steps_; ++s) {
      const auto values = evaluate(s, text_.vector);
      for (size_t k = 0; k < form_.out.size(); ++k)
        p.store(form_.out[k], values[k],
                {to[k], s * span * size_of(form_.out[k]), inside[static_cast<size_t>(s)]});
    }
  }

  // The elements after the last full vector, or all of an unaligned segment.
  void singles() {
    Ptx& p = ptx_;
    const Reg at = p.b32("add.u32", full_, p.b32("mov.u32", "%tid.x"));
    const std::string loop = p.new_label(), done = p.new_label();
    p.bind(loop);
    p.line("@", p.test("setp.ge.u32", at, left_), " bra ", done);
    const Reg offset = p.b64("cvt.u64.u32", at);
    single_.resize(form_.in.size());
    for (const size_t i : text_.used)
      if (form_.kinds[i] == Kind::full)
        single_[i] = p.load(form_.in[i], 1, {address(p, in_[i], offset, form_.in[i])});
    const auto values = evaluate(scalar_step, 1);
    for (size_t k = 0; k < form_.out.size(); ++k)
      p.store(form_.out[k], values[k], {address(p, out_[k], offset, form_.out[k])});
    p.line("add.u32 ", at, ", ", at, ", ", text_.threads);
    p.line("bra ", loop);
    p.bind(done);
  }

  // By result, by element.
  std::vector<std::vector<Operand>> evaluate(int step, int elements) {
    std::vector<std::vector<Operand>> values(form_.out.size());
    for (int e = 0; e < elements; ++e)
      for (size_t k = 0; k < values.size(); ++k)
        values[k].push_back(
            writer_.result(k, step, e, [this](size_t i, int s, int x) { return load(i, s, x); }));
    return values;
  }

  const FlatForm& form_;
  Ptx ptx_;
  ExprWriter writer_;
  FlatText text_;
  int steps_ = 1;
  Reg block_, entry_, left_, full_;
  std::vector<Reg> in_, out_;
  std::vector<std::vector<Packed>> loaded_;  // by input, by step
  std::vector<Packed> single_;               // by input
};

}  // namespace

FlatText write_flat(const FlatForm& form, int capability) {
  return FlatWriter(form, capability).write();
}

}  // namespace ebb::cuda
