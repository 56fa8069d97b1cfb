// OFT (Qiu et al. 2023, arXiv:2306.07280) and BOFT (Liu et al. 2023, arXiv:2311.06243) as kohya and
// LyCORIS have them: rotations of blocks of rows. A block B gives R = (I + Q)(I - Q)^-1 with
// Q = B - B^T (Cayley), whose Frobenius norm over all blocks is limited to alpha times the rows of
// the weight where alpha > 0. OFT: R^T W of each block of rows. BOFT: R W, m times, of rows in the
// order of a butterfly, each time moving by the strength.
#include <Eigen/Dense>

#include "adapters/kind.h"
#include "base/error.h"
#include "nn/ops.h"

namespace ebb::adapters::kinds {
namespace {

bool butterfly(const Shape& blocks) { return blocks.rank() == 4; }

int64_t rank(const Module& m, const WeightSize& w) {
  const Shape& b = m.shape("blocks");
  const bool square = (b.rank() == 3 || b.rank() == 4) && b[-1] == b[-2] && b[-1] > 0;
  if (!square || b[-3] * b[-1] != w.out)
    m.fail_shape("blocks", str("square blocks of ", w.out, " rows together"), w);
  if (m.has("rescale")) m.expect_numel("rescale", w.out, w);
  if (!butterfly(b)) return 0;
  for (int64_t i = 0; i < b[0]; ++i)
    if (i > 30 || w.out % ((int64_t{1} << i) * std::max<int64_t>(b[-1] / 2, 1) * 2) != 0)
      m.fail_shape("blocks", str("stages that divide ", w.out, " rows"), w);
  return 0;
}

std::vector<std::string> computed_from(const Module&) { return {"blocks"}; }

// R - I of every block: transposed for OFT.
AdapterKind::Tensors computed(const Module& m, const AdapterKind::Tensors& t, const WeightSize& w) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Tensor& blocks = t.at("blocks");
  const int64_t n = blocks.shape()[-1], count = blocks.numel() / (n * n);
  const auto block = [&](const auto values, int64_t k) {
    return values.subspan(static_cast<size_t>(k * n * n), static_cast<size_t>(n * n));
  };
  std::vector<Matrix> q;
  double squares = 0;
  for (int64_t k = 0; k < count; ++k) {
    const auto values = block(blocks.span<float>(), k);
    Matrix b(n, n);
    for (int64_t i = 0; i < n * n; ++i) b(i / n, i % n) = double{values[static_cast<size_t>(i)]};
    q.emplace_back(b - b.transpose());
    squares += q.back().squaredNorm();
  }
  const double limit = m.alpha.value_or(0) * static_cast<double>(w.out), norm = std::sqrt(squares);
  const double factor = limit > 0 && norm > limit ? limit / norm : 1;
  Tensor out(DType::f32, blocks.shape());
  const Matrix one = Matrix::Identity(n, n);
  for (int64_t k = 0; k < count; ++k) {
    const Matrix s = q[static_cast<size_t>(k)] * factor;
    // (I + Q) and (I - Q)^-1 commute
    Matrix r = (one - s).partialPivLu().solve(one + s) - one;
    if (!butterfly(blocks.shape())) r.transposeInPlace();
    const auto to = block(out.span<float>(), k);
    for (int64_t i = 0; i < n * n; ++i)
      to[static_cast<size_t>(i)] = static_cast<float>(r(i / n, i % n));
  }
  return {{"blocks", out}};
}

Value delta(const DeltaInputs& in) {
  const WeightSize& w = in.size;
  const Value r = in.tensor("blocks");
  const Shape s = r.shape();
  const int64_t n = s[-1], count = s[-3], width = w.in * w.taps;
  const Value weight = ops::reshape(in.weight, {w.out, width});
  Value x = weight;
  if (!butterfly(s)) {
    const Value turned = ops::matmul(r, ops::reshape(x, {count, n, width}));
    const Value moved = ops::reshape(turned, {w.out, width});
    if (!in.has("rescale")) return moved * in.scale;
    const Value rescale = ops::reshape(in.tensor("rescale"), {w.out, 1});
    return (rescale * (weight + moved) - weight) * in.scale;
  }
  for (int64_t stage = 0; stage < s[0]; ++stage) {
    const int64_t k = (int64_t{1} << stage) * (n / 2), groups = w.out / (2 * k);
    x = ops::permute(ops::reshape(x, {groups, 2, k, width}), {0, 2, 1, 3});
    x = ops::reshape(x, {count, n, width});
    const Value here = ops::reshape(ops::slice(r, 0, stage, stage + 1), {count, n, n});
    x = x + ops::matmul(here, x) * in.scale;
    x = ops::permute(ops::reshape(x, {groups, k, 2, width}), {0, 2, 1, 3});
    x = ops::reshape(x, {w.out, width});
  }
  if (in.has("rescale")) x = ops::reshape(in.tensor("rescale"), {w.out, 1}) * x;
  return x - weight;
}

}  // namespace

const AdapterKind& oft() {
  static const AdapterKind k{.name = "OFT",
                             .help = "rotations of blocks of rows",
                             .roles = {{".oft_blocks", "blocks"}, {".rescale", "rescale"}},
                             .main = "blocks",
                             .reads_weight = true,
                             .rank = rank,
                             .computed = computed,
                             .computed_from = computed_from,
                             .delta = delta};
  return k;
}

}  // namespace ebb::adapters::kinds
