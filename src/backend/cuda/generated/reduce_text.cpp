#include "backend/cuda/generated/reduce_text.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "backend/cuda/ptx/expr_writer.h"

namespace ebb::cuda {
namespace {

constexpr int warp = 32;

class ReduceWriter {
 public:
  ReduceWriter(const ReduceForm& form, const ReduceLayout& layout, int capability)
      : form_(form),
        layout_(layout),
        draft_{Ptx(capability), {}},
        p_(draft_.ptx),
        results_(form.expr.results().size()),
        writer_(p_, form.expr, rates(), std::vector<bool>(results_, form.narrow)) {
    for (size_t i = 0; i < form.in.size(); ++i)
      if (form.expr.uses(static_cast<int64_t>(i))) text_.used.push_back(i);
  }

  ReduceText write() {
    for (size_t i = 0; i < text_.used.size(); ++i) base_.push_back(draft_.pointer(text_.pointers));
    for (size_t k = 0; k < (layout_.direct ? results_ : 1); ++k)
      out_.push_back(draft_.pointer(text_.pointers));
    form_.rows() ? rows() : columns();
    text_.text = p_.text({.name = "reduce",
                          .parameter_bytes = draft_.parameters.size(),
                          .threads = 256,
                          .ctas_per_sm = 4,
                          .shared_floats = shared_});
    text_.parameters = std::move(draft_.parameters);
    constexpr int64_t widest = 16;
    for (const size_t i : text_.used)
      text_.alignment.push_back(std::min(widest, width(i) * size_of(form_.in[i])));
    const int64_t written = form_.rows() ? 1 : layout_.vector;
    for (size_t k = 0; k < out_.size(); ++k)
      text_.alignment.push_back(std::min(widest, written * size_of(DType::f32)));
    return std::move(text_);
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
  void fix(Reg kept, Reg inner) {
    for (size_t u = 0; u < text_.used.size(); ++u) fixed_.push_back(base_[u]);
    fix_group(kept_group, kept);
    if (!form_.rows()) fix_group(inner_group, inner);
  }
  void fix_group(Group g, Reg number) {
    const auto [first, last] = range(g);
    if (first == last) return;
    const Coordinates split(draft_, sizes(g));
    const std::vector<Reg> at = split.of(draft_, number);
    std::map<std::vector<int64_t>, Reg> known;
    for (size_t u = 0; u < text_.used.size(); ++u) {
      const auto s = strides(text_.used[u], g);
      if (!known.contains(s)) known[s] = Strides(draft_, s).offset(draft_, at);
      fixed_[u] = address(p_, fixed_[u], known[s], form_.in[text_.used[u]]);
    }
  }

  // Loop-invariant values of the loop along the run.
  void prepare_loop() {
    loaded_.resize(form_.in.size());
    for (size_t u = 0; u < text_.used.size(); ++u) {
      const size_t i = text_.used[u];
      if (!moves(i)) loaded_[i] = {p_.load(form_.in[i], width(i), {fixed_[u]})};
    }
    writer_.write_invariant(layout_.vector,
                            [this](size_t i, int s, int e) { return loaded(i, s, e); });
    run_split_.emplace_back(draft_, sizes(run_group));
    for (const size_t i : text_.used) {
      const auto s = strides(i, run_group);
      if (!run_strides_.contains(s)) run_strides_.emplace(s, Strides(draft_, s));
    }
  }

  Operand loaded(size_t i, int step, int element) {
    const size_t which = loaded_[i].size() > 1 ? static_cast<size_t>(step) : 0;
    return p_.element(loaded_[i][which], width(i) == 1 ? 0 : element);
  }

  // ---- the loop along the run ------------------------------------------------------------------

  // at, at + stride, ... below end. Accumulates into acc_[result][slot]. The loads of a step are
  // in flight while the previous steps are computed.
  void loop(Reg at, Reg end, Reg stride) {
    std::vector<Reg> number = {at}, inside;
    for (int s = 1; s < layout_.steps; ++s)
      number.push_back(p_.b32("add.u32", number.back(), stride));
    for (const Reg n : number) inside.push_back(p_.test("setp.lt.u32", n, end));
    const Reg ahead = p_.b32("mul.lo.u32", stride, layout_.steps);
    for (size_t s = 0; s < number.size(); ++s) load_step(s, number[s], inside[s]);
    const std::string loop = p_.new_label(), done = p_.new_label();
    p_.bind(loop);
    p_.line("@!", inside[0], " bra ", done);
    for (size_t s = 0; s < number.size(); ++s) {
      accumulate(static_cast<int>(s), s == 0 ? Reg{} : inside[s]);
      p_.line("add.u32 ", number[s], ", ", number[s], ", ", ahead);
      p_.line("setp.lt.u32 ", inside[s], ", ", number[s], ", ", end);
      load_step(s, number[s], inside[s]);
    }
    p_.line("bra ", loop);
    p_.bind(done);
  }

  void load_step(size_t step, Reg number, Reg inside) {
    const std::vector<Reg> at = run_split_[0].of(draft_, number);
    std::map<std::vector<int64_t>, Reg> offset;
    for (size_t u = 0; u < text_.used.size(); ++u) {
      const size_t i = text_.used[u];
      if (!moves(i)) continue;
      const auto by = strides(i, run_group);
      if (!offset.contains(by)) offset[by] = run_strides_.at(by).offset(draft_, at);
      const Address from{address(p_, fixed_[u], offset[by], form_.in[i]), 0, inside};
      if (loaded_[i].size() > step)
        p_.reload(loaded_[i][step], from);
      else
        loaded_[i].push_back(p_.load(form_.in[i], width(i), from));
    }
  }

  std::string_view combine() const { return form_.maximum ? "max.f32 " : "add.f32 "; }

  void accumulate(int step, Reg inside) {
    const std::string when = inside ? joined("@", inside, " ") : "";
    const auto load = [this](size_t i, int s, int e) { return loaded(i, s, e); };
    for (size_t k = 0; k < results_; ++k) {
      Operand sum = 0.0f;  // rows: of the vector
      for (int e = 0; e < layout_.vector; ++e) {
        const Operand v = writer_.result(k, step, e, load);
        if (!form_.rows()) {
          const Reg acc = acc_[k][static_cast<size_t>(e)];
          p_.line(when, combine(), acc, ", ", acc, ", ", v);
        } else {
          sum = e == 0 ? Operand(p_.in_register(v))
                       : Operand(p_.f32(form_.maximum ? "max.f32" : "add.f32", sum, v));
        }
      }
      if (!form_.rows()) continue;
      const Reg acc = acc_[k][static_cast<size_t>(step)];
      p_.line(when, combine(), acc, ", ", acc, ", ", sum);
    }
  }

  void start_accumulators(int slots) {
    const float start = form_.maximum ? -std::numeric_limits<float>::infinity() : 0.0f;
    acc_.resize(results_);
    for (auto& a : acc_)
      for (int i = 0; i < slots; ++i) a.push_back(p_.f32("mov.f32", Operand(start)));
  }

  Operand scaled(Reg v) {
    if (!layout_.direct || form_.maximum) return v;
    if (!scale_) scale_ = p_.parameter(RegKind::f32, draft_.parameters.add_value(form_.scale));
    return p_.f32("mul.rn.f32", v, scale_);
  }

  // The address of result k of (kept, chunk, inner element).
  Address target(size_t k, Reg kept, Reg chunk, Reg inner) {
    Reg index = kept;
    if (!layout_.direct) {
      if (k > 0)
        index = p_.b32("add.u32", index, draft_.number(form_.kept() * static_cast<int64_t>(k)));
      index = p_.b32("mad.lo.u32", index, draft_.number(layout_.chunks), chunk);
    }
    Reg offset = p_.b64("cvt.u64.u32", index);
    if (!form_.rows())
      offset =
          p_.b64("mad.wide.u32", index, draft_.number(form_.inner()), p_.b64("cvt.u64.u32", inner));
    return {address(p_, out_[layout_.direct ? k : 0], offset, DType::f32)};
  }

  // ---- rows: neighbouring threads along the run ----------------------------------------------

  void rows() {
    const bool block = layout_.lanes > warp;
    const Reg tid = p_.b32("mov.u32", "%tid.x"), cta = p_.b32("mov.u32", "%ctaid.x");
    Reg kept = cta, chunk = p_.b32("mov.u32", 0), lane = tid;
    Reg valid;
    const int64_t per_block = text_.threads / layout_.lanes;
    text_.blocks = (form_.kept() + per_block - 1) / per_block * layout_.chunks;
    if (block) {
      const Coordinates split(draft_, {form_.kept(), layout_.chunks});
      const auto at = split.of(draft_, cta);
      kept = at[0];
      chunk = at[1];
    } else {
      kept = p_.b32("shr.u32", p_.b32("mad.lo.u32", cta, text_.threads, tid),
                    std::countr_zero(static_cast<unsigned>(layout_.lanes)));
      lane = p_.b32("and.b32", tid, layout_.lanes - 1);
      const Reg count = draft_.number(form_.kept());
      valid = p_.test("setp.lt.u32", kept, count);
      kept = p_.b32("min.u32", kept, p_.b32("sub.u32", count, 1));  // all lanes take part
    }
    fix(kept, {});
    prepare_loop();
    start_accumulators(layout_.steps);
    const Reg per_chunk = draft_.number(layout_.per_chunk);
    const Reg begin = p_.b32("mul.lo.u32", chunk, per_chunk);
    const Reg end = p_.b32("min.u32", p_.b32("add.u32", begin, per_chunk),
                           draft_.number(form_.run() / layout_.vector));
    loop(p_.b32("add.u32", begin, lane), end, p_.b32("mov.u32", layout_.lanes));
    for (auto& a : acc_)
      for (size_t s = 1; s < a.size(); ++s) p_.line(combine(), a[0], ", ", a[0], ", ", a[s]);
    if (layout_.lanes > 1) across_warp(std::min(layout_.lanes, warp));
    if (block) across_block(tid);
    Reg first = p_.test("setp.eq.u32", lane, 0);
    if (valid) first = p_.test("setp.eq.and.u32", lane, 0, valid);
    for (size_t k = 0; k < results_; ++k) {
      Address to = target(k, kept, chunk, {});
      to.when = first;
      const Operand v[] = {scaled(acc_[k][0])};
      p_.store(DType::f32, v, to);
    }
  }

  void across_warp(int lanes) {
    p_.line("bar.warp.sync -1");
    for (int offset = lanes / 2; offset > 0; offset /= 2)
      for (auto& a : acc_) {
        const Reg other = p_.f32("shfl.sync.bfly.b32", a[0], offset, 31, -1);
        p_.line(combine(), a[0], ", ", a[0], ", ", other);
      }
  }

  void across_block(Reg tid) {
    const int warps = text_.threads / warp;
    shared_ = static_cast<int64_t>(results_) * warps;
    const Reg memory = p_.b32("mov.u32", "shared");
    const Reg own = p_.b32("mad.lo.u32", p_.b32("shr.u32", tid, 5), 4, memory);
    const Reg leader = p_.test("setp.eq.u32", p_.b32("and.b32", tid, warp - 1), 0);
    for (size_t k = 0; k < results_; ++k)
      p_.line("@", leader, " st.shared.f32 [", own, "+", 4 * warps * static_cast<int>(k), "], ",
              acc_[k][0]);
    p_.line("bar.sync 0");
    const Reg from = p_.b32("mad.lo.u32", p_.b32("and.b32", tid, warps - 1), 4, memory);
    for (size_t k = 0; k < results_; ++k)
      p_.line("ld.shared.f32 ", acc_[k][0], ", [", from, "+", 4 * warps * static_cast<int>(k), "]");
    across_warp(warps);
  }

  // ---- columns: neighbouring threads across the inner dims ------------------------------------

  void columns() {
    text_.threads = layout_.across * layout_.down;
    text_.blocks = form_.kept() * layout_.chunks * layout_.tiles;
    const Reg tid = p_.b32("mov.u32", "%tid.x"), cta = p_.b32("mov.u32", "%ctaid.x");
    const Coordinates block_split(draft_, {form_.kept(), layout_.chunks, layout_.tiles});
    const auto at = block_split.of(draft_, cta);
    const Reg across = draft_.number(layout_.across), down = draft_.number(layout_.down);
    const Reciprocal by(layout_.across);
    const Reg row = quotient(p_, tid, draft_.number(by.multiplier), draft_.number(by.shift));
    Reg column = p_.b32("sub.u32", tid, p_.b32("mul.lo.u32", row, across));
    column = p_.b32("mad.lo.u32", at[2], across, column);
    const Reg vectors = draft_.number(form_.inner() / layout_.vector);
    const Reg valid = p_.test("setp.lt.u32", column, vectors);
    column = p_.b32("min.u32", column, p_.b32("sub.u32", vectors, 1));  // all take part in barriers
    fix(at[0], column);
    prepare_loop();
    start_accumulators(layout_.vector);
    const Reg per_chunk = draft_.number(layout_.per_chunk);
    const Reg begin = p_.b32("mul.lo.u32", at[1], per_chunk);
    const Reg end =
        p_.b32("min.u32", p_.b32("add.u32", begin, per_chunk), draft_.number(form_.run()));
    loop(p_.b32("add.u32", begin, row), end, down);
    down_block(tid, row, down, across);
    const Reg first = p_.test("setp.eq.and.u32", row, 0, valid);
    const Reg element = p_.b32("mul.lo.u32", column, layout_.vector);
    for (size_t k = 0; k < results_; ++k) {
      Address to = target(k, at[0], at[1], element);
      to.when = first;
      std::vector<Operand> v;
      for (const Reg& a : acc_[k]) v.push_back(scaled(a));
      p_.store(DType::f32, v, to);
    }
  }

  // Adds the rows of threads pairwise into row 0.
  void down_block(Reg tid, Reg row, Reg down, Reg across) {
    const int half = 128;
    shared_ = static_cast<int64_t>(results_) * layout_.vector * half;
    const Reg memory = p_.b32("mov.u32", "shared");
    const Reg rows_left = p_.b32("shr.u32", down, 1);
    const std::string loop = p_.new_label(), done = p_.new_label(), write = p_.new_label();
    p_.bind(loop);
    p_.line("@", p_.test("setp.eq.u32", rows_left, 0), " bra.uni ", done);
    const Reg upper = p_.b32("mul.lo.u32", rows_left, across);  // the first thread that writes
    const Reg to = p_.b32("mad.lo.u32", p_.b32("sub.u32", tid, upper), 4, memory);
    const Reg from = p_.b32("mad.lo.u32", tid, 4, memory);
    const Reg below = p_.test("setp.lt.u32", row, rows_left);
    const Reg twice = p_.b32("add.u32", rows_left, rows_left);
    const Reg writes = p_.test("setp.lt.u32", row, twice);
    const Reg writes_now = p_.test("setp.ge.and.u32", row, rows_left, writes);
    const auto each = [&](auto&& action) {
      int slot = 0;
      for (auto& a : acc_)
        for (const Reg& r : a) action(r, 4 * half * slot++);
    };
    each([&](Reg r, int at) {
      p_.line("@", writes_now, " st.shared.f32 [", to, "+", at, "], ", r);
    });
    p_.line("bar.sync 0");
    each([&](Reg r, int at) {
      const Reg other = p_.reg(RegKind::f32);
      p_.line("@", below, " ld.shared.f32 ", other, ", [", from, "+", at, "]");
      p_.line("@", below, " ", combine(), r, ", ", r, ", ", other);
    });
    p_.line("bar.sync 0");
    p_.line("shr.u32 ", rows_left, ", ", rows_left, ", 1");
    p_.line("bra.uni ", loop);
    p_.bind(done);
  }

  const ReduceForm& form_;
  const ReduceLayout& layout_;
  Draft draft_;
  Ptx& p_;
  size_t results_;
  ExprWriter writer_;
  ReduceText text_;
  int64_t shared_ = 0;
  std::vector<Reg> base_, out_, fixed_;
  Reg scale_;
  std::vector<std::vector<Packed>> loaded_;  // by input, by step
  std::vector<Coordinates> run_split_;
  std::map<std::vector<int64_t>, Strides> run_strides_;
  std::vector<std::vector<Reg>> acc_;  // by result: rows by step, columns by element
};

}  // namespace

ReduceText write_reduce(const ReduceForm& form, const ReduceLayout& layout, int capability) {
  return ReduceWriter(form, layout, capability).write();
}

}  // namespace ebb::cuda
