// Adafactor (Shazeer and Stern 2018, arXiv:1804.04235, algorithms 4 and 5), without momentum: of a
// matrix it keeps the means of the squared gradient's rows and columns in place of the second
// moment, a vector keeps all of it.
//
//   g' = clip g            q = g'^2 + eps1             b = 1 - t^decay_rate
//   R' = b R + (1 - b) mean over columns q             C' = b C + (1 - b) mean over rows q
//   u = g' / sqrt(R' C' / mean R')                     of a vector g' / sqrt(V')
//   p' = p (1 - rate weight_decay) - rate u / max(1, rms(u) / clip_threshold)
//
// rate = lr, with relative_step lr min(1e-2, 1 / sqrt t), with warmup_init of 1e-6 t in place of
// 1e-2, and with scale_parameter times max(eps2, rms(p)). Filters are matrices of a row for each
// channel that they make.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "ops/adamw/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "train/optimizer.h"

namespace ebb::train::optimizers {
namespace {

struct Options {
  double clip_threshold = 1, decay_rate = -0.8, eps1 = 1e-30, eps2 = 1e-3;
  bool scale_parameter = false, relative_step = false, warmup_init = false;
  void fields(auto&& f) {
    f("clip_threshold", clip_threshold);
    f("decay_rate", decay_rate);
    f("eps1", eps1);
    f("eps2", eps2);
    f("scale_parameter", scale_parameter);
    f("relative_step", relative_step);
    f("warmup_init", warmup_init);
  }
};

void check_options(const OptimizerSettings& s) {
  const auto o = options_of<Options>(s);
  check_above_zero("clip_threshold", o.clip_threshold);
  check_above_zero("eps1", o.eps1);
  check_above_zero("eps2", o.eps2);
  require(o.decay_rate < 0 && std::isfinite(o.decay_rate),
          "optimizer_options: decay_rate must be below 0 (", o.decay_rate, ")");
  require(o.relative_step || !o.warmup_init,
          "optimizer_options: warmup_init is of relative_step=true");
}

double decay(const OptimizerSettings& s, double t) {
  return 1 - std::pow(t, options_of<Options>(s).decay_rate);
}

double relative_rate(const OptimizerSettings& s, double t) {
  const auto o = options_of<Options>(s);
  return o.relative_step ? std::min(o.warmup_init ? 1e-6 * t : 1e-2, 1 / std::sqrt(t)) : 1;
}

std::optional<double> usual_rate(const OptimizerSettings& s) {
  if (options_of<Options>(s).relative_step) return 1;
  return {};
}

struct Matrix {
  int64_t rows, columns;
  explicit Matrix(const Shape& s)
      : rows(s.rank() > 1 ? s[0] : 1), columns(rows > 0 ? s.numel() / rows : 0) {}
  bool is_factored() const { return rows > 1 && columns > 1; }
};

std::optional<Type> whole(const Type& weight) {
  if (Matrix(weight.shape).is_factored()) return {};
  return weight;
}
std::optional<Type> of_rows(const Type& weight) {
  const Matrix m(weight.shape);
  if (!m.is_factored()) return {};
  return Type{DType::f32, {m.rows, 1}};
}
std::optional<Type> of_columns(const Type& weight) {
  const Matrix m(weight.shape);
  if (!m.is_factored()) return {};
  return Type{DType::f32, {1, m.columns}};
}

using Function = std::function<Scalar(std::span<const Scalar>)>;

Value mean_of(std::initializer_list<Value> in, std::vector<int64_t> dims, const Shape& shape,
              const Function& f) {
  double count = 1;
  for (const int64_t d : dims) count *= static_cast<double>(shape[d]);
  return ops::map({ops::sum_of(in, std::move(dims), f)}, [&](auto x) { return x[0] / count; });
}

// f32[]
Value root_mean_square(Value v) {
  std::vector<int64_t> all(static_cast<size_t>(v.shape().rank()));
  std::iota(all.begin(), all.end(), 0);
  const Value mean = mean_of({v}, all, v.shape(), [](auto x) { return x[0] * x[0]; });
  return ops::map({ops::reshape(mean, {})}, [](auto x) { return sqrt(x[0]); });
}

// Of what is kept, where it is averaged with `now`; as it was in a step that is skipped.
Value averaged(Value kept, Value now, const UpdateInputs& in) {
  return ops::map({kept, now, in.numbers[0], in.clip}, [](auto x) {
    return select(less(0.0, x[3]), x[2] * x[0] + (1.0 - x[2]) * x[1], x[0]);
  });
}

// What the update of a weight needs: the gradient over the root of its second moment, in `shape`.
struct Direction {
  Value u;
  std::vector<Value> states;
};

Direction direction_of(const UpdateInputs& in, double eps) {
  const Function square = [eps](auto x) {
    const Scalar g = x[0] * x[1];
    return g * g + eps;
  };
  const Matrix m(in.p.shape());
  if (!m.is_factored()) {
    const Value v = averaged(in.states[0], ops::map({in.g, in.clip}, square), in);
    return {ops::map({in.g, in.clip, v}, [](auto x) { return x[0] * x[1] * rsqrt(x[2]); }), {v}};
  }
  const Shape shape{m.rows, m.columns};
  const Value g = ops::reshape(in.g, shape);
  const Value rows = averaged(in.states[0], mean_of({g, in.clip}, {1}, shape, square), in);
  const Value columns = averaged(in.states[1], mean_of({g, in.clip}, {0}, shape, square), in);
  const Value mean = mean_of({rows}, {0}, rows.shape(), [](auto x) { return x[0]; });
  const Value u = ops::map({g, in.clip, rows, mean, columns},
                           [](auto x) { return x[0] * x[1] * rsqrt(x[2] / x[3]) * rsqrt(x[4]); });
  return {ops::reshape(u, in.p.shape()), {rows, columns}};
}

Updated update(const UpdateInputs& in) {
  const auto o = options_of<Options>(in.settings);
  const Direction d = direction_of(in, o.eps1);
  Value rate = ops::map({in.lr, in.numbers[1]}, [](auto x) { return x[0] * x[1]; });
  if (o.scale_parameter)
    rate =
        ops::map({rate, root_mean_square(in.p)}, [&](auto x) { return x[0] * max(o.eps2, x[1]); });
  const Value step = ops::map({rate, root_mean_square(d.u)},
                              [&](auto x) { return x[0] / max(1.0, x[1] / o.clip_threshold); });
  const Value p = ops::map({in.p, d.u, rate, step, in.clip}, [&](auto x) {
    const Scalar decayed = x[0] * (1.0 - x[2] * in.settings.weight_decay);
    return select(less(0.0, x[4]), decayed - x[3] * x[1], x[0]);
  });
  Updated out{p, d.states, {}};
  if (in.ema)
    out.ema = ops::map({in.ema, in.ema_decay, p, in.clip}, [](auto x) {
      return select(less(0.0, x[3]), ops::moved_average(x[0], x[1], x[2]), x[0]);
    });
  return out;
}

}  // namespace

const Optimizer& adafactor() {
  static const Optimizer o{.name = "adafactor",
                           .help = "means of rows and columns for AdamW's states, no momentum",
                           .reads = {},
                           .states = {{"v.", whole}, {"v_row.", of_rows}, {"v_col.", of_columns}},
                           .numbers = {{"decay", decay}, {"rate", relative_rate}},
                           .grain = 0,
                           .options = describe<Options>,
                           .check = check_options,
                           .rate = usual_rate,
                           .update = update};
  return o;
}

}  // namespace ebb::train::optimizers
