#include "backend/cuda/chip.h"

#include <vector>

#include "base/names.h"

namespace ebb::cuda {
namespace {

// As the driver of an H200 answers for one and for four thread blocks per SM: clusters run within
// one GPC, and GPCs differ in their number of SMs. Between them by proportion.
int64_t clusters_of_132_sms(int cluster, int64_t blocks) {
  struct Measured {
    int cluster;
    int64_t one, four;
  };
  constexpr Measured measured[] = {{2, 66, 264}, {4, 30, 124}, {8, 15, 62}, {16, 7, 28}};
  for (const Measured& m : measured)
    if (m.cluster == cluster) return blocks == 1 ? m.one : m.four * blocks / 4;
  return cluster == 1 ? 132 * blocks : 0;
}

}  // namespace

Chip described_chip(std::string_view name) {
  if (name == "h100") return {.max_clusters = clusters_of_132_sms};
  if (name == "h200") return {.name = "H200", .max_clusters = clusters_of_132_sms};
  fail_unknown("device: there is no description of the chip", name,
               std::vector<std::string>{"h100", "h200"});
}

}  // namespace ebb::cuda
