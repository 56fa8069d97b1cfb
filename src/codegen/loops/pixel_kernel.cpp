#include "codegen/loops/pixel_kernel.h"

#include <algorithm>
#include <map>

#include "codegen/expr_writer.h"
#include "codegen/loops/pixel_frame.h"
#include "codegen/loops/work_split.h"
#include "ir/expr_inputs.h"

namespace ebb::codegen {
namespace {

std::vector<InputRate> element_rates(const PixelForm& f, const PixelWork& w) {
  std::vector<InputRate> r;
  for (int64_t i = 0; i < w.element.inputs(); ++i)
    r.push_back({static_cast<size_t>(i) < f.in.size(), 1});
  return r;
}

// Which functions may be narrow (1e-6): those of 16-bit results, and of sums beside 16-bit results
// alone, which take them from the same values.
std::vector<bool> element_narrow(const PixelForm& f, const PixelWork& w) {
  const std::vector<bool> of_out = narrow_results(f.out);
  const bool all = !w.pixel_outputs.empty() &&
                   std::ranges::all_of(w.pixel_outputs, [&](size_t k) { return of_out[k]; });
  std::vector<bool> n(w.pixel_reductions.size(), all);
  for (const size_t k : w.pixel_outputs) n.push_back(of_out[k]);
  return n;
}

class PixelWriter : PixelFrame {
 public:
  PixelWriter(const PixelForm& form, const PixelLayout& layout, const Target& target)
      : PixelFrame(form, layout, target),
        element_(b_, w_.element, element_rates(form, w_), element_narrow(form, w_)) {
    for (size_t t = 0; t < form.reductions.size(); ++t) reduced_.push_back(b_.unset<Kind::f32>());
  }

  LoopKernel write() {
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
    return std::move(loop_);
  }

 private:
  // ---- resident inputs --------------------------------------------------------------------------

  void hold() {
    struct Copy {
      Moving from;
      SharedMoving to;
    };
    std::map<size_t, Copy> copies;  // by input
    for (size_t i = 0; i < f_.in.size(); ++i)
      if (l_.resident[i]) copies.emplace(i, Copy{begin(in_[i]), begin(resident_[i])});
    sweep(1, [&](int) {
      for (const auto& [i, c] : copies) {
        copy_to_shared({c.to.at.get()}, {c.from.at.get()}, l_.vector * size_of(f_.in[i].dtype));
        advance(c.from);
        advance(c.to);
      }
    });
    if (asynchronous()) b_.put(Op::copy_commit, {});
  }
  bool asynchronous() const { return b_.target().async_copy; }
  void copy_to_shared(const SharedAddress& to, const Address& from, int64_t bytes) {
    constexpr int64_t widest = 16;
    const int64_t n = std::min(widest, bytes);
    for (int64_t done = 0; done < bytes; done += n) {
      if (n >= 4 && asynchronous()) {
        b_.put(Op::copy_async, {to.base, from.base}, 0, done | n << 32);
        continue;
      }
      const int unit = n == 2 ? 2 : 4;
      for (int64_t b = done; b < done + n; b += unit) {
        const auto v = b_.load_units(unit, Kind::u32, 1, {from.base, b});
        b_.store_units(unit, v, {to.base, b});
      }
    }
  }
  // ---- per pixel --------------------------------------------------------------------------------

  void sweep_phase(int phase) {
    const std::vector<bool> used = w_.used_in(phase);
    load_carried(used);
    streams_.clear();
    shared_streams_.clear();
    for (size_t i = 0; i < f_.in.size(); ++i) {
      if (used[i] && l_.resident[i])
        shared_streams_.emplace(i, begin(resident_[i]));
      else if (used[i])
        streams_.emplace(i, begin(in_[i]));
    }
    now_.clear();
    for (size_t q = 0; q < w_.pixel_reductions.size(); ++q)
      if (w_.phase[q] == phase) now_.push_back(q);
    sums_.clear();
    for (size_t k = 0; k < now_.size() * static_cast<size_t>(l_.vector); ++k)
      sums_.push_back(b_.var(b_.f32(0.0f)));
    const bool writes = phase == w_.last && !w_.pixel_outputs.empty();
    written_.clear();
    for (const size_t k : w_.pixel_outputs)
      if (writes) written_.push_back(begin(out_[k]));
    if (now_.empty() && !writes) return;
    // a thread reads only what it copied itself
    if (phase == 0 && asynchronous()) b_.put(Op::copy_wait, {});
    sweep(l_.steps, [&](int n) { do_pixels(n, writes); });
  }

  // All loads come before the stores: an output may alias an input.
  void do_pixels(int n, bool writes) {
    const int first = step_;
    step_ += n;
    for (int s = first; s < step_; ++s)
      for (size_t i = 0; i < f_.in.size(); ++i) load_pixel(i, s);
    for (int s = first; s < step_; ++s) {
      for (size_t k = 0; k < now_.size(); ++k)
        for (int e = 0; e < l_.vector; ++e) {
          const F32 v = result(now_[k], s, e);
          const Float& total = sums_[k * static_cast<size_t>(l_.vector) + static_cast<size_t>(e)];
          total.set(sum(total.get(), v));
        }
      for (size_t o = 0; writes && o < w_.pixel_outputs.size(); ++o)
        store(w_.pixel_reductions.size() + o, s, f_.out[w_.pixel_outputs[o]], written_[o]);
    }
  }
  void load_pixel(size_t i, int step) {
    if (const auto it = streams_.find(i); it != streams_.end()) {
      loaded_[{i, step}] = b_.load(f_.in[i].dtype, l_.vector, Address{it->second.at.get()});
      advance(it->second);
    } else if (const auto at = shared_streams_.find(i); at != shared_streams_.end()) {
      loaded_[{i, step}] = b_.load(f_.in[i].dtype, l_.vector, SharedAddress{at->second.at.get()});
      advance(at->second);
    }
  }
  void store(size_t k, int step, DType dtype, const Moving& to) {
    std::vector<F32> v;
    for (int e = 0; e < l_.vector; ++e) v.push_back(result(k, step, e));
    b_.store(dtype, v, {to.at.get()});
    advance(to);
  }
  F32 result(size_t k, int step, int element) {
    return element_.result(k, step, element, [this](size_t i, int s, int e) {
      return i < f_.in.size() ? b_.element(loaded_.at({i, s}), e)
                              : b_.element(carried_.at(i - f_.in.size()), e);
    });
  }

  void load_carried(const std::vector<bool>& used) {
    for (size_t k = 0; k < w_.carried.size(); ++k) {
      if (!used[f_.in.size() + k] || carried_.contains(k)) continue;
      if (!carried_lane_.base) carried_lane_ = at(area(m_.carried), lane_channel_);
      carried_[k] = b_.load(DType::f32, l_.vector, of_row(carried_lane_, k));
    }
  }
  // ---- reductions over pixels -------------------------------------------------------------------

  void exchange() {
    if (now_.empty()) return;
    const bool in_subgroups = l_.lanes() < l_.subgroup;
    if (in_subgroups) across_subgroup();
    const U32 row = in_subgroups ? b_.subgroup_index() : row_;
    const Pred who = in_subgroups ? b_.lane() < lanes_ : busy_thread_;
    const SharedAddress to = at(area(m_.scratch), mul_add(row, tile_, lane_channel_));
    const auto rows = static_cast<size_t>(l_.sums());
    b_.when(who, [&] {
      for (size_t k = 0; k < now_.size(); ++k) store_sums(of_row(to, k * rows), k);
    });
    b_.barrier();
    b_.when(channel_thread_, [&] {
      const SharedAddress from = at(area(m_.scratch), tid_);
      std::vector<SharedAddress> base;
      for (size_t k = 0; k < now_.size(); ++k) base.push_back(of_row(from, k * rows));
      const U32 stride = tile_ * static_cast<uint32_t>(float_bytes);
      const std::vector<F32> total = add_up(base, b_.number(l_.sums()), stride);
      for (size_t k = 0; k < now_.size(); ++k) reduced_[w_.pixel_reductions[now_[k]]].set(total[k]);
    });
    if (l_.cluster > 1) across_blocks();
  }

  // Subgroup reduction: the first lanes() threads get the sums of their channels.
  void across_subgroup() {
    const U32 lane = b_.lane();
    for (auto offset = static_cast<int>(l_.lanes()); offset < l_.subgroup; offset *= 2) {
      const Pred there = lane < static_cast<uint32_t>(l_.subgroup - offset);
      for (const Float& total : sums_) {
        const F32 other = b_.shuffle_down(total.get(), offset);
        b_.when(there, [&] { total.set(sum(total.get(), other)); });
      }
    }
  }
  void store_sums(const SharedAddress& to, size_t k) {
    const auto n = static_cast<size_t>(l_.vector);
    std::vector<F32> v;
    for (size_t e = 0; e < n; ++e) v.push_back(sums_[k * n + e].get());
    b_.store(v, to);
  }

  // The thread blocks of a cluster exchange their sums through DSMEM, counted by an mbarrier of the
  // receiver; all of them add in the same order.
  void set_up_cluster() {
    if (l_.cluster == 1) return;
    const Pred first = tid_ == 0u;
    const SharedAddress barriers = area(m_.barriers);
    for (int p = 0; p <= w_.last; ++p) {
      const auto n = std::count(w_.phase.begin(), w_.phase.end(), p);
      if (n == 0) continue;
      const U32 bytes = b_.number(n * l_.cluster * l_.tile * float_bytes);
      const U32 here = b_.move(barriers, b_.u32(static_cast<uint32_t>(8 * p))).base;
      b_.when(first, [&] { b_.put(Op::transaction_init, {here, bytes}); });
      barrier_.push_back(here);
    }
    b_.put(Op::transaction_fence, {});
    b_.put(Op::cluster_arrive, {});
  }

  void across_blocks() {
    if (!exchanged_) b_.put(Op::cluster_wait, {});
    const U32 barrier = barrier_[exchanged_++];
    b_.when(channel_thread_, [&] {
      const U32 row = tile_ * static_cast<uint32_t>(float_bytes);  // bytes of a thread block's sums
      const SharedAddress base = at(area(m_.sums), tid_);
      std::vector<SharedAddress> from;
      for (const size_t q : now_) from.push_back(of_row(base, q * static_cast<size_t>(l_.cluster)));
      for (int b = 0; b < l_.cluster; ++b) {
        const U32 block = b_.u32(static_cast<uint32_t>(b));
        const U32 signal = remote(barrier, block);
        for (size_t k = 0; k < now_.size(); ++k) {
          const U32 to = remote(b_.move(from[k], rank_ * row).base, block);
          b_.put(Op::remote_store, {to, reduced_[w_.pixel_reductions[now_[k]]].get(), signal});
        }
      }
      b_.loop([&] {
        const Pred done(b_.make(Op::transaction_done, Kind::pred, {barrier}));
        b_.break_unless(invert(done));
      });
      for (size_t k = 0; k < now_.size(); ++k) add_blocks(from[k], w_.pixel_reductions[now_[k]]);
    });
  }
  U32 remote(U32 address, U32 block) {
    return U32(b_.make(Op::remote_address, Kind::u32, {address, block}));
  }
  void add_blocks(const SharedAddress& from, size_t reduction) {
    std::vector<F32> v;
    for (int b = 0; b < l_.cluster; ++b)
      v.push_back(b_.element(b_.load(DType::f32, 1, of_row(from, static_cast<size_t>(b))), 0));
    F32 total = v[0];
    for (size_t b = 1; b < v.size(); ++b) total = sum(total, v[b]);
    reduced_[reduction].set(total);
  }

  // ---- per channel ------------------------------------------------------------------------------

  // One thread per channel. Values stay in the region that they are written in: every region has a
  // writer of its own.
  ExprWriter channel_writer() {
    return ExprWriter(b_, w_.channel,
                      std::vector<InputRate>(static_cast<size_t>(w_.channel.inputs()), {false, 0}),
                      std::vector<bool>(w_.channel.results().size()));
  }
  F32 channel_result(ExprWriter& writer, size_t k) {
    return writer.result(k, 0, 0, [this](size_t i, int, int) {
      return i < f_.in.size() ? b_.element(coefficient_.at(i), 0)
                              : reduced_[i - f_.in.size()].get();
    });
  }
  void load_coefficients() {
    for (const size_t i : used_)
      if (!f_.in[i].streams) coefficient_[i] = b_.words_var(f_.in[i].dtype, 1);
    b_.when(channel_thread_, [&] {
      for (const auto& [i, v] : coefficient_)
        b_.set(v, b_.load(f_.in[i].dtype, 1, Address{in_[i].base}));
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
    b_.when(channel_thread_, [&] {
      ExprWriter writer = channel_writer();
      const SharedAddress base = at(area(m_.carried), tid_);
      for (size_t k = 0; k < w_.carried.size(); ++k) {
        if (w_.carried[k] != phase + 1) continue;
        const F32 v[] = {channel_result(writer, w_.group_reductions.size() + k)};
        b_.store(v, of_row(base, k));
      }
    });
    b_.barrier();
  }

  // Whether the operand of a group reduction depends on one of these.
  bool waits_for(size_t g, const std::vector<size_t>& others) const {
    const std::vector<bool> used = inputs_of(w_.channel, g, g + 1);
    return std::any_of(others.begin(), others.end(),
                       [&](size_t o) { return used[f_.in.size() + w_.group_reductions[o]]; });
  }

  void across_groups(const std::vector<size_t>& which) {
    const SharedAddress terms = area(m_.terms);
    b_.when(channel_thread_, [&] {
      ExprWriter writer = channel_writer();
      const SharedAddress to = at(terms, tid_);
      for (const size_t g : which) {
        const F32 v[] = {channel_result(writer, g)};
        b_.store(v, of_row(to, g));
      }
    });
    b_.barrier();
    b_.when(channel_thread_, [&] {
      const U32 first = quotient(b_, tid_, f_.group()) * group_;
      const SharedAddress from = at(terms, first);
      std::vector<SharedAddress> base;
      for (const size_t g : which) base.push_back(of_row(from, g));
      const std::vector<F32> total =
          add_up(base, group_, b_.u32(static_cast<uint32_t>(float_bytes)));
      for (size_t k = 0; k < which.size(); ++k)
        reduced_[w_.group_reductions[which[k]]].set(total[k]);
    });
  }

  void write_channels() {
    if (w_.channel_outputs.empty()) return;
    const Pred writes = rank_ ? both(rank_ == 0u, channel_thread_) : channel_thread_;
    b_.when(writes, [&] {
      ExprWriter writer = channel_writer();
      for (size_t k = 0; k < w_.channel_outputs.size(); ++k) {
        const size_t o = w_.channel_outputs[k];
        const F32 v[] = {
            channel_result(writer, w_.group_reductions.size() + w_.carried.size() + k)};
        b_.store(f_.out[o], v, {out_[o].base});
      }
    });
  }

  // A thread block has received everything when it ends, so its shared memory may be released.
  void finish() {
    loop_.kernel = b_.finish(l_.threads, l_.ctas_per_sm);
    loop_.parameters = std::move(b_.parameters());
    loop_.blocks = f_.images * (f_.channels / l_.tile) * l_.cluster;
    loop_.shared = m_.end;
    loop_.threads = l_.threads;
    loop_.cluster = l_.cluster;
  }

  ExprWriter element_;
  SharedAddress carried_lane_;
  std::vector<U32> barrier_;    // by phase with reductions
  size_t exchanged_ = 0;        // phases whose reductions blocks have exchanged
  std::vector<Float> reduced_;  // of a thread's channel
  std::map<size_t, WordsVar> coefficient_;
  std::map<size_t, Words> carried_;
  // of a phase
  std::vector<size_t> now_;
  std::vector<Float> sums_;
  std::map<size_t, Moving> streams_;
  std::map<size_t, SharedMoving> shared_streams_;
  std::vector<Moving> written_;
  int step_ = 0;
  std::map<std::pair<size_t, int>, Words> loaded_;
};

}  // namespace

LoopKernel write_pixels(const PixelForm& form, const PixelLayout& layout, const Target& target) {
  return PixelWriter(form, layout, target).write();
}

}  // namespace ebb::codegen
