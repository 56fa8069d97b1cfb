#include "train/kernel_distance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/reduce/op.h"
#include "runtime/plan.h"

namespace ebb::train {
namespace {

// `count` different rows, drawn by `seed`.
Tensor some_rows(const Tensor& from, int64_t count, uint64_t seed) {
  const int64_t n = from.shape()[0], d = from.shape()[1];
  if (count == n) return from;
  std::vector<int64_t> row(static_cast<size_t>(n));
  std::iota(row.begin(), row.end(), 0);
  Tensor out(DType::f32, {count, d});
  for (int64_t i = 0; i < count; ++i) {
    seed = splitmix64(seed);
    const int64_t pick = i + static_cast<int64_t>(seed % static_cast<uint64_t>(n - i));
    std::swap(row[static_cast<size_t>(i)], row[static_cast<size_t>(pick)]);
    const int64_t from_row = row[static_cast<size_t>(i)];
    std::memcpy(out.rows(i, i + 1).raw(), from.rows(from_row, from_row + 1).raw(),
                static_cast<size_t>(d) * sizeof(float));
  }
  return out;
}

// The sums of (k(x, y) - 1) over the rows of y, for every row of x: [n,1]. The constant cancels in
// the estimate; without it f32 has more digits for the rest.
Value kernel_sums(Value x, Value y) {
  const double d = static_cast<double>(x.shape()[1]);
  return ops::sum_of({ops::matmul(x, y, {.trans_b = true})}, {1}, [d](auto s) {
    const Scalar v = s[0] * (1 / d);
    return v * (v * v + 3.0 * v + 3.0);
  });
}

double total(const Tensor& sums) {
  const auto v = sums.span<float>();
  return std::accumulate(v.begin(), v.end(), 0.0);
}

// The part of the kernel's sum that a row has with itself.
double diagonal(const Tensor& x) {
  const auto d = static_cast<size_t>(x.shape()[1]);
  const auto all = x.span<float>();
  double sum = 0;
  for (size_t at = 0; at < all.size(); at += d) {
    double v = 0;
    for (size_t i = 0; i < d; ++i) v += double{all[at + i]} * double{all[at + i]};
    v /= static_cast<double>(d);
    sum += v * (v * v + 3 * v + 3);
  }
  return sum;
}

}  // namespace

KernelDistance kernel_distance(const Tensor& a, const Tensor& b, const Context& context,
                               const KernelDistanceOptions& options,
                               const std::function<void()>& between) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.shape()[1] == b.shape()[1],
          "kernel distance: both sets must be [N,D] of the same features  ", a.type(), "  ",
          b.type());
  KernelDistance out{.subset_size = std::min({options.subset_size, a.shape()[0], b.shape()[0]})};
  const int64_t n = out.subset_size;
  require(n > 1 && options.subsets > 0, "kernel distance: needs at least 2 images a side (",
          a.shape()[0], " and ", b.shape()[0], ") and a subset (", options.subsets, " of ",
          options.subset_size, ")");
  out.subsets = a.shape()[0] == n && b.shape()[0] == n ? 1 : options.subsets;
  Graph g;
  const Value x = g.input("x", {DType::f32, {n, a.shape()[1]}});
  const Value y = g.input("y", x.type());
  g.output("xx", kernel_sums(x, x));
  g.output("yy", kernel_sums(y, y));
  g.output("xy", kernel_sums(x, y));
  Plan plan(g, context);
  const auto count = static_cast<double>(n);
  double sum = 0, squares = 0;
  for (int64_t s = 0; s < out.subsets; ++s) {
    if (between) between();
    const uint64_t seed = splitmix64(options.seed + static_cast<uint64_t>(s));
    const Tensor from_a = some_rows(a, n, seed), from_b = some_rows(b, n, ~seed);
    const NamedTensors sums = plan.run({{"x", from_a}, {"y", from_b}});
    const double same =
        total(sums.at("xx")) - diagonal(from_a) + total(sums.at("yy")) - diagonal(from_b);
    const double v = same / (count * (count - 1)) - 2 * total(sums.at("xy")) / (count * count);
    sum += v;
    squares += v * v;
  }
  const auto subsets = static_cast<double>(out.subsets);
  out.mean = sum / subsets;
  out.deviation = std::sqrt(std::max(0.0, squares / subsets - out.mean * out.mean));
  return out;
}

}  // namespace ebb::train
