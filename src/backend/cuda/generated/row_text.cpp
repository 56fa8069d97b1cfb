#include "backend/cuda/generated/row_text.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "backend/cuda/generated/work_split.h"
#include "backend/cuda/ptx/expr_writer.h"

namespace ebb::cuda {
namespace {

constexpr int warp = 32;
constexpr int phase_steps = 64;  // the writer's step: phase * phase_steps + step

using Residency = RowLayout::Residency;

class RowWriter {
 public:
  RowWriter(const RowForm& form, const RowLayout& layout, int capability)
      : form_(form),
        layout_(layout),
        draft_{Ptx(capability), {}},
        p_(draft_.ptx),
        rounds_(rounds_of(form)),
        writer_(p_, form.expr, rates(), narrow()),
        reduced_(form.reductions()) {
    for (size_t i = 0; i < form.in.size(); ++i)
      if (layout.residency[i] != Residency::none) text_.used.push_back(i);
  }

  RowText write() {
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
    return std::move(text_);
  }

 private:
  // ---- what moves how ------------------------------------------------------------------------

  bool along(size_t i) const {
    return layout_.residency[i] != Residency::none && layout_.residency[i] != Residency::row;
  }
  std::vector<InputRate> rates() const {
    std::vector<InputRate> r;
    for (size_t i = 0; i < form_.in.size(); ++i)
      r.push_back(along(i) ? InputRate{true, 1} : InputRate{false, 0});
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

  // ---- a row, or those of a partial reduction
  // -------------------------------------------------------------

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
    const Reg at = p_.b32("mov.u32", 0), end = draft_.number(form_.partial_rows);
    const std::string loop = p_.new_label();
    p_.bind(loop);
    p_.line("add.u32 ", at, ", ", at, ", 1");
    const Reg more = p_.test("setp.lt.u32", at, end);
    const Reg more_inside = inside_ ? p_.test("setp.lt.and.u32", at, end, inside_) : Reg{};
    std::vector<Reg> here = in_;
    advance_inputs();
    std::vector<std::vector<Packed>> next(form_.in.size());
    for (const size_t i : text_.used)
      for (int s = 0; s < layout_.steps && layout_.residency[i] == Residency::resident; ++s)
        next[i].push_back(load(i, s, inside(s) ? more_inside : more));
    std::swap(here, in_);
    row();
    add_to_sums();
    for (const size_t i : text_.used) {
      for (size_t s = 0; s < next[i].size(); ++s)
        for (size_t w = 0; w < next[i][s].words.size(); ++w)
          p_.line(next[i][s].words[w].kind == RegKind::b16   ? "mov.b16 "
                  : next[i][s].words[w].kind == RegKind::b64 ? "mov.b64 "
                                                             : "mov.b32 ",
                  loaded_[i].at(static_cast<int>(s)).words[w], ", ", next[i][s].words[w]);
      if (here[i].id != in_[i].id) p_.line("mov.b64 ", in_[i], ", ", here[i]);
    }
    advance_outputs();
    swap_stages();
    p_.line("@", more, " bra ", loop);
  }

  Reg row_bytes(size_t i, DType dtype, bool by_row) {
    const int64_t stride = by_row ? 1 : form_.row_stride(i);
    if (stride == 0) return {};
    return p_.b64("mul.wide.u32", draft_.number(stride), size_of(dtype));
  }
  void advance_inputs() {
    for (const size_t i : text_.used)
      if (const Reg bytes = row_bytes(i, form_.in[i], false))
        in_[i] = p_.b64("add.s64", in_[i], bytes);
  }
  void advance_outputs() {
    for (size_t k = 0; k < form_.out.size(); ++k) {
      if (per(k, RowExtent::partial)) continue;
      const Reg bytes = row_bytes(form_.in.size(), form_.out[k], per(k, RowExtent::row));
      if (bytes) p_.line("add.s64 ", out_[k], ", ", out_[k], ", ", bytes);
    }
  }

  // ---- where a thread works ------------------------------------------------------------------

  void find_row() {
    const Reg tid = p_.b32("mov.u32", "%tid.x"), cta = p_.b32("mov.u32", "%ctaid.x");
    const int per_block = layout_.threads / layout_.lanes;
    const int64_t groups = form_.rows() / std::max<int64_t>(form_.partial_rows, 1);
    text_.threads = layout_.threads;
    text_.blocks = (groups + per_block - 1) / per_block;
    tid_ = lane_ = tid;
    group_ = cta;
    if (per_block > 1) {
      const Reg number = p_.b32("mad.lo.u32", cta, layout_.threads, tid);
      group_ = p_.b32("shr.u32", number, std::countr_zero(static_cast<unsigned>(layout_.lanes)));
      lane_ = p_.b32("and.b32", tid, layout_.lanes - 1);
      const Reg count = draft_.number(groups);
      valid_ = p_.test("setp.lt.u32", group_, count);
      group_ = p_.b32("min.u32", group_, p_.b32("sub.u32", count, 1));  // all lanes take part
    }
    row_ = group_;
    if (form_.partial_rows > 0)
      row_ = p_.b32("mul.lo.u32", group_, draft_.number(form_.partial_rows));
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
    const auto slot = [&](Reg from, const std::vector<int64_t>& strides, DType dtype) {
      const std::vector<int64_t> outer(strides.begin(), strides.end() - 1);
      if (!known.contains(outer)) known[outer] = Strides(draft_, outer).offset(draft_, at);
      const Reg row = address(p_, from, known[outer], dtype);
      return strides.back() == 0 ? row : address(p_, row, first, dtype);
    };
    in_.resize(form_.in.size());
    for (size_t u = 0; u < text_.used.size(); ++u) {
      const size_t i = text_.used[u];
      in_[i] = slot(base[u], form_.space.strides[i], form_.in[i]);
      alignment(along(i) ? layout_.vector : 1, form_.in[i]);
    }
    for (size_t k = 0; k < form_.out.size(); ++k) {
      const Reg from = base[text_.used.size() + k];
      if (per(k, RowExtent::row))
        out_.push_back(address(p_, from, p_.b64("cvt.u64.u32", row_), form_.out[k]));
      else
        out_.push_back(per(k, RowExtent::partial)
                           ? from
                           : slot(from, form_.space.strides.back(), form_.out[k]));
      alignment(per(k, RowExtent::row) ? 1 : layout_.vector, form_.out[k]);
    }
  }
  void alignment(int64_t elements, DType dtype) {
    constexpr int64_t widest = 16;
    text_.alignment.push_back(std::min(widest, elements * size_of(dtype)));
  }

  // ---- loads ---------------------------------------------------------------------------------

  Packed load(size_t i, int step, Reg when) {
    const int64_t offset = int64_t{step} * layout_.lanes * layout_.vector * size_of(form_.in[i]);
    return p_.load(form_.in[i], layout_.vector, {in_[i], offset, when});
  }

  void load_all(Residency residency) {
    loaded_.resize(form_.in.size());
    for (int s = 0; s < layout_.steps; ++s)
      for (const size_t i : text_.used)
        if (layout_.residency[i] == residency) loaded_[i].emplace(s, load(i, s, inside(s)));
  }
  void load_rows() {
    for (const size_t i : text_.used)
      if (layout_.residency[i] == Residency::row)
        loaded_[i].emplace(0, p_.load(form_.in[i], 1, {in_[i]}));
  }

  Operand value(size_t i, int step, int element) {
    if (i >= form_.in.size()) return reduced_[i - form_.in.size()];
    if (layout_.residency[i] == Residency::row) return p_.element(loaded_[i].at(0), 0);
    const int s = step % phase_steps, key = layout_.residency[i] == Residency::streamed ? step : s;
    auto at = loaded_[i].find(key);
    if (at == loaded_[i].end()) at = loaded_[i].emplace(key, load(i, s, inside(s))).first;
    return p_.element(at->second, element);
  }

  Operand result(size_t k, int step, int element) {
    return writer_.result(k, phase_ * phase_steps + step, element,
                          [this](size_t i, int s, int e) { return value(i, s, e); });
  }

  // ---- reductions
  // --------------------------------------------------------------------------------

  std::string_view combine(size_t t) const { return form_.maximum[t] ? "max.f32" : "add.f32"; }

  void run_reductions() {
    std::vector<size_t> now;
    for (size_t t = 0; t < rounds_.size(); ++t)
      if (rounds_[t] == phase_) now.push_back(t);
    for (const size_t t : now)
      reduced_[t] = p_.f32("mov.f32", Operand(form_.maximum[t] ? -infinity : 0.0f));
    for (int s = 0; s < layout_.steps; ++s)
      for (const size_t t : now) {
        Operand sum = result(t, s, 0);  // of the vector
        for (int e = 1; e < layout_.vector; ++e)
          sum = p_.f32(combine(t), sum, p_.in_register(result(t, s, e)));
        const std::string when = inside(s) ? joined("@", inside(s), " ") : "";
        p_.line(when, combine(t), " ", reduced_[t], ", ", reduced_[t], ", ", p_.in_register(sum));
      }
    p_.line("bar.warp.sync -1");
    for (const size_t t : now) across(t, std::min(layout_.lanes, warp));
    if (layout_.lanes > warp) across_block(now);
  }

  void across(size_t t, int lanes) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      const Reg other = p_.f32("shfl.sync.bfly.b32", reduced_[t], offset, 31, -1);
      p_.line(combine(t), " ", reduced_[t], ", ", reduced_[t], ", ", other);
    }
  }

  int warps() const { return layout_.lanes / warp; }
  int warps_rounded() const {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(warps())));
  }

  // Where the warps of a block leave their reductions, and find those of all.
  void place_shared() {
    if (layout_.lanes <= warp) return;
    const int floats = warps() * static_cast<int>(form_.reductions());
    shared_ = form_.partial_rows > 0 ? 2 * floats : floats;
    const Reg memory = p_.b32("mov.u32", "shared");
    const Reg lane = p_.b32("and.b32", tid_, warps_rounded() - 1);
    own_ = p_.b32("mad.lo.u32", p_.b32("shr.u32", tid_, 5), 4, memory);
    other_ = p_.b32("mad.lo.u32", lane, 4, memory);
    leads_ = p_.test("setp.eq.u32", p_.b32("and.b32", tid_, warp - 1), 0);
    if (warps_rounded() > warps()) there_ = p_.test("setp.lt.u32", lane, warps());
    if (form_.partial_rows > 0) stage_offset_ = p_.b32("mov.u32", 4 * floats);
  }

  void across_block(const std::vector<size_t>& now) {
    const int first = taken_;
    taken_ += warps() * static_cast<int>(now.size());
    const auto slot = [&](size_t k) { return 4 * (first + warps() * static_cast<int>(k)); };
    for (size_t k = 0; k < now.size(); ++k)
      p_.line("@", leads_, " st.shared.f32 [", own_, "+", slot(k), "], ", reduced_[now[k]]);
    p_.line("bar.sync 0");
    for (size_t k = 0; k < now.size(); ++k) {
      const size_t t = now[k];
      if (there_)
        p_.line("mov.f32 ", reduced_[t], ", ", Operand(form_.maximum[t] ? -infinity : 0.0f));
      p_.line(there_ ? joined("@", there_, " ") : "", "ld.shared.f32 ", reduced_[t], ", [", other_,
              "+", slot(k), "]");
    }
    for (const size_t t : now) across(t, warps_rounded());
  }

  // Double buffering: the next row's reductions use the other half of the shared memory, since a
  // warp may still read this one.
  void swap_stages() {
    if (!stage_offset_) return;
    p_.line("add.s32 ", own_, ", ", own_, ", ", stage_offset_);
    p_.line("add.s32 ", other_, ", ", other_, ", ", stage_offset_);
    p_.line("neg.s32 ", stage_offset_, ", ", stage_offset_);
  }

  // ---- outputs -------------------------------------------------------------------------------

  void write_row_numbers() {
    Reg first;
    for (size_t k = 0; k < form_.out.size(); ++k) {
      if (!per(k, RowExtent::row)) continue;
      if (!first)
        first = valid_ ? p_.test("setp.eq.and.u32", lane_, 0, valid_)
                       : p_.test("setp.eq.u32", lane_, 0);
      const Operand v[] = {result(form_.reductions() + k, 0, 0)};
      p_.store(form_.out[k], v, {out_[k], 0, first});
    }
  }

  // Streamed inputs are loaded a step ahead: loads do not move above stores by themselves.
  void write_elements() {
    const auto fetch = [this](int s) {
      if (s < layout_.steps)
        for (const size_t i : text_.used)
          if (layout_.residency[i] == Residency::streamed) value(i, phase_ * phase_steps + s, 0);
    };
    std::vector<size_t> outputs;
    for (size_t k = 0; k < form_.out.size(); ++k)
      if (per(k, RowExtent::element)) outputs.push_back(k);
    if (outputs.empty()) return;
    fetch(0);
    for (int s = 0; s < layout_.steps; ++s) {
      fetch(s + 1);
      std::vector<std::vector<Operand>> values(form_.out.size());
      for (int e = 0; e < layout_.vector; ++e)
        for (const size_t k : outputs) values[k].push_back(result(form_.reductions() + k, s, e));
      for (const size_t k : outputs)
        p_.store(form_.out[k], values[k], {out_[k], offset(s, k), writes(s)});
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
        sums_[k].push_back(p_.f32("mov.f32", Operand(0.0f)));
  }
  void add_to_sums() {
    for (int s = 0; s < layout_.steps; ++s)
      for (int e = 0; e < layout_.vector; ++e)
        for (size_t k = 0; k < form_.out.size(); ++k) {
          if (sums_[k].empty()) continue;
          const Reg sum = sums_[k][static_cast<size_t>(s * layout_.vector + e)];
          p_.line("add.f32 ", sum, ", ", sum, ", ",
                  p_.in_register(result(form_.reductions() + k, s, e)));
        }
  }
  void write_partials() {
    const Reg number = p_.b64("mul.wide.u32", group_, draft_.number(form_.length()));
    const Reg first = p_.b64("mad.wide.u32", lane_, layout_.vector, number);
    for (size_t k = 0; k < form_.out.size(); ++k) {
      if (sums_[k].empty()) continue;
      const Reg to = address(p_, out_[k], first, form_.out[k]);
      for (int s = 0; s < layout_.steps; ++s) {
        const auto from = sums_[k].begin() + s * layout_.vector;
        const std::vector<Operand> v(from, from + layout_.vector);
        p_.store(form_.out[k], v, {to, offset(s, k), writes(s)});
      }
    }
  }

  void finish() {
    constexpr int64_t registers = 65536;
    text_.text = p_.text({.name = "row_fusion",
                          .parameter_bytes = draft_.parameters.size(),
                          .threads = layout_.threads,
                          .ctas_per_sm = static_cast<int>(std::max<int64_t>(
                              1, registers / (int64_t{layout_.threads} * layout_.registers))),
                          .shared_floats = shared_});
    text_.parameters = std::move(draft_.parameters);
  }

  static constexpr float infinity = std::numeric_limits<float>::infinity();

  const RowForm& form_;
  const RowLayout& layout_;
  Draft draft_;
  Ptx& p_;
  std::vector<int> rounds_;
  ExprWriter writer_;
  RowText text_;
  int phase_ = 0, shared_ = 0, taken_ = 0;  // floats of shared memory, and those in use
  Reg tid_, lane_, group_, row_, valid_, inside_, store_all_, store_last_;
  Reg own_, other_, leads_, there_, stage_offset_;  // of the sums across a block
  std::vector<Reg> in_, out_, reduced_;             // addresses; reductions
  std::vector<std::vector<Reg>> sums_;              // by output, by element
  std::vector<std::map<int, Packed>> loaded_;       // by input, by step
};

}  // namespace

RowText write_rows(const RowForm& form, const RowLayout& layout, int capability) {
  return RowWriter(form, layout, capability).write();
}

}  // namespace ebb::cuda
