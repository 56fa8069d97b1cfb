// Prediction: preconditioning of a network's output F, D(x, sigma) = skip x + out F(in x) (Karras
// et al. 2022, arXiv:2206.00364, table 1), and c_noise. The only definition of these functions, for
// numbers and for expressions in graphs.
//
//              skip                 out                    in
//   eps        1                    -s                     1 / sqrt(s^2 + 1)
//   v          1 / (s^2 + 1)        -s / sqrt(s^2 + 1)     1 / sqrt(s^2 + 1)
//   x0         0                    1                      1 / sqrt(s^2 + 1)
//   edm        d^2 / (s^2 + d^2)    s d / sqrt(s^2 + d^2)  1 / sqrt(s^2 + d^2)
//   edm_v      as edm               -s d / sqrt(s^2 + d^2) as edm; v where d = 1
//   ve         1                    s                      1
//   rflow      1 / (1 + s)          -s / (1 + s)           1 / (1 + s)
// on flow models, whose states are (1 - s) data + s noise:
//   flow       1                    -s                     1
//   dataward   1                    s                      1
#pragma once

#include <cmath>

#include "diffusion/solver/vp.h"

namespace ebb {

enum class Prediction { eps, v, x0, edm, edm_v, ve, rflow, flow, dataward };

// rest: 1 - skip alpha(sigma), what is left of the data for F; without cancellation.
template <class S>
struct PrecondFactors {
  S skip, out, in, rest;
};

inline double rsqrt(double x) { return 1 / std::sqrt(x); }

// S: double, or an expression with rsqrt of its own. d: standard deviation of the data.
template <class S>
PrecondFactors<S> precond_factors(Prediction p, const S& s, double d = 1) {
  if (p == Prediction::flow) return {1.0, -s, 1.0, s};
  if (p == Prediction::dataward) return {1.0, s, 1.0, s};
  if (p == Prediction::ve) return {1.0, s, 1.0, 0.0};
  if (p == Prediction::rflow) {
    const S a = 1.0 / (s + 1.0);
    return {a, -(s * a), a, s * a};
  }
  if (p == Prediction::edm || p == Prediction::edm_v) {
    const S square = s * s + d * d, inverse = rsqrt(square);
    const S out = s * d * inverse;
    return {d * d / square, p == Prediction::edm ? out : -out, inverse, s * s / square};
  }
  const S square = s * s + 1.0, inverse = rsqrt(square);
  if (p == Prediction::v) return {1.0 / square, -(s * inverse), inverse, s * s / square};
  if (p == Prediction::x0) return {0.0, 1.0, inverse, 1.0};
  return {1.0, -s, inverse, 0.0};
}

// ---- c_noise, the network's noise input -----------------------------------------------------

//   table      position in the table of sigmas, 0 to T - 1
//   log        scale ln s
//   log_half   ln(s / 2)
//   vp_time    scale t(s) of the continuous VP process
//   level      scale s
//   dataward   scale (1 - s)
//   ratio      s / (1 + s)
//   arctan     2 / pi atan s
//   cosine     t in [0, 1] of the cosine process
enum class CNoise { table, log, log_half, vp_time, level, dataward, ratio, arctan, cosine };

// Those that expressions can compute: not table, arctan, cosine (0 for them).
template <class S>
S c_noise_expression(CNoise c_noise, double scale, const S& s) {
  using std::log;
  switch (c_noise) {
    case CNoise::log: return log(s) * scale;
    case CNoise::log_half: return log(s * 0.5);
    case CNoise::vp_time: return vp_time(s) * scale;
    case CNoise::level: return s * scale;
    case CNoise::dataward: return (1.0 - s) * scale;
    case CNoise::ratio: return s / (s + 1.0);
    default: return 0.0;
  }
}
inline bool has_expression(CNoise c_noise) {
  return c_noise != CNoise::table && c_noise != CNoise::arctan && c_noise != CNoise::cosine;
}

}  // namespace ebb
