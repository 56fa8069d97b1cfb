// Tests of golden networks on the backends: their parameters and names.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "backends.h"

namespace ebb::testing {

struct NetworkOn {
  std::string network, backend;
};
inline void PrintTo(const NetworkOn& on, std::ostream* out) {
  *out << on.network << " on " << on.backend;
}

// None for a backend that is not there.
inline std::vector<NetworkOn> networks_on(const std::string& backend,
                                          const std::vector<std::string>& networks) {
  std::vector<NetworkOn> out;
  for (const std::string& name : networks)
    if (!test::only(backend).empty()) out.push_back({name, backend});
  return out;
}

inline std::string name_of_network(const ::testing::TestParamInfo<NetworkOn>& info) {
  return info.param.network;
}

}  // namespace ebb::testing
