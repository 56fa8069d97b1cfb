#include "train/frechet.h"

#include <Eigen/Dense>

#include "base/error.h"

namespace ebb::train {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

struct Gaussian {
  VectorXd mean;
  MatrixXd covariance;  // the lower triangle
};

// Of the rows, from some of them at a time: a copy of all in double would be twice their size.
Gaussian gaussian(const Tensor& features) {
  const int64_t n = features.shape()[0], d = features.shape()[1];
  using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Rows> x(features.span<float>().data(), n, d);
  Gaussian g{VectorXd::Zero(d), MatrixXd::Zero(d, d)};
  constexpr int64_t some = 512;
  for (int64_t at = 0; at < n; at += some)
    g.mean += x.middleRows(at, std::min(some, n - at)).cast<double>().colwise().sum();
  g.mean /= static_cast<double>(n);
  for (int64_t at = 0; at < n; at += some) {
    const MatrixXd part =
        x.middleRows(at, std::min(some, n - at)).cast<double>().rowwise() - g.mean.transpose();
    g.covariance.selfadjointView<Eigen::Lower>().rankUpdate(part.transpose(),
                                                            1 / static_cast<double>(n - 1));
  }
  return g;
}

// tr (A B)^1/2 of symmetric matrices (lower triangles) without negative eigenvalues. With A = F F^T
// the eigenvalues of A B are those of F^T B F, which is symmetric; F is of a Cholesky factorisation
// with pivots, since few images give matrices without full rank.
double trace_of_root(const MatrixXd& a, const MatrixXd& b) {
  const Eigen::LDLT<MatrixXd> ldlt(a);
  const MatrixXd factor =
      ldlt.transpositionsP().transpose() *
      (MatrixXd(ldlt.matrixL()) * ldlt.vectorD().cwiseMax(0).cwiseSqrt().asDiagonal());
  const MatrixXd middle = factor.transpose() * (b.selfadjointView<Eigen::Lower>() * factor).eval();
  const Eigen::SelfAdjointEigenSolver<MatrixXd> e(middle, Eigen::EigenvaluesOnly);
  return e.eigenvalues().cwiseMax(0).cwiseSqrt().sum();
}

}  // namespace

double frechet_distance(const Tensor& a, const Tensor& b) {
  require(a.shape().rank() == 2 && b.shape().rank() == 2 && a.shape()[1] == b.shape()[1],
          "frechet: both sets must be [N,D] of the same features  ", a.type(), "  ", b.type());
  require(a.shape()[0] > 1 && b.shape()[0] > 1, "frechet: needs at least 2 images a side (",
          a.shape()[0], " and ", b.shape()[0], ")");
  const Gaussian x = gaussian(a), y = gaussian(b);
  return (x.mean - y.mean).squaredNorm() + x.covariance.trace() + y.covariance.trace() -
         2 * trace_of_root(x.covariance, y.covariance);
}

}  // namespace ebb::train
