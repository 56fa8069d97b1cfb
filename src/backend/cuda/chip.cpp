#include "backend/cuda/chip.h"

#include <vector>

#include "base/names.h"

namespace ebb::cuda {

Chip described_chip(std::string_view name) {
  if (name == "h100") return {};
  if (name == "h200") return {.name = "H200"};
  fail_unknown("device: there is no description of the chip", name,
               std::vector<std::string>{"h100", "h200"});
}

}  // namespace ebb::cuda
