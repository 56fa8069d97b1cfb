#include "train/dynamic_code.h"

#include <cmath>

namespace ebb::train {
namespace {

constexpr double zero_code = 127;  // with sign

// An entry's place u counts from 2^t in the decade t, which has 2^t entries: that of place u is
// scale (0.1 + 0.9 (u - 2^t + 0.5) / 2^t). The place 2^decades is the entry 1, and what is before
// the first decade is 0.
struct Layout {
  int first, decades;
  explicit Layout(DynamicMap map)
      : first(map == DynamicMap::with_sign ? 0 : 1), decades(7 + first) {}
  double scale(int t) const { return std::pow(10.0, t - decades + 1); }
  double smallest() const { return scale(first) * (0.1 + 0.45 / std::exp2(first)); }
  double zero() const { return std::exp2(first) - 1; }  // its place
  double one() const { return std::exp2(decades); }
  // Between the last entry below the decade and its first one.
  double begin(int t) const { return scale(t - 1) * (1 + 0.9 / std::exp2(t - 1)); }
  double last_before_one() const { return 1 - 0.45 / std::exp2(decades - 1); }
};

struct Decade {
  Scalar scale, entries;
};

// The decade of a number that is at least begin(t) for the decades from t on.
Decade decade_of(const Scalar& x, const Layout& l, double (*begin)(const Layout&, int t)) {
  Decade d{l.scale(l.first), std::exp2(l.first)};
  for (int t = l.first + 1; t < l.decades; ++t) {
    const Scalar below = less(x, begin(l, t));
    d = {select(below, d.scale, l.scale(t)), select(below, d.entries, std::exp2(t))};
  }
  return d;
}

}  // namespace

Scalar decoded(const Scalar& code, DynamicMap map) {
  const Layout l(map);
  const bool with_sign = map == DynamicMap::with_sign;
  const Scalar place = with_sign ? abs(code - zero_code) : code + 1;
  const Decade d = decade_of(place, l, [](const Layout&, int t) { return std::exp2(t); });
  const Scalar entry = d.scale * (0.9 * (place + 0.5) / d.entries - 0.8);
  const Scalar size = select(less(l.zero(), place), select(less(place, l.one()), entry, 1.0), 0.0);
  return with_sign ? select(less(code, zero_code), -size, size) : size;
}

Scalar encoded(const Scalar& x, DynamicMap map) {
  const Layout l(map);
  const Scalar size = abs(x);
  const Decade d = decade_of(size, l, [](const Layout& of, int t) { return of.begin(t); });
  const Scalar nearest = floor((size / d.scale + 0.8) / 0.9 * d.entries);
  const Scalar inside = min(max(nearest, d.entries), 2.0 * d.entries - 1.0);
  const Scalar above = less((l.last_before_one() + 1) / 2, size);
  const Scalar place =
      select(less(size, l.smallest() / 2), l.zero(), select(above, l.one(), inside));
  if (map == DynamicMap::without_sign) return place - 1;
  return select(less(x, 0.0), zero_code - min(place, l.one() - 1), zero_code + place);
}

}  // namespace ebb::train
