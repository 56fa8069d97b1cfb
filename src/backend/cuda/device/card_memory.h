// What is taken of a card's memory, by the driver's library for watching it (NVML), which needs no
// context: so what a context takes can be measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ebb::cuda {

// Bytes, by all processes; `bus_id`: cudaDeviceGetPCIBusId. None where the library is not there, or
// does not tell.
std::optional<int64_t> taken_of_card(const std::string& bus_id);

}  // namespace ebb::cuda
