// Activations and their derivatives, with two results of the SFU each.
#pragma once

#include "backend/cuda/kit/activation.h"
#include "backend/cuda/kit/elements.cuh"

namespace ebb::cuda {

// 1 / (1 + exp(-(linear x + cubic x^3))) of each, to two units in the last place of f32. The steps
// stay in this order: where registers are few the compiler would else make one after the other,
// each waiting for the SFU.
template <int Count>
__device__ __forceinline__ Vec<float, Count> gates_at(const Activation& a,
                                                      const Vec<float, Count>& x) {
  constexpr float per_e = -1.442695041f;  // powers of two
  const float linear = a.linear * per_e, cubic = a.cubic * per_e;
  Vec<float, Count> g;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const float exponent = x.v[i] * (linear + cubic * (x.v[i] * x.v[i]));
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(g.v[i]) : "f"(exponent));
  }
#pragma unroll
  for (int i = 0; i < Count; ++i)
    asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(g.v[i]) : "f"(1 + g.v[i]));
  return g;
}

// The same of a polynomial that may have higher powers.
template <int Count>
__device__ __forceinline__ Vec<float, Count> higher_gates_at(const Activation& a,
                                                             const Vec<float, Count>& x) {
  if (a.higher[2] == 0) return gates_at(a, x);
  constexpr float per_e = -1.442695041f;  // powers of two
  const float linear = a.linear * per_e, third = a.cubic * per_e;
  const float fifth = a.higher[0] * per_e, seventh = a.higher[1] * per_e;
  const float ninth = a.higher[2] * per_e;
  Vec<float, Count> g;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const float s = x.v[i] * x.v[i];
    const float even = linear + s * (third + s * (fifth + s * (seventh + s * ninth)));
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(g.v[i]) : "f"(x.v[i] * even));
  }
#pragma unroll
  for (int i = 0; i < Count; ++i)
    asm volatile("rcp.approx.ftz.f32 %0, %1;" : "=f"(g.v[i]) : "f"(1 + g.v[i]));
  return g;
}

// The activations of x, or their grad there.
template <bool grad, int Count>
__device__ __forceinline__ Vec<float, Count> activated(const Activation& a,
                                                       const Vec<float, Count>& x) {
  Vec<float, Count> y = gates_at(a, x);
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const float gate = y.v[i];
    const float argument = x.v[i] * (a.linear + 3 * a.cubic * (x.v[i] * x.v[i]));
    y.v[i] = grad ? gate + gate * (1 - gate) * argument : x.v[i] * gate;
  }
  return y;
}

// The same for a vector of 16 bytes; T has 16 bits.
template <class T, bool grad>
__device__ __forceinline__ void activate_vector(const Activation& a, uint32_t (&vector)[4]) {
  const Vec<uint32_t, 4> words{vector[0], vector[1], vector[2], vector[3]};
  const Vec<float, 8> y = activated<grad>(a, floats_of(__builtin_bit_cast(Vec<T, 8>, words)));
  const auto out = __builtin_bit_cast(Vec<uint32_t, 4>, rounded_to<T>(y));
#pragma unroll
  for (int i = 0; i < 4; ++i) vector[i] = out.v[i];
}

// Vectors' elements times the activations of those of others.
template <class T, int Vectors>
__device__ __forceinline__ void gate_vectors(const Activation& a,
                                             const uint32_t (&gates)[Vectors][4],
                                             uint32_t (&vectors)[Vectors][4]) {
  Vec<float, Vectors * 8> x, y;
  const auto load = [](const uint32_t(&v)[4], float* to) {
    const Vec<uint32_t, 4> words{v[0], v[1], v[2], v[3]};
    const Vec<float, 8> f = floats_of(__builtin_bit_cast(Vec<T, 8>, words));
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = f.v[i];
  };
#pragma unroll
  for (int k = 0; k < Vectors; ++k) load(gates[k], x.v + k * 8);
  y = higher_gates_at(a, x);
#pragma unroll
  for (int i = 0; i < Vectors * 8; ++i) y.v[i] *= x.v[i];
#pragma unroll
  for (int k = 0; k < Vectors; ++k) {
    load(vectors[k], x.v + k * 8);
    Vec<float, 8> product;
#pragma unroll
    for (int i = 0; i < 8; ++i) product.v[i] = x.v[k * 8 + i] * y.v[k * 8 + i];
    const auto out = __builtin_bit_cast(Vec<uint32_t, 4>, rounded_to<T>(product));
#pragma unroll
    for (int i = 0; i < 4; ++i) vectors[k][i] = out.v[i];
  }
}

}  // namespace ebb::cuda
