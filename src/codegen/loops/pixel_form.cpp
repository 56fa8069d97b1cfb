#include "codegen/loops/pixel_form.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "ir/expr_inputs.h"

namespace ebb::codegen {
namespace {

Scalar made(const Expr::Instruction& c, const std::vector<Scalar>& x) {
  return x.empty() ? Scalar(c.value) : scalar_of(c.op, x);
}

// By instruction: whether it changes from pixel to pixel.
std::vector<bool> varying(const PixelForm& f) {
  std::vector<bool> v;
  for (const Expr::Instruction& c : f.expr.code()) {
    bool any = false;
    for (const int32_t a : arguments_of(c)) any = any || v[static_cast<size_t>(a)];
    const auto k = static_cast<size_t>(c.value);
    v.push_back(c.op == ScalarOp::input ? k < f.in.size() && f.in[k].streams : any);
  }
  return v;
}

// ---- variances in one sweep ------------------------------------------------------------------

// Reductions over pixels of x and of (x - mean)^2, with the instructions that are x and mean.
struct Variance {
  size_t sum, squares;
  int32_t x, mean;
};

std::optional<Variance> variance_in(const PixelForm& f) {
  const std::vector<bool> varies = varying(f);
  const auto at = [&](int32_t i) { return f.expr.code()[static_cast<size_t>(i)]; };
  const auto is_pixels = [&](size_t t) { return f.reductions[t] == PixelReduction::pixels; };
  for (size_t t = 0; t < f.reductions.size(); ++t) {
    const Expr::Instruction square = at(f.expr.results()[t]);
    if (!is_pixels(t) || square.op != ScalarOp::mul || square.a != square.b) continue;
    const Expr::Instruction rest = at(square.a);
    if (rest.op != ScalarOp::sub || at(rest.a).op != ScalarOp::input ||
        !varies[static_cast<size_t>(rest.a)] || varies[static_cast<size_t>(rest.b)] ||
        at(rest.b).op == ScalarOp::input)
      continue;
    for (size_t u = 0; u < t; ++u)
      if (is_pixels(u) && f.expr.results()[u] == rest.a) return Variance{u, t, rest.a, rest.b};
  }
  return std::nullopt;
}

class OneSweep {
 public:
  OneSweep(const PixelForm& f, const Variance& v)
      : f_(f), v_(v), written_(f.expr.code().size()), first_(input(f.in.size())) {}

  PixelForm run() {
    PixelForm out = f_;
    const Expr::Instruction& x = f_.expr.code()[static_cast<size_t>(v_.x)];
    const auto source = static_cast<size_t>(x.value);
    out.in.push_back({.dtype = f_.in[source].dtype,
                      .image_stride = f_.pixels * f_.channels,
                      .channel_stride = 1,
                      .first_pixel_of = static_cast<int>(source)});
    std::vector<Scalar> results;
    for (size_t k = 0; k < f_.expr.results().size(); ++k) {
      const Scalar rest = value(v_.x) - first_;
      results.push_back(k == v_.squares ? rest * rest : value(f_.expr.results()[k]));
    }
    out.expr = Expr(f_.expr.inputs() + 1, results);
    return out;
  }

 private:
  static Scalar input(size_t k) { return Scalar::input(static_cast<int64_t>(k)); }
  Scalar reduction(size_t t) const { return input(f_.in.size() + 1 + t); }

  const Scalar& value(int32_t i) {
    std::optional<Scalar>& known = written_[static_cast<size_t>(i)];
    if (known) return *known;
    const Expr::Instruction& c = f_.expr.code()[static_cast<size_t>(i)];
    if (c.op == ScalarOp::input) {
      known = of_input(static_cast<size_t>(c.value));
    } else {
      std::vector<Scalar> x;
      for (const int32_t a : arguments_of(c)) x.push_back(value(a));
      known = made(c, x);
    }
    return *known;
  }
  // sum (x - mean)^2 = sum (x - first)^2 + (first - mean) (2 sum x - pixels (first + mean)),
  // which rounding may leave below 0 where x is constant. NaN stays NaN: max is its second operand
  // where they do not compare.
  Scalar of_input(size_t k) {
    if (k < f_.in.size()) return input(k);
    const size_t t = k - f_.in.size();
    if (t != v_.squares) return reduction(t);
    const Scalar mean = value(v_.mean);
    const Scalar of_both = (first_ + mean) * static_cast<double>(f_.pixels);
    return max(0.0, reduction(t) + (first_ - mean) * (2.0 * reduction(v_.sum) - of_both));
  }

  const PixelForm& f_;
  Variance v_;
  std::vector<std::optional<Scalar>> written_;
  Scalar first_;
};

// ---- partitioning ---------------------------------------------------------------------------

class Partitioner {
 public:
  explicit Partitioner(const PixelForm& f)
      : f_(f), code_(f.expr.code()), varies_(varying(f)), known_(code_.size(), -1) {}

  PixelWork run() {
    set_phases();
    for (size_t i = 0; i < code_.size(); ++i) write(static_cast<int32_t>(i));
    const std::vector<int32_t>& results = f_.expr.results();
    std::vector<Scalar> element, channel;
    for (const size_t t : work_.pixel_reductions) element.push_back(of_pixels(results[t]));
    for (const size_t k : work_.pixel_outputs)
      element.push_back(of_pixels(results[f_.reductions.size() + k]));
    for (const size_t t : work_.group_reductions) channel.push_back(of_channel(results[t]));
    for (const int32_t i : carried_) channel.push_back(of_channel(i));
    for (const size_t k : work_.channel_outputs)
      channel.push_back(of_channel(results[f_.reductions.size() + k]));
    for (const int32_t i : carried_) work_.carried.push_back(known_by(i));
    const auto inputs = static_cast<int64_t>(f_.in.size());
    work_.element = Expr(inputs + static_cast<int64_t>(carried_.size()), element);
    work_.channel = Expr(inputs + static_cast<int64_t>(f_.reductions.size()), channel);
    return work_;
  }

 private:
  const Expr::Instruction& at(int32_t i) const { return code_[static_cast<size_t>(i)]; }

  void set_phases() {
    const std::vector<int32_t>& results = f_.expr.results();
    for (size_t t = 0; t < f_.reductions.size(); ++t) {
      const bool pixels = f_.reductions[t] == PixelReduction::pixels;
      const int by = known_by(results[t]);
      work_.known.push_back(by + (pixels ? 1 : 0));
      (pixels ? work_.pixel_reductions : work_.group_reductions).push_back(t);
      if (!pixels) continue;
      work_.phase.push_back(by);
      work_.last = std::max(work_.last, by);
    }
    for (size_t k = 0; k < f_.out.size(); ++k) {
      (f_.per_channel[k] ? work_.channel_outputs : work_.pixel_outputs).push_back(k);
      if (!f_.per_channel[k])
        work_.last = std::max(work_.last, known_by(results[f_.reductions.size() + k]));
    }
  }

  // The first phase in which an instruction's value is known.
  int known_by(int32_t i) {
    int& known = known_[static_cast<size_t>(i)];
    if (known >= 0) return known;
    const Expr::Instruction& c = at(i);
    int first = 0;
    if (c.op == ScalarOp::input && static_cast<size_t>(c.value) >= f_.in.size()) {
      const size_t t = static_cast<size_t>(c.value) - f_.in.size();
      first = known_by(f_.expr.results()[t]) + (f_.reductions[t] == PixelReduction::pixels ? 1 : 0);
    }
    for (const int32_t a : arguments_of(c)) first = std::max(first, known_by(a));
    return known_[static_cast<size_t>(i)] = first;
  }

  // ---- the expressions

  // The instruction for a pixel, or for a channel if it does not change with the pixels.
  void write(int32_t i) {
    const Expr::Instruction& c = at(i);
    if (c.op == ScalarOp::input) {
      written_.push_back(Scalar::input(static_cast<int64_t>(c.value)));
      return;
    }
    std::vector<Scalar> x;
    for (const int32_t a : arguments_of(c))
      x.push_back(varies_[static_cast<size_t>(i)] ? of_pixels(a) : written_at(a));
    written_.push_back(made(c, x));
  }
  const Scalar& written_at(int32_t i) const { return written_[static_cast<size_t>(i)]; }
  Scalar of_channel(int32_t i) const {
    require(!varies_[static_cast<size_t>(i)],
            "pixels: a number for each channel changes from pixel to pixel");
    return written_at(i);
  }
  Scalar of_pixels(int32_t i) {
    if (varies_[static_cast<size_t>(i)] || written_at(i).is_constant()) return written_at(i);
    const auto [it, added] = carried_at_.try_emplace(i, carried_.size());
    if (added) carried_.push_back(i);
    return Scalar::input(static_cast<int64_t>(f_.in.size() + it->second));
  }

  const PixelForm& f_;
  const std::vector<Expr::Instruction>& code_;
  PixelWork work_;
  std::vector<bool> varies_;
  std::vector<int> known_;
  std::vector<Scalar> written_;   // by instruction
  std::vector<int32_t> carried_;  // instructions
  std::map<int32_t, size_t> carried_at_;
};

}  // namespace

PixelForm in_one_sweep(const PixelForm& form) {
  const std::optional<Variance> v = variance_in(form);
  return v ? OneSweep(form, *v).run() : form;
}

std::vector<bool> PixelWork::used_in(int p) const {
  std::vector<bool> used(static_cast<size_t>(element.inputs()));
  const auto add = [&](size_t result) {
    const std::vector<bool> more = inputs_of(element, result, result + 1);
    for (size_t i = 0; i < used.size(); ++i) used[i] = used[i] || more[i];
  };
  for (size_t k = 0; k < pixel_reductions.size(); ++k)
    if (phase[k] == p) add(k);
  for (size_t k = 0; p == last && k < pixel_outputs.size(); ++k) add(pixel_reductions.size() + k);
  return used;
}

PixelWork partition(const PixelForm& form) { return Partitioner(form).run(); }

}  // namespace ebb::codegen
