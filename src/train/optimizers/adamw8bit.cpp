// AdamW with moments of 8 bits (Dettmers et al. 2021, arXiv:2110.02861): in blocks of 256 elements,
// each by a dynamic map (train/dynamic_code.h) of what it is of the block's largest. The update is
// AdamW's, of the moments before they are rounded. Small weights keep moments of f32.
#include "ops/prim/pad/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "train/dynamic_code.h"
#include "train/optimizer.h"

namespace ebb::train::optimizers {
namespace {

constexpr int64_t block = 256;
constexpr int64_t smallest = 4096;  // elements of a weight, as in the authors' library

int64_t blocks_of(int64_t elements) { return (elements + block - 1) / block; }

std::optional<Type> whole_moment(const Type& weight) {
  if (weight.shape.numel() >= smallest) return {};
  return weight;
}
std::optional<Type> codes(const Type& weight) {
  if (weight.shape.numel() < smallest) return {};
  return Type{DType::u8, {blocks_of(weight.shape.numel()), block}};
}
std::optional<Type> largest(const Type& weight) {
  if (weight.shape.numel() < smallest) return {};
  return Type{DType::f32, {blocks_of(weight.shape.numel()), 1}};
}

// A weight, or a part of one, as rows of `block` elements with zeros behind them.
struct Blocked {
  Shape shape;
  int64_t elements, rows;
  explicit Blocked(const Shape& of)
      : shape(of), elements(of.numel()), rows(blocks_of(of.numel())) {}
  Value of(Value v) const {
    const Value flat = ops::reshape(v, {elements});
    const Value padded = ops::pad(flat, {{0}, {rows * block - elements}});
    return ops::reshape(padded, {rows, block});
  }
  Value back(Value v) const {
    const Value flat = ops::reshape(v, {rows * block});
    return ops::reshape(ops::slice(flat, 0, 0, elements), shape);
  }
};

Value decoded_moment(Value codes, Value largest, DynamicMap map) {
  const int64_t rows = largest.shape().numel();
  return ops::map(
      {ops::reshape(codes, {rows, block}), ops::reshape(largest, {rows, 1})},
      [&](auto x) { return decoded(x[0], map) * x[1]; }, DType::f32);
}

// Codes and largest values of a moment behind the step; of a step that is skipped as they were.
void add_encoded(std::vector<Value>& to, Value moment, const UpdateInputs& in, DynamicMap map) {
  const Value codes = in.states[to.size()], largest = in.states[to.size() + 1];
  const int64_t rows = largest.shape().numel();
  const Value now = ops::amax(ops::map({moment}, [](auto x) { return abs(x[0]); }), {1});
  const auto code = [&](auto x) {
    const Scalar share = select(less(0.0, x[1]), x[0] / x[1], 0.0);
    return select(less(0.0, x[3]), encoded(share, map), x[2]);
  };
  const Value next =
      ops::map({moment, now, ops::reshape(codes, {rows, block}), in.clip}, code, DType::u8);
  to.push_back(ops::reshape(next, codes.shape()));
  const Value kept = ops::map({ops::reshape(now, largest.shape()), largest, in.clip},
                              [](auto x) { return select(less(0.0, x[2]), x[0], x[1]); });
  to.push_back(kept);
}

Updated update(const UpdateInputs& in) {
  const Optimizer& adamw = find_optimizer("adamw");
  if (in.states.size() == adamw.states.size()) return adamw.update(in);
  const Blocked blocked(in.p.shape());
  UpdateInputs rows = in;
  rows.p = blocked.of(in.p);
  rows.g = blocked.of(in.g);
  rows.states = {decoded_moment(in.states[0], in.states[1], DynamicMap::with_sign),
                 decoded_moment(in.states[2], in.states[3], DynamicMap::without_sign)};
  if (in.ema) rows.ema = blocked.of(in.ema);
  const Updated moved = adamw.update(rows);
  Updated out{blocked.back(moved.p), {}, {}};
  if (in.ema) out.ema = blocked.back(moved.ema);
  add_encoded(out.states, moved.states[0], in, DynamicMap::with_sign);
  add_encoded(out.states, moved.states[1], in, DynamicMap::without_sign);
  return out;
}

}  // namespace

const Optimizer& adamw8bit() {
  static const Optimizer o{.name = "adamw8bit",
                           .help = "AdamW with moments of 8 bits, a quarter of its states",
                           .reads = {"beta1", "beta2", "eps"},
                           .beta2 = 0.999,
                           .states = {{"m.", whole_moment},
                                      {"v.", whole_moment},
                                      {"m8.", codes},
                                      {"m8_max.", largest},
                                      {"v8.", codes},
                                      {"v8_max.", largest}},
                           .numbers = bias_corrections(),
                           .grain = block,
                           .update = update};
  return o;
}

}  // namespace ebb::train::optimizers
