// Init: initialisation of a layer's weight and bias, by the rules of the published networks.
#pragma once

#include <cmath>
#include <cstdint>

#include "ir/graph.h"

namespace ebb::nn {

struct Init {
  enum class Kind : uint8_t {
    // Weight and bias uniform within gain / sqrt(fan_in): torch's default of linears and
    // convolutions, hence guided-diffusion's; also EDM's kaiming_uniform with gain sqrt(1/3).
    fan_in,
    // Weight uniform within gain * sqrt(6 / (fan_in + fan_out)), bias 0 (Glorot and Bengio 2010).
    xavier,
    // Weight normal with standard deviation gain, bias 0.
    normal,
    zeros,
  };
  Kind kind = Kind::fan_in;
  double gain = 1;

  ParamInfo weight(int64_t fan_in, int64_t fan_out) const {
    switch (kind) {
      case Kind::fan_in: return drawn("uniform", gain / std::sqrt(static_cast<double>(fan_in)));
      case Kind::xavier:
        return drawn("uniform", gain * std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)));
      case Kind::normal: return drawn("normal", gain);
      case Kind::zeros: break;
    }
    return {};
  }
  ParamInfo bias(int64_t fan_in) const {
    return kind == Kind::fan_in ? weight(fan_in, fan_in) : ParamInfo{};
  }

 private:
  static ParamInfo drawn(const char* rule, double scale) {
    ParamInfo info;
    info.init = rule;
    info.scale = scale;
    return info;
  }
};

inline constexpr Init zero_init{Init::Kind::zeros};
inline constexpr Init torch_init{Init::Kind::fan_in};
inline constexpr Init xavier_init{Init::Kind::xavier};

}  // namespace ebb::nn
