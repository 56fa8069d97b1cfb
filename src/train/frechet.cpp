#include "train/frechet.h"

#include <Eigen/Dense>

#include "base/error.h"

namespace ebb::train {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

struct Gaussian {
  VectorXd mean;
  MatrixXd covariance;
};

Gaussian gaussian(int64_t count, const std::vector<double>& sum,
                  const std::vector<double>& products) {
  const auto d = static_cast<Eigen::Index>(sum.size());
  const double n = static_cast<double>(count);
  Gaussian g{VectorXd(d), MatrixXd(d, d)};
  for (Eigen::Index i = 0; i < d; ++i) g.mean[i] = sum[static_cast<size_t>(i)] / n;
  for (Eigen::Index i = 0; i < d; ++i)
    for (Eigen::Index j = i; j < d; ++j) {
      const double p = products[static_cast<size_t>(i * d + j)];
      g.covariance(i, j) = g.covariance(j, i) = (p - n * g.mean[i] * g.mean[j]) / (n - 1);
    }
  return g;
}

// Of a symmetric matrix without negative eigenvalues but for rounding, which counts as 0.
MatrixXd square_root(const MatrixXd& m) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> e(m);
  const VectorXd roots = e.eigenvalues().cwiseMax(0).cwiseSqrt();
  return e.eigenvectors() * roots.asDiagonal() * e.eigenvectors().transpose();
}

}  // namespace

void FeatureStatistics::add(const Tensor& features) {
  require(features.shape().rank() == 2, "frechet: features must be [N,D]  ", features.type());
  const auto d = static_cast<size_t>(features.shape()[1]);
  if (sum_.empty()) {
    sum_.resize(d);
    products_.resize(d * d);
  }
  require(sum_.size() == d, "frechet: features change their width (", sum_.size(), " to ", d, ")");
  const auto x = features.span<float>();
  for (size_t at = 0; at < x.size(); at += d) {
    for (size_t i = 0; i < d; ++i) {
      const double v = static_cast<double>(x[at + i]);
      sum_[i] += v;
      for (size_t j = i; j < d; ++j) products_[i * d + j] += v * static_cast<double>(x[at + j]);
    }
  }
  count_ += features.shape()[0];
}

double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b) {
  require(a.width() == b.width() && a.width() > 0, "frechet: both sets need the same features (",
          a.width(), " and ", b.width(), ")");
  require(a.count() > 1 && b.count() > 1, "frechet: needs at least 2 images a side (", a.count(),
          " and ", b.count(), ")");
  const Gaussian x = gaussian(a.count_, a.sum_, a.products_);
  const Gaussian y = gaussian(b.count_, b.sum_, b.products_);
  const MatrixXd root = square_root(x.covariance);
  const MatrixXd middle = root * y.covariance * root;
  const Eigen::SelfAdjointEigenSolver<MatrixXd> e((middle + middle.transpose()) / 2,
                                                  Eigen::EigenvaluesOnly);
  const double cross = e.eigenvalues().cwiseMax(0).cwiseSqrt().sum();
  return (x.mean - y.mean).squaredNorm() + x.covariance.trace() + y.covariance.trace() - 2 * cross;
}

}  // namespace ebb::train
