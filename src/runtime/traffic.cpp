#include "runtime/traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/op.h"

namespace ebb {
namespace {

double megabytes(const Traffic& t) { return t.bytes * 1e-6; }

}  // namespace

std::map<std::string, Traffic> traffic_of(const Graph& lowered, int64_t ranks) {
  std::map<std::string, Traffic> out;
  const double of_others = 1 - 1 / static_cast<double>(ranks);
  for (const Node& n : lowered.nodes()) {
    if (!n.op->collective) continue;
    Traffic& t = out[std::string(n.op->name)];
    ++t.collectives;
    for (size_t i = 0; i < n.in.size(); ++i) {
      const int64_t larger =
          std::max(lowered.type(n.in[i]).bytes(), lowered.type(n.out[i]).bytes());
      t.bytes += n.op->sends * of_others * static_cast<double>(larger);
    }
  }
  return out;
}

Traffic sum_of(const std::map<std::string, Traffic>& traffic) {
  Traffic out;
  for (const auto& [op, t] : traffic) out.collectives += t.collectives, out.bytes += t.bytes;
  return out;
}

std::string text_of(const std::map<std::string, Traffic>& traffic) {
  const Traffic all = sum_of(traffic);
  std::string out =
      fmt::format("a rank sends {:.3f} MB in {} collectives", megabytes(all), all.collectives);
  std::string sign = ": ";
  for (const auto& [op, t] : traffic) {
    out += fmt::format("{}{} {} ({:.3f} MB)", sign, op, t.collectives, megabytes(t));
    sign = ", ";
  }
  return out;
}

}  // namespace ebb
