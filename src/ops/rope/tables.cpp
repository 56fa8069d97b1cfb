#include "ops/rope/tables.h"

#include <cmath>

#include "base/error.h"

namespace ebb::ops {
namespace {

constexpr size_t kMostAxes = 4;

int64_t checked_pairs(std::span<const RopeAxis> axes, size_t positions) {
  require(!axes.empty() && axes.size() <= kMostAxes, "rope_tables: takes 1 to ", kMostAxes,
          " axes (got ", axes.size(), ")");
  require(positions % axes.size() == 0, "rope_tables: each token has ", axes.size(),
          " coordinates (got ", positions, " in all)");
  int64_t pairs = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const RopeAxis& a = axes[i];
    require(a.width >= 0 && a.width % 2 == 0,
            "rope_tables: the width of an axis must be even (got ", a.width, " for axis ", i, ")");
    require(a.theta > 0 && a.scale > 0, "rope_tables: theta and scale must be positive (got ",
            a.theta, " and ", a.scale, " for axis ", i, ")");
    pairs += a.width / 2;
  }
  return pairs;
}

}  // namespace

RopeTables rope_tables(std::span<const RopeAxis> axes, std::span<const double> positions) {
  const int64_t pairs = checked_pairs(axes, positions.size());
  RopeTables t{{static_cast<int64_t>(positions.size() / axes.size()), pairs}, {}, {}};
  for (size_t at = 0; at < positions.size(); at += axes.size())
    for (size_t i = 0; i < axes.size(); ++i)
      for (int64_t pair = 0; pair < axes[i].width; pair += 2) {
        const double exponent = static_cast<double>(pair) / static_cast<double>(axes[i].width);
        const double angle = positions[at + i] * axes[i].scale * std::pow(axes[i].theta, -exponent);
        t.cos.push_back(static_cast<float>(std::cos(angle)));
        t.sin.push_back(static_cast<float>(std::sin(angle)));
      }
  return t;
}

std::vector<double> grid_positions(std::span<const int64_t> sizes, std::span<const double> first) {
  require(first.empty() || first.size() == sizes.size(),
          "grid_positions: needs one first coordinate "
          "per axis (got ",
          first.size(), " for ", sizes.size(), ")");
  int64_t cells = 1;
  for (const int64_t s : sizes) cells *= s;
  std::vector<double> positions(static_cast<size_t>(cells) * sizes.size());
  for (int64_t cell = 0; cell < cells; ++cell) {
    int64_t rest = cell;
    for (size_t i = sizes.size(); i-- > 0; rest /= sizes[i])
      positions[static_cast<size_t>(cell) * sizes.size() + i] =
          static_cast<double>(rest % sizes[i]) + (first.empty() ? 0 : first[i]);
  }
  return positions;
}

}  // namespace ebb::ops
