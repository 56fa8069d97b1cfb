// Prodigy (Mishchenko and Defazio 2023, arXiv:2306.06101, algorithm 4): AdamW whose learning rate
// is d times lr, where d grows to an estimate of how far the weights are from where they belong.
//
//   g' = clip g
//
//   c  = d lr, with use_bias_correction times sqrt(1 - beta2^t) / (1 - beta1^t)
//
//   m' = beta1 m + d (1 - beta1) g'
//
//   v' = beta2 v + d^2 (1 - beta2) g'^2
//
//   s' = beta3 s + d/d0 c g', beta3 = sqrt beta2; with safeguard_warmup d for c
//
//   N' = beta3 N + d/d0 c <g', p0 - p>
//
//   h  = d_coef N' / |s'|_1, over all weights
//
//   d' = max(largest h so far, h), at most growth_rate d, where that is not 0
//
//   p' = p (1 - c weight_decay) - c m' / (sqrt v' + d' eps)
//
// p0 are the weights that the run began with. With decouple=false the decay is added to the
// gradient. Kept of a run: d/d0, the largest h/d0 and N. Weights with learning rates of their own
// count by them.
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ops/adamw/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "train/optimizer.h"

namespace ebb::train::optimizers {
namespace {

struct Options {
  double d0 = 1e-6, d_coef = 1, growth_rate = 0;  // growth_rate 0: no limit
  bool decouple = true, safeguard_warmup = false, use_bias_correction = false;
  void fields(auto&& f) {
    f("d0", d0);
    f("d_coef", d_coef);
    f("growth_rate", growth_rate);
    f("decouple", decouple);
    f("safeguard_warmup", safeguard_warmup);
    f("use_bias_correction", use_bias_correction);
  }
};

void check_options(const OptimizerSettings& s) {
  const auto o = options_of<Options>(s);
  require(o.d0 >= 1e-12 && o.d0 <= 1, "optimizer_options: d0 must be from 1e-12 to 1 (", o.d0, ")");
  check_above_zero("d_coef", o.d_coef);
  require(o.growth_rate == 0 || (o.growth_rate > 1 && std::isfinite(o.growth_rate)),
          "optimizer_options: growth_rate must be above 1, or 0 for no limit (", o.growth_rate,
          ")");
}

double correction(const OptimizerSettings& s, double t) {
  if (!options_of<Options>(s).use_bias_correction) return 1;
  return std::sqrt(one_minus(s.beta2, t)) / one_minus(s.beta1, t);
}

// The rate that is found, which lr multiplies: what is kept of it is a multiple of d0.
double rate_found(const OptimizerSettings& s, double ratio) {
  return ratio * options_of<Options>(s).d0;
}

enum State : size_t { m_, v_, s_, p0_ };
enum Run : size_t { ratio_, largest_, numerator_ };

// The gradient, as it goes into moments and sums.
Scalar gradient_of(const UpdateInputs& in, const Options& o, const Scalar& p, const Scalar& g,
                   const Scalar& clip) {
  return o.decouple ? clip * g : clip * g + in.settings.weight_decay * p;
}

// s', of s, the gradient, d/d0, lr and the correction.
Scalar next_sum(const OptimizerSettings& settings, const Options& o, const Scalar& s,
                const Scalar& g, const Scalar& ratio, const Scalar& factor) {
  const Scalar grown = ratio * ratio * o.d0;
  return std::sqrt(settings.beta2) * s + (o.safeguard_warmup ? grown : grown * factor) * g;
}

Value sum_of_all(const Shape& shape, std::initializer_list<Value> in,
                 const std::function<Scalar(std::span<const Scalar>)>& f) {
  std::vector<int64_t> all(static_cast<size_t>(shape.rank()));
  std::iota(all.begin(), all.end(), 0);
  return ops::reshape(ops::sum_of(in, all, f), {});
}

// lr <g', p0 - p> and |s'|_1.
std::vector<Value> of_weight(const UpdateInputs& in) {
  const auto o = options_of<Options>(in.settings);
  const Shape shape = in.p.shape();
  const Value product = sum_of_all(
      shape, {in.p, in.g, in.states[p0_], in.clip, in.lr},
      [&](auto x) { return gradient_of(in, o, x[0], x[1], x[3]) * (x[2] - x[0]) * x[4]; });
  const Value size =
      sum_of_all(shape, {in.p, in.g, in.states[s_], in.clip, in.lr, in.run[ratio_], in.numbers[0]},
                 [&](auto x) {
                   const Scalar g = gradient_of(in, o, x[0], x[1], x[3]);
                   return abs(next_sum(in.settings, o, x[2], g, x[5], x[4] * x[6]));
                 });
  return {product, size};
}

std::vector<Value> of_all(const SurveyInputs& in) {
  const auto o = options_of<Options>(in.settings);
  const Value args[] = {in.run[ratio_], in.run[largest_], in.run[numerator_],
                        in.sums[0],     in.sums[1],       in.numbers[0],
                        in.clip};
  const std::vector<Scalar> x = inputs_as_scalars(std::ssize(args));
  const Scalar &ratio = x[0], &largest = x[1], &numerator = x[2], &size = x[4];
  const Scalar next = std::sqrt(in.settings.beta2) * numerator + ratio * ratio * o.d0 * x[5] * x[3];
  const Scalar guess = o.d_coef / o.d0 * next / size;
  const Scalar highest = max(largest, guess);
  const Scalar begun = select(less(1.0, ratio), ratio, max(ratio, guess));  // d0 is no estimate
  const Scalar grown = o.growth_rate > 0 ? min(highest, o.growth_rate * begun) : highest;
  // without a gradient there is nothing to learn from
  const Scalar go = select(less(0.0, x[6]), less(0.0, size), 0.0);
  const Scalar results[] = {select(go, grown, ratio), select(go, highest, largest),
                            select(go, next, numerator)};
  return ops::pointwise(*in.lr.graph, {Expr(std::ssize(args), results), {}, DType::f32}, args);
}

Updated update(const UpdateInputs& in) {
  const auto o = options_of<Options>(in.settings);
  const OptimizerSettings& set = in.settings;
  std::vector<Value> args = {in.p,  in.g,    in.states[m_], in.states[v_],  in.states[s_],
                             in.lr, in.clip, in.numbers[0], in.run[ratio_], in.run_after[ratio_]};
  if (in.ema) args.insert(args.end(), {in.ema, in.ema_decay});
  const std::vector<Scalar> x = inputs_as_scalars(std::ssize(args));
  const Scalar &p = x[0], &m = x[2], &v = x[3], &s = x[4], &ratio = x[8];
  const Scalar go = less(0.0, x[6]), g = gradient_of(in, o, p, x[1], x[6]);
  const Scalar factor = x[5] * x[7], d = ratio * o.d0, rate = d * factor;
  const Scalar m1 = set.beta1 * m + (1 - set.beta1) * (d * g);
  const Scalar v1 = set.beta2 * v + (1 - set.beta2) * ((d * g) * (d * g));
  const Scalar s1 = next_sum(set, o, s, g, ratio, factor);
  const Scalar decayed = o.decouple ? p * (1.0 - rate * set.weight_decay) : p;
  // before the first gradient both moments are 0
  const Scalar p1 = decayed - rate * m1 / (sqrt(v1) + x[9] * o.d0 * set.eps);
  std::vector<Scalar> results = {select(go, p1, p), select(go, m1, m), select(go, v1, v),
                                 select(go, s1, s)};
  if (in.ema) results.push_back(select(go, ops::moved_average(x[10], x[11], p1), x[10]));
  const std::vector<Value> out =
      ops::pointwise(*in.p.graph, {Expr(std::ssize(args), results)}, args);
  return {out[0], {out[1], out[2], out[3], in.states[p0_]}, in.ema ? out[4] : Value{}};
}

}  // namespace

const Optimizer& prodigy() {
  static const Optimizer o{
      .name = "prodigy",
      .help = "AdamW that finds its learning rate, which --lr multiplies; twice the states",
      .reads = {"beta1", "beta2", "eps"},
      .beta2 = 0.999,
      .states = {{"m."}, {"v."}, {"s."}, {"p0.", nullptr, StateRule::Begin::weight}},
      .numbers = {{"correction", correction}},
      .options = describe<Options>,
      .fixed_options = {"d0"},
      .check = check_options,
      .rate = [](const OptimizerSettings&) { return std::optional<double>(1); },
      .survey = Survey{.kept = {{"prodigy.d", 1, "d", rate_found},
                                {"prodigy.d_max", 1},
                                {"prodigy.numerator", 0}},
                       .of_weight = of_weight,
                       .of_all = of_all},
      .update = update};
  return o;
}

}  // namespace ebb::train::optimizers
