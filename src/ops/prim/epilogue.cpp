#include "ops/prim/epilogue.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"

namespace ebb::ops {
namespace {

constexpr size_t operands = 2;

Shape row_for_each_image(const Shape& result) {
  Shape rows = result;
  for (int64_t d = 1; d + 1 < rows.rank(); ++d) rows[d] = 1;
  return rows;
}

}  // namespace

Epilogue epilogue_of(const Signature& s, const Shape& result) {
  Epilogue e;
  const int64_t columns = result[-1];
  for (size_t i = operands; i < s.in.size(); ++i) {
    const Type& t = s.in[i];
    require(is_float(t.dtype), s.op->name, ": bias and residual must be floats  input ", i, ": ", t,
            "  at ", s.at);
    if (t.shape.rank() == 1 && i == operands) {
      require(t.shape == Shape{columns}, s.op->name, ": bias must be floats [", columns,
              "]  bias: ", t, "  at ", s.at);
      e.bias = i;
      continue;
    }
    require(!e.residual, s.op->name, ": takes one residual (got ", s.in.size(), " inputs)  at ",
            s.at);
    const bool rows = t.shape == row_for_each_image(result);
    require(rows || t.shape == result, s.op->name, ": residual must be ", result, " or ",
            row_for_each_image(result), "  residual: ", t, "  at ", s.at);
    e.residual = i;
    e.rows = t.shape == result ? 1 : result.numel() / std::max<int64_t>(1, t.shape.numel());
  }
  return e;
}

Epilogue epilogue_of(const Signature& s) { return epilogue_of(s, s.out[0].shape); }

bool takes_residual(const Signature& s, const Type& residual) {
  const Shape& result = s.out[0].shape;
  return is_float(residual.dtype) && !epilogue_of(s).residual && result.numel() > 0 &&
         (residual.shape == result || residual.shape == row_for_each_image(result));
}

void add_epilogue(const Signature& s, std::span<const RefArray> in, RefArray& out) {
  const Epilogue e = epilogue_of(s, out.shape);
  const auto columns = static_cast<size_t>(out.shape[-1]), rows = static_cast<size_t>(e.rows);
  for (size_t i = 0; i < out.v.size(); ++i) {
    const size_t row = i / columns, column = i % columns;
    if (e.bias) out.v[i] += in[*e.bias].v[column];
    if (e.residual) out.v[i] += in[*e.residual].v[row / rows * columns + column];
  }
}

std::vector<Value> without_residual(Graph& g, const Signature& s, const Attrs& in_f32,
                                    std::span<const Value> in) {
  require(in.size() > operands, s.op->name, ": this device has no kernel for it  ", s.text(),
          "  at ", s.at);
  const size_t last = in.size() - 1;
  const Value y = g.add(*s.op, in_f32, in.first(last))[0];
  return {map(
      {y, in[last]}, [](auto v) { return v[0] + v[1]; }, std::string(name_of(s.out[0].dtype)))};
}

Value residual_gradient(Value residual, Value dy) {
  return cast(sum_to(dy, residual.shape()), residual.dtype());
}

}  // namespace ebb::ops
