#include "train/frechet.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ebb::train {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Gaussian {
  explicit Gaussian(const Tensor& features);
  // Some rows in double, less the mean: a copy of all would be twice their size.
  MatrixXd centred(int64_t first, int64_t count) const {
    return rows.middleRows(first, count).cast<double>().rowwise() - mean.transpose();
  }

  Eigen::Map<const Rows> rows;
  VectorXd mean;
  MatrixXd covariance;  // the lower triangle
};

Gaussian::Gaussian(const Tensor& features)
    : rows(features.span<float>().data(), features.shape()[0], features.shape()[1]),
      mean(VectorXd::Zero(rows.cols())),
      covariance(MatrixXd::Zero(rows.cols(), rows.cols())) {
  constexpr int64_t some = 512;
  const int64_t n = rows.rows();
  for (int64_t at = 0; at < n; at += some)
    mean += rows.middleRows(at, std::min(some, n - at)).cast<double>().colwise().sum();
  mean /= static_cast<double>(n);
  for (int64_t at = 0; at < n; at += some)
    covariance.selfadjointView<Eigen::Lower>().rankUpdate(
        centred(at, std::min(some, n - at)).transpose(), 1 / static_cast<double>(n - 1));
}

// F of the covariance F F^T: the rows themselves if they are few, else by Cholesky, with pivots for
// features that depend on each other.
MatrixXd factor(const Gaussian& g) {
  const int64_t n = g.rows.rows();
  if (n < g.rows.cols()) return g.centred(0, n).transpose() / std::sqrt(static_cast<double>(n - 1));
  const Eigen::LDLT<MatrixXd> ldlt(g.covariance);
  return ldlt.transpositionsP().transpose() *
         (MatrixXd(ldlt.matrixL()) * ldlt.vectorD().cwiseMax(0).cwiseSqrt().asDiagonal());
}

// tr (A B)^1/2 of covariances: with A = F F^T the eigenvalues of A B, but for zeros, are those of
// F^T B F, which is symmetric.
double trace_of_root(const Gaussian& a, const Gaussian& b) {
  if (a.rows.rows() > b.rows.rows()) return trace_of_root(b, a);
  const MatrixXd f = factor(a);
  const MatrixXd middle = f.transpose() * (b.covariance.selfadjointView<Eigen::Lower>() * f).eval();
  const Eigen::SelfAdjointEigenSolver<MatrixXd> e(middle, Eigen::EigenvaluesOnly);
  return e.eigenvalues().cwiseMax(0).cwiseSqrt().sum();
}

}  // namespace

double frechet_distance(const Tensor& a, const Tensor& b) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.shape()[1] == b.shape()[1],
          "frechet: both sets must be [N,D] of the same features  ", a.type(), "  ", b.type());
  require(a.shape()[0] > 1 && b.shape()[0] > 1, "frechet: needs at least 2 images a side (",
          a.shape()[0], " and ", b.shape()[0], ")");
  const Gaussian x(a), y(b);
  return (x.mean - y.mean).squaredNorm() + x.covariance.trace() + y.covariance.trace() -
         2 * trace_of_root(x, y);
}

}  // namespace ebb::train
