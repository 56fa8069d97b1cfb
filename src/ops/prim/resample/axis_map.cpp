// The sparse map of one axis, the only place that knows what the kinds of resampling mean.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "ops/prim/resample/op.h"

namespace ebb::ops {
namespace {

struct Entry {
  int64_t row = 0, column = 0;
  double weight = 0;
};

// Entries in any order to rows; those outside of the matrix are left out.
AxisMap from_entries(int64_t in, int64_t out, std::vector<Entry> entries) {
  std::erase_if(entries, [&](const Entry& e) {
    return e.row < 0 || e.row >= out || e.column < 0 || e.column >= in;
  });
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.row != b.row ? a.row < b.row : a.column < b.column;
  });
  AxisMap m{.in = in, .out = out};
  m.first.assign(static_cast<size_t>(out) + 1, 0);
  for (const Entry& e : entries) {
    ++m.first[static_cast<size_t>(e.row) + 1];
    m.index.push_back(e.column);
    m.weight.push_back(e.weight);
  }
  std::partial_sum(m.first.begin(), m.first.end(), m.first.begin());
  return m;
}

AxisMap transpose(const AxisMap& m) {
  std::vector<Entry> entries;
  for (int64_t i = 0; i < m.out; ++i)
    for (int64_t k = m.first[static_cast<size_t>(i)]; k < m.first[static_cast<size_t>(i) + 1]; ++k)
      entries.push_back({m.index[static_cast<size_t>(k)], i, m.weight[static_cast<size_t>(k)]});
  return from_entries(m.out, m.in, std::move(entries));
}

AxisMap nearest(int64_t in, int64_t out) {
  std::vector<Entry> e;
  for (int64_t i = 0; i < out; ++i) e.push_back({i, i * in / out, 1});
  return from_entries(in, out, std::move(e));
}

AxisMap bilinear(int64_t in, int64_t out) {
  std::vector<Entry> e;
  const double step = static_cast<double>(in) / static_cast<double>(out);
  for (int64_t i = 0; i < out; ++i) {
    const double at = std::max(0.0, (static_cast<double>(i) + 0.5) * step - 0.5);
    const int64_t low = std::min(static_cast<int64_t>(at), in - 1),
                  high = std::min(low + 1, in - 1);
    const double fraction = at - static_cast<double>(low);
    if (low == high || fraction == 0) {
      e.push_back({i, low, 1});
      continue;
    }
    e.push_back({i, low, 1 - fraction});
    e.push_back({i, high, fraction});
  }
  return from_entries(in, out, std::move(e));
}

AxisMap average(int64_t in, int64_t down) {
  std::vector<Entry> e;
  const int64_t out = in / down;
  for (int64_t i = 0; i < out * down; ++i)
    e.push_back({i / down, i, 1.0 / static_cast<double>(down)});
  return from_entries(in, out, std::move(e));
}

AxisMap box(int64_t in, int64_t reach) {
  std::vector<Entry> e;
  for (int64_t i = 0; i < in; ++i) {
    const int64_t first = std::max<int64_t>(i - reach, 0), last = std::min(i + reach, in - 1);
    for (int64_t k = first; k <= last; ++k)
      e.push_back({i, k, 1.0 / static_cast<double>(last - first + 1)});
  }
  return from_entries(in, in, std::move(e));
}

AxisMap fir(const Resample& a, int64_t in) {
  const auto taps = static_cast<int64_t>(a.taps.size());
  const int64_t pad = a.pad < 0 ? (taps - 1) / 2 : a.pad;
  const double gain =
      static_cast<double>(a.up) / std::accumulate(a.taps.begin(), a.taps.end(), 0.0);
  const int64_t out =
      a.up > 1 ? (in - 1) * a.up - 2 * pad + taps : (in + 2 * pad - taps) / a.down + 1;
  std::vector<Entry> e;
  for (int64_t k = 0; k < taps; ++k) {
    const double f = gain * a.taps[static_cast<size_t>(k)];
    if (a.up > 1)
      for (int64_t i = 0; i < in; ++i) e.push_back({i * a.up - pad + k, i, f});
    else
      for (int64_t i = 0; i < out; ++i) e.push_back({i, i * a.down - pad + k, f});
  }
  return from_entries(in, std::max<int64_t>(out, 0), std::move(e));
}

void check(const Signature& s) {
  const auto& a = s.as<Resample>();
  const auto end = [&] { return str("  x: ", s.in[0], "  at ", s.at); };
  require(s.in.size() == 1 && s.in[0].shape.rank() == 4 && is_float(s.in[0].dtype),
          "resample: takes float images [N,H,W,C]  at ", s.at);
  require(s.in[0].shape[1] > 0 && s.in[0].shape[2] > 0, "resample: sizes must be positive", end());
  require(a.up > 0 && a.down > 0, "resample: up (", a.up, ") and down (", a.down,
          ") must be positive", end());
  require(a.size.empty() || (a.size.size() == 2 && a.size[0] > 0 && a.size[1] > 0),
          "resample: size must be {H, W}, positive", end());
  require(!a.transposed || (a.source.size() == 2 && a.source[0] > 0 && a.source[1] > 0),
          "resample: source must be {H, W}, positive, of the transposed map", end());
  const bool sized = a.kind == ResampleKind::nearest || a.kind == ResampleKind::bilinear;
  require(sized || a.size.empty(), "resample: size goes with nearest and bilinear, not ",
          a.kind.name(), end());
  require(a.kind != ResampleKind::average || a.up == 1, "resample: up (", a.up,
          ") must be 1 for averages", end());
  require(a.kind != ResampleKind::box || (a.up == 1 && a.down == 1 && a.pad >= 0),
          "resample: a box keeps the ", "size (up ", a.up, ", down ", a.down, ") and reaches pad (",
          a.pad, ") pixels", end());
  if (a.kind != ResampleKind::fir) return;
  require(a.up == 1 || a.down == 1, "resample: up (", a.up, ") or down (", a.down,
          ") must be 1 for a filter", end());
  require(std::accumulate(a.taps.begin(), a.taps.end(), 0.0) != 0,
          "resample: taps must have a sum that is not 0 (", a.taps.size(), " taps)", end());
}

AxisMap forward_map(const Signature& s, int64_t axis, int64_t in) {
  const auto& a = s.as<Resample>();
  const int64_t out = a.size.empty() ? in * a.up / a.down : a.size[static_cast<size_t>(axis)];
  switch (a.kind) {
    case ResampleKind::nearest: return nearest(in, out);
    case ResampleKind::bilinear: return bilinear(in, out);
    case ResampleKind::average: return average(in, a.down);
    case ResampleKind::box: return box(in, a.pad);
    case ResampleKind::fir: break;
  }
  return fir(a, in);
}

}  // namespace

AxisMap axis_map(const Signature& s, int64_t axis) {
  check(s);
  const auto& a = s.as<Resample>();
  const int64_t have = s.in[0].shape[1 + axis];
  const AxisMap m = forward_map(s, axis, a.transposed ? a.source[static_cast<size_t>(axis)] : have);
  require(m.out > 0, "resample: images of this size have no result  x: ", s.in[0], "  at ", s.at);
  if (!a.transposed) return m;
  require(m.out == have, "resample: the transposed map to size ", m.in, " takes size ", m.out,
          " (got ", have, ")  x: ", s.in[0], "  at ", s.at);
  return transpose(m);
}

}  // namespace ebb::ops
