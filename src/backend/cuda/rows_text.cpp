#include "backend/cuda/rows_text.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "backend/cuda/expr_writer.h"
#include "backend/cuda/map_flat.h"

namespace ebb::cuda {
namespace {

constexpr int warp = 32;
constexpr int phase_steps = 64;  // the writer's step: phase * phase_steps + step

using Place = RowsLayout::Place;

class RowsWriter {
 public:
  RowsWriter(const RowsForm& form, const RowsLayout& layout, int capability)
      : form_(form),
        layout_(layout),
        draft_{Ptx(capability), {}},
        p_(draft_.ptx),
        rounds_(rounds_of(form)),
        writer_(p_, form.expr, rates(), narrow()),
        total_(form.totals()) {
    for (size_t i = 0; i < form.in.size(); ++i)
      if (layout.place[i] != Place::none) text_.used.push_back(i);
  }

  RowsText write() {
    find_row();
    find_addresses();
    load_kept();
    const int last = rounds_.empty() ? 0 : *std::max_element(rounds_.begin(), rounds_.end());
    for (phase_ = 0; phase_ <= last; ++phase_) take_totals();
    write_narrow();
    write_wide();
    finish();
    return std::move(text_);
  }

 private:
  // ---- what moves how ------------------------------------------------------------------------

  bool along(size_t i) const {
    return layout_.place[i] == Place::kept || layout_.place[i] == Place::late;
  }
  std::vector<InputRate> rates() const {
    std::vector<InputRate> r;
    for (size_t i = 0; i < form_.in.size(); ++i)
      r.push_back(along(i) ? InputRate{true, 1} : InputRate{false, 0});
    r.resize(r.size() + form_.totals(), {false, 0});
    return r;
  }
  std::vector<bool> narrow() const {
    std::vector<bool> n(form_.totals());
    for (const bool b : narrow_results(form_.out)) n.push_back(b);
    return n;
  }
  int64_t vectors() const { return form_.length() / layout_.vector; }

  // ---- where a thread works ------------------------------------------------------------------

  void find_row() {
    const Reg tid = p_.b32("mov.u32", "%tid.x"), cta = p_.b32("mov.u32", "%ctaid.x");
    const int per_block = layout_.threads / layout_.lanes;
    text_.threads = layout_.threads;
    text_.blocks = (form_.rows() + per_block - 1) / per_block;
    tid_ = lane_ = tid;
    row_ = cta;
    if (per_block > 1) {
      const Reg number = p_.b32("mad.lo.u32", cta, layout_.threads, tid);
      row_ = p_.b32("shr.u32", number, std::countr_zero(static_cast<unsigned>(layout_.lanes)));
      lane_ = p_.b32("and.b32", tid, layout_.lanes - 1);
      const Reg count = draft_.number(form_.rows());
      valid_ = p_.test("setp.lt.u32", row_, count);
      row_ = p_.b32("min.u32", row_, p_.b32("sub.u32", count, 1));  // all lanes take part
    }
    store_all_ = valid_;
    if (vectors() % layout_.lanes == 0) return;
    const Reg at = p_.b32("add.u32", lane_, (layout_.steps - 1) * layout_.lanes);
    const Reg count = draft_.number(vectors());
    inside_ = p_.test("setp.lt.u32", at, count);
    store_last_ = valid_ ? p_.test("setp.lt.and.u32", at, count, valid_) : inside_;
  }

  // Of the vectors at a step: whether the row has them; and whether the thread writes them.
  Reg inside(int step) const { return step + 1 == layout_.steps ? inside_ : Reg{}; }
  Reg writes(int step) const { return inside(step) ? store_last_ : store_all_; }

  void find_addresses() {
    std::vector<Reg> base;
    for (size_t i = 0; i < text_.used.size() + form_.out.size(); ++i)
      base.push_back(draft_.pointer(text_.pointers));
    const std::vector<int64_t> sizes(form_.space.sizes.begin(), form_.space.sizes.end() - 1);
    const std::vector<Reg> at = Coordinates(draft_, sizes).of(draft_, row_);
    const Reg first = p_.b64("mul.wide.u32", lane_, layout_.vector);
    std::map<std::vector<int64_t>, Reg> known;
    const auto place = [&](Reg from, const std::vector<int64_t>& strides, DType dtype) {
      const std::vector<int64_t> outer(strides.begin(), strides.end() - 1);
      if (!known.contains(outer)) known[outer] = Strides(draft_, outer).offset(draft_, at);
      const Reg row = address(p_, from, known[outer], dtype);
      return strides.back() == 0 ? row : address(p_, row, first, dtype);
    };
    in_.resize(form_.in.size());
    for (size_t u = 0; u < text_.used.size(); ++u) {
      const size_t i = text_.used[u];
      in_[i] = place(base[u], form_.space.strides[i], form_.in[i]);
      alignment(along(i) ? layout_.vector : 1, form_.in[i]);
    }
    for (size_t k = 0; k < form_.out.size(); ++k) {
      const Reg from = base[text_.used.size() + k];
      out_.push_back(form_.wide[k] ? place(from, form_.space.strides.back(), form_.out[k])
                                   : address(p_, from, p_.b64("cvt.u64.u32", row_), form_.out[k]));
      alignment(form_.wide[k] ? layout_.vector : 1, form_.out[k]);
    }
  }
  void alignment(int64_t elements, DType dtype) {
    constexpr int64_t widest = 16;
    text_.alignment.push_back(std::min(widest, elements * size_of(dtype)));
  }

  // ---- loads ---------------------------------------------------------------------------------

  Packed load(size_t i, int step) {
    const int64_t offset = int64_t{step} * layout_.lanes * layout_.vector * size_of(form_.in[i]);
    return p_.load(form_.in[i], layout_.vector, {in_[i], offset, inside(step)});
  }

  void load_kept() {
    loaded_.resize(form_.in.size());
    for (int s = 0; s < layout_.steps; ++s)
      for (const size_t i : text_.used)
        if (layout_.place[i] == Place::kept) loaded_[i][s] = load(i, s);
    for (const size_t i : text_.used)
      if (layout_.place[i] == Place::row) loaded_[i][0] = p_.load(form_.in[i], 1, {in_[i]});
  }

  Operand value(size_t i, int step, int element) {
    if (i >= form_.in.size()) return total_[i - form_.in.size()];
    if (layout_.place[i] == Place::row) return p_.element(loaded_[i].at(0), 0);
    const int key = layout_.place[i] == Place::kept ? step % phase_steps : step;
    auto at = loaded_[i].find(key);
    if (at == loaded_[i].end()) at = loaded_[i].emplace(key, load(i, step % phase_steps)).first;
    return p_.element(at->second, element);
  }

  Operand result(size_t k, int step, int element) {
    return writer_.result(k, phase_ * phase_steps + step, element,
                          [this](size_t i, int s, int e) { return value(i, s, e); });
  }

  // ---- totals --------------------------------------------------------------------------------

  std::string_view combine(size_t t) const { return form_.maximum[t] ? "max.f32" : "add.f32"; }

  void take_totals() {
    std::vector<size_t> now;
    for (size_t t = 0; t < rounds_.size(); ++t)
      if (rounds_[t] == phase_) now.push_back(t);
    for (const size_t t : now)
      total_[t] = p_.f32("mov.f32", Operand(form_.maximum[t] ? -infinity : 0.0f));
    for (int s = 0; s < layout_.steps; ++s)
      for (const size_t t : now) {
        Operand sum = result(t, s, 0);  // of the vector
        for (int e = 1; e < layout_.vector; ++e)
          sum = p_.f32(combine(t), sum, p_.in_register(result(t, s, e)));
        const std::string when = inside(s) ? str("@", inside(s), " ") : "";
        p_.line(when, combine(t), " ", total_[t], ", ", total_[t], ", ", p_.in_register(sum));
      }
    p_.line("bar.warp.sync -1");
    for (const size_t t : now) across(t, std::min(layout_.lanes, warp));
    if (layout_.lanes > warp) across_block(now);
  }

  void across(size_t t, int lanes) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      const Reg other = p_.f32("shfl.sync.bfly.b32", total_[t], offset, 31, -1);
      p_.line(combine(t), " ", total_[t], ", ", total_[t], ", ", other);
    }
  }

  void across_block(const std::vector<size_t>& now) {
    const int warps = layout_.lanes / warp;
    const auto group = static_cast<int>(std::bit_ceil(static_cast<unsigned>(warps)));
    if (!own_) {
      const Reg memory = p_.b32("mov.u32", "shared");
      const Reg lane = p_.b32("and.b32", tid_, group - 1);
      own_ = p_.b32("mad.lo.u32", p_.b32("shr.u32", tid_, 5), 4, memory);
      other_ = p_.b32("mad.lo.u32", lane, 4, memory);
      leads_ = p_.test("setp.eq.u32", p_.b32("and.b32", tid_, warp - 1), 0);
      if (group > warps) there_ = p_.test("setp.lt.u32", lane, warps);
    }
    const int first = shared_;
    shared_ += warps * static_cast<int>(now.size());
    const auto place = [&](size_t k) { return 4 * (first + warps * static_cast<int>(k)); };
    for (size_t k = 0; k < now.size(); ++k)
      p_.line("@", leads_, " st.shared.f32 [", own_, "+", place(k), "], ", total_[now[k]]);
    p_.line("bar.sync 0");
    for (size_t k = 0; k < now.size(); ++k) {
      const size_t t = now[k];
      if (there_)
        p_.line("mov.f32 ", total_[t], ", ", Operand(form_.maximum[t] ? -infinity : 0.0f));
      p_.line(there_ ? str("@", there_, " ") : "", "ld.shared.f32 ", total_[t], ", [", other_, "+",
              place(k), "]");
    }
    for (const size_t t : now) across(t, group);
  }

  // ---- outputs -------------------------------------------------------------------------------

  void write_narrow() {
    Reg first;
    for (size_t k = 0; k < form_.out.size(); ++k) {
      if (form_.wide[k]) continue;
      if (!first)
        first = valid_ ? p_.test("setp.eq.and.u32", lane_, 0, valid_)
                       : p_.test("setp.eq.u32", lane_, 0);
      const Operand v[] = {result(form_.totals() + k, 0, 0)};
      p_.store(form_.out[k], v, {out_[k], 0, first});
    }
  }

  // What comes late is loaded a step ahead: loads do not move above stores by themselves.
  void write_wide() {
    const auto fetch = [this](int s) {
      if (s < layout_.steps)
        for (const size_t i : text_.used)
          if (layout_.place[i] == Place::late) value(i, phase_ * phase_steps + s, 0);
    };
    if (std::find(form_.wide.begin(), form_.wide.end(), true) == form_.wide.end()) return;
    fetch(0);
    for (int s = 0; s < layout_.steps; ++s) {
      fetch(s + 1);
      std::vector<std::vector<Operand>> values(form_.out.size());
      for (int e = 0; e < layout_.vector; ++e)
        for (size_t k = 0; k < form_.out.size(); ++k)
          if (form_.wide[k]) values[k].push_back(result(form_.totals() + k, s, e));
      for (size_t k = 0; k < form_.out.size(); ++k) {
        const int64_t at = int64_t{s} * layout_.lanes * layout_.vector * size_of(form_.out[k]);
        if (form_.wide[k]) p_.store(form_.out[k], values[k], {out_[k], at, writes(s)});
      }
    }
  }

  void finish() {
    constexpr int64_t registers = 65536;
    text_.text = p_.text({.name = "rows",
                          .parameter_bytes = draft_.parameters.size(),
                          .threads = layout_.threads,
                          .blocks_per_multiprocessor = static_cast<int>(std::max<int64_t>(
                              1, registers / (int64_t{layout_.threads} * layout_.registers))),
                          .shared_floats = shared_});
    text_.parameters = std::move(draft_.parameters);
  }

  static constexpr float infinity = std::numeric_limits<float>::infinity();

  const RowsForm& form_;
  const RowsLayout& layout_;
  Draft draft_;
  Ptx& p_;
  std::vector<int> rounds_;
  ExprWriter writer_;
  RowsText text_;
  int phase_ = 0, shared_ = 0;
  Reg tid_, lane_, row_, valid_, inside_, store_all_, store_last_;
  Reg own_, other_, leads_, there_;            // of the sums across a block
  std::vector<Reg> in_, out_, total_;          // addresses; totals
  std::vector<std::map<int, Packed>> loaded_;  // by input, by step
};

}  // namespace

RowsText write_rows(const RowsForm& form, const RowsLayout& layout, int capability) {
  return RowsWriter(form, layout, capability).write();
}

}  // namespace ebb::cuda
