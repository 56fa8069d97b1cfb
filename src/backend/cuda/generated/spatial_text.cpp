#include "backend/cuda/generated/spatial_text.h"

#include <algorithm>
#include <map>

#include "backend/cuda/generated/spatial_frame.h"
#include "backend/cuda/generated/work_split.h"
#include "backend/cuda/ptx/expr_writer.h"
#include "ir/expr_inputs.h"

namespace ebb::cuda {
namespace {

std::vector<InputRate> element_rates(const SpatialForm& f, const SpatialWork& w) {
  std::vector<InputRate> r;
  for (int64_t i = 0; i < w.element.inputs(); ++i)
    r.push_back({static_cast<size_t>(i) < f.in.size(), 1});
  return r;
}

// Whether 16-bit approximations of functions are accurate enough: all results are 16-bit.
std::vector<bool> element_narrow(const SpatialForm& f, const SpatialWork& w) {
  const std::vector<bool> of_out = narrow_results(f.out);
  bool all = true;
  for (const size_t k : w.pixel_outputs) all = all && of_out[k];
  std::vector<bool> n(w.pixel_reductions.size(), all);
  for (const size_t k : w.pixel_outputs) n.push_back(of_out[k]);
  return n;
}

class SpatialWriter : SpatialFrame {
 public:
  SpatialWriter(const SpatialForm& form, const SpatialLayout& layout, int capability)
      : SpatialFrame(form, layout, capability),
        element_(p_, w_.element, element_rates(form, w_), element_narrow(form, w_)),
        channel_(p_, w_.channel,
                 std::vector<InputRate>(static_cast<size_t>(w_.channel.inputs()), {false, 0}),
                 std::vector<bool>(w_.channel.results().size())),
        reduced_(form.reductions.size()) {}

  SpatialText write() {
    set_up_cluster();
    hold();
    load_coefficients();
    follow(-1);
    for (int p = 0; p <= w_.last; ++p) {
      sweep_phase(p);
      exchange();
      follow(p);
    }
    write_channels();
    finish();
    return std::move(t_);
  }

 private:
  // ---- resident inputs --------------------------------------------------------------------------

  void hold() {
    struct Copy {
      Cursor from, to;
    };
    std::map<size_t, Copy> copies;  // by input
    for (size_t i = 0; i < f_.in.size(); ++i)
      if (l_.resident[i]) copies.emplace(i, Copy{begin(in_[i]), begin(resident_[i])});
    sweep(p_.b32("mov.u32", first_row_), count_, 1, [&](int) {
      for (const auto& [i, c] : copies) {
        copy_to_shared(c.to.base, c.from.base, l_.vector * size_of(f_.in[i].dtype));
        advance(c.from);
        advance(c.to);
      }
    });
    if (asynchronous()) p_.line("cp.async.commit_group");
  }
  bool asynchronous() const { return p_.capability() >= 80; }
  void copy_to_shared(Reg to, Reg from, int64_t bytes) {
    constexpr int64_t widest = 16;
    for (int64_t done = 0; done < bytes; done += std::min(widest, bytes)) {
      const int64_t n = std::min(widest, bytes);
      if (n >= 4 && asynchronous()) {
        p_.line("cp.async.", n == widest ? "cg" : "ca", ".shared.global [", to, "+", done, "], [",
                from, "+", done, "], ", n);
      } else if (n == 2) {
        const Reg v = p_.make(RegKind::b16, "ld.global.b16", joined("[", from, "+", done, "]"));
        p_.line("st.shared.b16 [", to, "+", done, "], ", v);
      } else {
        for (int64_t b = 0; b < n; b += 4) {
          const Reg v = p_.b32("ld.global.b32", joined("[", from, "+", done + b, "]"));
          p_.line("st.shared.b32 [", to, "+", done + b, "], ", v);
        }
      }
    }
  }
  // ---- per pixel --------------------------------------------------------------------------------

  void sweep_phase(int phase) {
    const std::vector<bool> used = w_.used_in(phase);
    load_carried(used);
    streams_.clear();
    for (size_t i = 0; i < f_.in.size(); ++i)
      if (used[i]) streams_.emplace(i, begin(l_.resident[i] ? resident_[i] : in_[i]));
    now_.clear();
    for (size_t q = 0; q < w_.pixel_reductions.size(); ++q)
      if (w_.phase[q] == phase) now_.push_back(q);
    sums_.clear();
    for (size_t k = 0; k < now_.size() * static_cast<size_t>(l_.vector); ++k)
      sums_.push_back(p_.f32("mov.f32", Operand(0.0f)));
    const bool writes = phase == w_.last && !w_.pixel_outputs.empty();
    written_.clear();
    for (const size_t k : w_.pixel_outputs)
      if (writes) written_.push_back(begin(out_[k]));
    if (now_.empty() && !writes) return;
    const Reg at = p_.b32("mov.u32", first_row_);
    // a thread reads only what it copied itself
    if (phase == 0 && asynchronous()) p_.line("cp.async.wait_group 0");
    sweep(at, count_, l_.steps, [&](int n) { do_pixels(n, writes); });
  }

  // All loads come before the stores: an output may alias an input.
  void do_pixels(int n, bool writes) {
    const int first = step_;
    step_ += n;
    for (int s = first; s < step_; ++s)
      for (const auto& [i, cursor] : streams_) {
        loaded_[{i, s}] = p_.load(f_.in[i].dtype, l_.vector, {cursor.base, 0, {}, l_.resident[i]});
        advance(cursor);
      }
    for (int s = first; s < step_; ++s) {
      for (size_t k = 0; k < now_.size(); ++k)
        for (int e = 0; e < l_.vector; ++e) {
          const Reg sum = sums_[k * static_cast<size_t>(l_.vector) + static_cast<size_t>(e)];
          p_.line("add.f32 ", sum, ", ", sum, ", ", result(now_[k], s, e));
        }
      for (size_t o = 0; writes && o < w_.pixel_outputs.size(); ++o)
        store(w_.pixel_reductions.size() + o, s, f_.out[w_.pixel_outputs[o]], written_[o]);
    }
  }
  void store(size_t k, int step, DType dtype, const Cursor& to) {
    std::vector<Operand> v;
    for (int e = 0; e < l_.vector; ++e) v.push_back(result(k, step, e));
    p_.store(dtype, v, {to.base});
    advance(to);
  }
  Operand result(size_t k, int step, int element) {
    return element_.result(k, step, element, [this](size_t i, int s, int e) -> Operand {
      return i < f_.in.size() ? p_.element(loaded_.at({i, s}), e)
                              : p_.element(carried_.at(i - f_.in.size()), e);
    });
  }

  void load_carried(const std::vector<bool>& used) {
    for (size_t k = 0; k < w_.carried.size(); ++k) {
      if (!used[f_.in.size() + k] || carried_.contains(k)) continue;
      if (!carried_lane_)
        carried_lane_ = p_.b32("mad.lo.u32", lane_channel_, float_bytes, area(m_.carried));
      carried_[k] = p_.load(DType::f32, l_.vector, {of_row(carried_lane_, k), 0, {}, true});
    }
  }
  // ---- reductions over pixels -------------------------------------------------------------------

  void exchange() {
    if (now_.empty()) return;
    const bool in_warps = l_.lanes() < warp;
    if (in_warps) across_warp();
    const Reg lane = p_.b32("and.b32", tid_, warp - 1);
    const Reg row = in_warps ? p_.b32("shr.u32", tid_, 5) : row_;
    const Reg who = in_warps ? p_.test("setp.lt.u32", lane, lanes_) : busy_thread_;
    const Reg slot = p_.b32("mad.lo.u32", row, tile_, lane_channel_);
    const Reg to = p_.b32("mad.lo.u32", slot, float_bytes, area(m_.scratch));
    const auto rows = static_cast<size_t>(l_.sums());
    only(who, [&] {
      for (size_t k = 0; k < now_.size(); ++k) store_sums(of_row(to, k * rows), k);
    });
    barrier();
    only(channel_thread_, [&] {
      const Reg from = p_.b32("mad.lo.u32", tid_, float_bytes, area(m_.scratch));
      std::vector<Reg> base;
      for (size_t k = 0; k < now_.size(); ++k) base.push_back(of_row(from, k * rows));
      const Reg stride = p_.b32("mul.lo.u32", tile_, float_bytes);
      const std::vector<Reg> sum = add_up(base, d_.number(l_.sums()), stride);
      for (size_t k = 0; k < now_.size(); ++k) reduced_[w_.pixel_reductions[now_[k]]] = sum[k];
    });
    if (l_.cluster > 1) across_blocks();
  }

  // Warp reduction: the first lanes() threads get the sums of their channels.
  void across_warp() {
    const Reg lane = p_.b32("and.b32", tid_, warp - 1);
    for (auto offset = static_cast<int>(l_.lanes()); offset < warp; offset *= 2) {
      const Reg there = p_.test("setp.lt.u32", lane, warp - offset);
      for (const Reg sum : sums_) {
        const Reg other = p_.f32("shfl.sync.down.b32", sum, offset, warp - 1, -1);
        p_.line("@", there, " add.f32 ", sum, ", ", sum, ", ", other);
      }
    }
  }
  void store_sums(Reg to, size_t k) {
    const auto n = static_cast<size_t>(l_.vector);
    for (size_t e = 0; e < n;) {
      const size_t m = std::min<size_t>(n - e, 4);
      std::string v;
      for (size_t j = 0; j < m; ++j) v += joined(j ? ", " : "", sums_[k * n + e + j]);
      const char* wide = m == 4 ? ".v4" : m == 2 ? ".v2" : "";
      p_.line("st.shared", wide, ".f32 [", to, "+", static_cast<int64_t>(e) * float_bytes, "], ",
              m == 1 ? v : "{" + v + "}");
      e += m;
    }
  }

  // The thread blocks of a cluster exchange their sums through DSMEM, counted by an mbarrier of the
  // receiver; all of them add in the same order.
  void set_up_cluster() {
    if (l_.cluster == 1) return;
    const Reg first = p_.test("setp.eq.u32", tid_, 0);
    const Reg barriers = area(m_.barriers);
    for (int p = 0; p <= w_.last; ++p) {
      const auto n = std::count(w_.phase.begin(), w_.phase.end(), p);
      if (n == 0) continue;
      const Reg bytes = d_.number(n * l_.cluster * l_.tile * float_bytes);
      const Reg at = p_.b32("add.u32", barriers, 8 * p);
      p_.line("@", first, " mbarrier.init.shared.b64 [", at, "], 1");
      p_.line("@", first, " mbarrier.arrive.expect_tx.shared.b64 _, [", at, "], ", bytes);
      barrier_.push_back(at);
    }
    p_.line("fence.mbarrier_init.release.cluster");
    p_.line("barrier.cluster.arrive.relaxed.aligned");
  }

  void across_blocks() {
    if (!exchanged_) p_.line("barrier.cluster.wait.acquire.aligned");
    const Reg barrier = barrier_[exchanged_++];
    only(channel_thread_, [&] {
      const Reg row = p_.b32("mul.lo.u32", tile_, float_bytes);  // bytes of a thread block's sums
      const Reg base = p_.b32("mad.lo.u32", tid_, float_bytes, area(m_.sums));
      std::vector<Reg> from;
      for (const size_t q : now_) from.push_back(of_row(base, q * static_cast<size_t>(l_.cluster)));
      for (int b = 0; b < l_.cluster; ++b) {
        const Reg signal = p_.b32("mapa.shared::cluster.u32", barrier, b);
        for (size_t k = 0; k < now_.size(); ++k) {
          const Reg own = p_.b32("mad.lo.u32", rank_, row, from[k]);
          const Reg to = p_.b32("mapa.shared::cluster.u32", own, b);
          p_.line("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [", to, "], ",
                  reduced_[w_.pixel_reductions[now_[k]]], ", [", signal, "]");
        }
      }
      const std::string loop = p_.new_label();
      p_.bind(loop);
      const Reg there = p_.test("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
                                joined("[", barrier, "]"), 0);
      p_.line("@!", there, " bra ", loop);
      for (size_t k = 0; k < now_.size(); ++k)
        add_blocks(from[k], reduced_[w_.pixel_reductions[now_[k]]]);
    });
  }
  void add_blocks(Reg from, Reg reduction) {
    std::vector<Reg> v;
    for (int b = 0; b < l_.cluster; ++b)
      v.push_back(p_.f32("ld.shared.f32", joined("[", of_row(from, static_cast<size_t>(b)), "]")));
    p_.line("mov.f32 ", reduction, ", ", v[0]);
    for (size_t b = 1; b < v.size(); ++b)
      p_.line("add.f32 ", reduction, ", ", reduction, ", ", v[b]);
  }

  // ---- per channel ------------------------------------------------------------------------------

  // One thread per channel.
  Operand channel_result(size_t k) {
    return channel_.result(k, 0, 0, [this](size_t i, int, int) -> Operand {
      return i < f_.in.size() ? p_.element(coefficient_.at(i), 0) : reduced_[i - f_.in.size()];
    });
  }
  void load_coefficients() {
    only(channel_thread_, [&] {
      for (const size_t i : used_)
        if (!f_.in[i].streams) coefficient_[i] = p_.load(f_.in[i].dtype, 1, {in_[i].base});
    });
  }

  // Per-channel values that depend on the reductions of a phase (-1: before the first).
  void follow(int phase) {
    std::vector<size_t> waiting;
    for (size_t g = 0; g < w_.group_reductions.size(); ++g)
      if (w_.known[w_.group_reductions[g]] == phase + 1) waiting.push_back(g);
    while (!waiting.empty()) {
      std::vector<size_t> ready;
      for (const size_t g : waiting)
        if (!waits_for(g, waiting)) ready.push_back(g);
      across_groups(ready);
      std::erase_if(waiting, [&](size_t g) {
        return std::find(ready.begin(), ready.end(), g) != ready.end();
      });
    }
    bool any = false;
    for (const int k : w_.carried) any = any || k == phase + 1;
    if (!any) return;
    only(channel_thread_, [&] {
      const Reg base = p_.b32("mad.lo.u32", tid_, float_bytes, area(m_.carried));
      for (size_t k = 0; k < w_.carried.size(); ++k)
        if (w_.carried[k] == phase + 1)
          p_.line("st.shared.f32 [", of_row(base, k), "], ",
                  p_.in_register(channel_result(w_.group_reductions.size() + k)));
    });
    barrier();
  }

  // Whether the operand of a group reduction depends on one of these.
  bool waits_for(size_t g, const std::vector<size_t>& others) const {
    const std::vector<bool> used = inputs_of(w_.channel, g, g + 1);
    return std::any_of(others.begin(), others.end(),
                       [&](size_t o) { return used[f_.in.size() + w_.group_reductions[o]]; });
  }

  void across_groups(const std::vector<size_t>& which) {
    const Reg terms = area(m_.terms);
    only(channel_thread_, [&] {
      const Reg to = p_.b32("mad.lo.u32", tid_, float_bytes, terms);
      for (const size_t g : which)
        p_.line("st.shared.f32 [", of_row(to, g), "], ", p_.in_register(channel_result(g)));
    });
    barrier();
    only(channel_thread_, [&] {
      const Reciprocal by(f_.group());
      const Reg own = quotient(p_, tid_, d_.number(by.multiplier), d_.number(by.shift));
      const Reg first = p_.b32("mul.lo.u32", own, group_);
      const Reg from = p_.b32("mad.lo.u32", first, float_bytes, terms);
      std::vector<Reg> base;
      for (const size_t g : which) base.push_back(of_row(from, g));
      const std::vector<Reg> sum = add_up(base, group_, p_.b32("mov.u32", float_bytes));
      for (size_t k = 0; k < which.size(); ++k) reduced_[w_.group_reductions[which[k]]] = sum[k];
    });
  }

  void write_channels() {
    if (w_.channel_outputs.empty()) return;
    const Reg writes =
        rank_ ? p_.test("setp.eq.and.u32", rank_, 0, channel_thread_) : channel_thread_;
    only(writes, [&] {
      for (size_t k = 0; k < w_.channel_outputs.size(); ++k) {
        const size_t o = w_.channel_outputs[k];
        const Operand v[] = {channel_result(w_.group_reductions.size() + w_.carried.size() + k)};
        p_.store(f_.out[o], v, {out_[o].base});
      }
    });
  }

  // A thread block has received everything when it ends, so its shared memory may be released.
  void finish() {
    t_.text = p_.text({.name = "spatial_fusion",
                       .parameter_bytes = d_.parameters.size(),
                       .threads = l_.threads,
                       .ctas_per_sm = l_.ctas_per_sm,
                       .dynamic_shared = true});
    t_.parameters = std::move(d_.parameters);
    t_.blocks = f_.images * (f_.channels / l_.tile) * l_.cluster;
    t_.shared = m_.end;
    t_.threads = l_.threads;
    t_.cluster = l_.cluster;
  }

  ExprWriter element_, channel_;
  Reg carried_lane_;
  std::vector<Reg> barrier_;  // by phase with reductions
  size_t exchanged_ = 0;      // phases whose reductions blocks have exchanged
  std::vector<Reg> reduced_;  // of a thread's channel
  std::map<size_t, Packed> coefficient_, carried_;
  // of a phase
  std::vector<size_t> now_;
  std::vector<Reg> sums_;
  std::map<size_t, Cursor> streams_;
  std::vector<Cursor> written_;
  int step_ = 0;
  std::map<std::pair<size_t, int>, Packed> loaded_;
};

}  // namespace

SpatialText write_spatial(const SpatialForm& form, const SpatialLayout& layout, int capability) {
  return SpatialWriter(form, layout, capability).write();
}

}  // namespace ebb::cuda
