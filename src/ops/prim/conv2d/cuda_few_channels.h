// conv2d and its gradients with few channels in or out, as a GEMM on sm_90a and passes that move
// its operands or results.
#pragma once

#include <string_view>
#include <vector>

#include "backend/cuda/gemm/sm90/problem.h"
#include "ir/kernel.h"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_im2col();  // few channels in
std::vector<Kernel> conv2d_col2im();  // few channels out

// TMA reads vectors of 8 channels. Windows of more elements are no longer few.
constexpr bool has_few_channels(int64_t channels) { return channels % 8 != 0; }
constexpr int64_t longest_window = 128;

// `Use` tells of a use of `op`, in static functions:
//   bool supports(s)             what gemm::supports() cannot see from the problem
//   Problem problem(s)           the GEMM, of matmul's forms
//   Program program(s, Prepared, device)   of that GEMM
template <class Use>
Kernel few_channels_kernel(std::string_view op, std::string_view name,
                           double (*cost)(const Signature&, const Device&)) {
  namespace gemm = ebb::cuda::gemm;
  return {.op = op,
          .name = name,
          .supports =
              +[](const Signature& s, const Device& d) {
                return s.aligned && Use::supports(s) &&
                       gemm::supports(Use::problem(s), ebb::cuda::of(d));
              },
          .prepare =
              +[](const Signature& s, const Tune& tune, Device& d) {
                ebb::cuda::CudaDevice& device = ebb::cuda::of(d);
                const gemm::Problem p = Use::problem(s);
                return Use::program(s, gemm::prepare(p, matmul_sm90_kernels(p), tune, device),
                                    device);
              },
          .space =
              +[](const Signature& s, const Device& d) {
                const gemm::Problem p = Use::problem(s);
                return gemm::tunes(p, matmul_sm90_kernels(p), ebb::cuda::of(d));
              },
          .cost = cost};
}

}  // namespace ebb::ops::cuda
