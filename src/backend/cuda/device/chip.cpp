#include "backend/cuda/device/chip.h"

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

Peaks peaks_of(const Chip& chip) {
  // Of an SM in a clock, fused multiply-adds as two, without sparsity, sums in f32: from the tables
  // of NVIDIA's architecture whitepapers, of the GeForce chips where others are twice as fast.
  struct PerClock {
    int capability;
    double f32, of_16_bits;
  };
  constexpr PerClock table[] = {{75, 128, 1024}, {80, 128, 2048},  {86, 256, 512},
                                {90, 256, 4096}, {100, 256, 8192}, {120, 256, 512}};
  const PerClock* p = table;
  for (const PerClock& row : table)
    if (row.capability <= chip.capability) p = &row;
  const Chip usual;  // where a driver does not tell
  const double clocks = chip.sm_count * (chip.clock > 0 ? chip.clock : usual.clock);
  return {.bytes = chip.bytes_per_second > 0 ? chip.bytes_per_second : usual.bytes_per_second,
          .flops_f32 = clocks * p->f32,
          .flops_16 = clocks * p->of_16_bits};
}

Chip described_chip(std::string_view name) {
  if (name == "h100") return {.max_clusters = clusters_of_132_sms};
  if (name == "h200")
    return {.name = "H200", .bytes_per_second = 4.8e12, .max_clusters = clusters_of_132_sms};
  fail_unknown("device: there is no description of the chip", name,
               std::vector<std::string>{"h100", "h200"});
}

}  // namespace ebb::cuda
