// LoKr (Edalati et al. 2022, arXiv:2212.10650; LyCORIS): the Kronecker product of w1 and w2, each
// of which may be the product of two low-rank matrices, or w2 a filter in Tucker form. Where both
// are whole, alpha does not count; kohya's files have 1e10 there.
#include <algorithm>
#include <cmath>

#include "adapters/kind.h"
#include "base/error.h"
#include "nn/ops.h"

namespace ebb::adapters::kinds {
namespace {

// Sizes of both factors: w1 [o1,i1], w2 [o2,i2,taps].
struct Sizes {
  int64_t o1 = 0, i1 = 0;
  WeightSize w2;
};

Sizes sizes_of(const Shape& w1, const Shape& w1_a, const Shape& w1_b, const WeightSize& w) {
  Sizes s;
  s.o1 = w1.rank() == 2 ? w1[0] : w1_a[0];
  s.i1 = w1.rank() == 2 ? w1[1] : w1_b[1];
  s.w2 = {w.out / std::max<int64_t>(1, s.o1), w.in / std::max<int64_t>(1, s.i1), w.taps};
  return s;
}

void expect_matrix(const Module& m, std::string_view role, const WeightSize& w) {
  if (m.shape(role).rank() != 2) m.fail_shape(role, "two sizes", w);
}

int64_t rank(const Module& m, const WeightSize& w) {
  int64_t r = 0;
  const bool whole1 = m.has("w1"), whole2 = m.has("w2");
  if (whole1) expect_matrix(m, "w1", w);
  if (!whole1) {
    expect_matrix(m, "w1_a", w);
    expect_matrix(m, "w1_b", w);
    r = m.size("w1_b", 0);
    m.expect("w1_a", m.size("w1_a", 0), r, w);
  }
  const Sizes s = sizes_of(whole1 ? m.shape("w1") : Shape{}, whole1 ? Shape{} : m.shape("w1_a"),
                           whole1 ? Shape{} : m.shape("w1_b"), w);
  const std::string_view first = whole1 ? "w1" : "w1_a";
  if (s.o1 <= 0 || s.i1 <= 0 || w.out % s.o1 != 0 || w.in % s.i1 != 0)
    m.fail_shape(first, str("rows and columns that divide ", w.out, " and ", w.in), w);
  if (whole2) {
    m.expect("w2", s.w2.out, s.w2.in * w.taps, w);
    return r;
  }
  r = m.size("w2_b", 0);
  if (m.has("t2")) {
    const int64_t outer = m.size("t2", 0);
    m.expect("t2", outer, r * w.taps, w);
    m.expect("w2_a", outer, s.w2.out, w);
    m.expect("w2_b", r, s.w2.in, w);
  } else {
    m.expect("w2_a", s.w2.out, r, w);
    m.expect("w2_b", r, s.w2.in * w.taps, w);
  }
  return r;
}

// Row o of the result is o1 |o2| + o2, column i is i1 |i2| + i2.
Value delta(const DeltaInputs& in) {
  const auto shape = [&](std::string_view role) {
    return in.has(role) ? in.tensor(role).shape() : Shape{};
  };
  const Sizes s = sizes_of(shape("w1"), shape("w1_a"), shape("w1_b"), in.size);
  const Value w1 =
      in.has("w1") ? in.tensor("w1")
                   : product(in.tensor("w1_a"), in.tensor("w1_b"), s.o1, shape("w1_a")[1], s.i1);
  Value w2;
  if (in.has("w2"))
    w2 = in.tensor("w2");
  else if (in.has("t2"))
    w2 = tucker(transposed(in.tensor("w2_a"), shape("w2_a").numel() / s.w2.out, s.w2.out),
                in.tensor("t2"), in.tensor("w2_b"), s.w2);
  else
    w2 = product(in.tensor("w2_a"), in.tensor("w2_b"), s.w2.out, shape("w2_a").numel() / s.w2.out,
                 s.w2.in * s.w2.taps);
  return ops::reshape(w1 * in.scale, {s.o1, 1, s.i1, 1}) *
         ops::reshape(w2, {1, s.w2.out, 1, s.w2.in * s.w2.taps});
}

// The largest divisor whose square is at most n.
int64_t smaller_part(int64_t n, int64_t most) {
  int64_t out = 1;
  for (int64_t m = 2; m * m <= n && (most < 0 || m <= most); ++m)
    if (n % m == 0) out = m;
  return out;
}

// w1 whole, and w2 of two factors where that has fewer numbers; drawn as LyCORIS draws them.
std::vector<Factor> factors(const FactorSizes& sizes, const Shape& weight) {
  const int64_t o1 = smaller_part(weight[0], sizes.factor), o2 = weight[0] / o1;
  const int64_t i1 = smaller_part(weight[1], sizes.factor), i2 = weight[1] / i1;
  const int64_t r = sizes.rank, columns = i2 * (weight.numel() / (weight[0] * weight[1]));
  const auto bound = [](int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); };
  const Factor w1{"w1", {o1, i1}, "uniform", bound(i1)};
  if (2 * r >= std::max(o2, i2)) {
    std::vector<int64_t> whole = weight.sizes();
    whole[0] = o2, whole[1] = i2;
    return {w1, {"w2", Shape(whole)}};
  }
  return {w1, {"w2_a", {o2, r}, "uniform", bound(r)}, {"w2_b", {r, columns}}};
}

}  // namespace

const AdapterKind& lokr() {
  static const AdapterKind k{.name = "LoKr",
                             .help = "the Kronecker product of w1 and w2",
                             .roles = {{".lokr_w1", "w1", FileNames::kohya},
                                       {".lokr_w1_a", "w1_a"},
                                       {".lokr_w1_b", "w1_b"},
                                       {".lokr_w2", "w2", FileNames::kohya},
                                       {".lokr_w2_a", "w2_a", FileNames::kohya},
                                       {".lokr_w2_b", "w2_b", FileNames::kohya},
                                       {".lokr_t2", "t2"}},
                             .main = "",
                             .rank = rank,
                             .delta = delta,
                             .factors = factors,
                             .has_factor = true};
  return k;
}

}  // namespace ebb::adapters::kinds
