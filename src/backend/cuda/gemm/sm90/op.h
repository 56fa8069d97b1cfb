// Kernels of ops that are one GEMM of sm_90a: all of a kernel but what the op means by it.
#pragma once

#include <string_view>
#include <vector>

#include "backend/cuda/gemm/sm90/problem.h"
#include "ir/roofline.h"

namespace ebb::cuda::gemm {

// `Use` tells of a use of the op, in static functions:
//   Problem problem(s)
//   Kernels kernels(problem)
//   bool supports(s)          what gemm::supports() cannot see from the problem
//   operands(s)               a function that finds the Operands (but workspace) of a Call
template <class Use>
struct OpKernel {
  static bool supports(const Signature& s, const Device& d) {
    return s.aligned && Use::supports(s) && gemm::supports(Use::problem(s), of(d));
  }

  static std::vector<Tune> space(const Signature& s, const Device& d) {
    const Problem p = Use::problem(s);
    return tunes(p, Use::kernels(p), of(d));
  }

  static Program prepare(const Signature& s, const Tune& tune, Device& d) {
    const Problem p = Use::problem(s);
    const Prepared product = gemm::prepare(p, Use::kernels(p), tune, of(d));
    const auto run = [run = product.run, operands = Use::operands(s)](const Call& c) {
      Operands o = operands(c);
      o.workspace = c.workspace;
      run(o);
    };
    return {.workspace = product.workspace, .run = run};
  }
};

template <class Use>
Kernel op_kernel(std::string_view op, std::string_view name) {
  using K = OpKernel<Use>;
  return {.op = op,
          .name = name,
          .supports = K::supports,
          .prepare = K::prepare,
          .space = K::space,
          .cost = roofline<72, 80>,
          .family = "gemm_sm90"};
}

}  // namespace ebb::cuda::gemm
