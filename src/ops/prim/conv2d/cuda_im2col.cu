// conv2d of images with few channels (pixels, latents; the patches of a transformer): its windows
// are written out as rows of a matrix (im2col), padded to whole 16-byte vectors, and multiplied on
// sm_90a. The general kernel gathers them element by element for every tile of the result.
#include "backend/cuda/gemm/sm90/problem.h"
#include "ir/roofline.h"
#include "ops/prim/conv2d/cuda_few_channels.h"
#include "ops/prim/conv2d/cuda_window_rows.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/cuda_sm90_epilogue.h"

namespace ebb::ops::cuda {

namespace {

namespace gemm = ebb::cuda::gemm;

WindowRows windows_of(const Signature& s) { return WindowRows(conv2d_geometry(s)); }

// The workspace: rows, filters where they must be padded, then that of the GEMM.
struct Places {
  int64_t filters = 0, gemm = 0;
  bool pads() const { return gemm > filters; }
};
Places places(const Signature& s) {
  const WindowRows windows = windows_of(s);
  const int64_t filters = windows.bytes(windows.pixels());
  const bool pads = windows.padded() > windows.row();
  return {filters, filters + (pads ? windows.bytes(conv2d_geometry(s).o) : 0)};
}

struct Use {
  static bool supports(const Signature& s) {
    constexpr int64_t most = int64_t{1} << 28;  // bytes of workspace
    if (!is_sum_of_one_product(s)) return false;
    return s.in[0].dtype == s.in[1].dtype && has_few_channels(conv2d_geometry(s).c) &&
           windows_of(s).row() <= longest_window && places(s).gemm <= most;
  }

  static gemm::Problem problem(const Signature& s) {
    const WindowRows windows = windows_of(s);
    gemm::Problem p;
    p.type = s.in[0].dtype;
    p.out = s.out[0].dtype;
    set_epilogue(p, s);
    p.m = windows.pixels();
    p.n = conv2d_geometry(s).o;
    p.k = windows.padded();
    return p;
  }

  static Program program(const Signature& s, const gemm::Prepared& product,
                         ebb::cuda::CudaDevice& device) {
    const auto run = [run_gemm = product.run, windows = windows_of(s), at = places(s),
                      find = epilogue_operands(s), &device](const Call& c) {
      auto* work = static_cast<char*>(c.workspace);
      void* const filters = at.pads() ? work + at.filters : nullptr;
      windows.write(c.in[0], work, c.in[1], filters, device);
      gemm::Operands o = find(c);
      o.a = work;
      if (filters) o.b = filters;
      o.workspace = work + at.gemm;
      run_gemm(o);
    };
    return {.workspace = places(s).gemm + product.workspace, .run = run};
  }
};

}  // namespace

std::vector<Kernel> conv2d_im2col() {
  return {few_channels_kernel<Use>("conv2d", "conv2d_im2col", roofline<50, 60>)};
}

}  // namespace ebb::ops::cuda
