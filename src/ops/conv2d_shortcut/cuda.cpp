// conv2d_shortcut on sm_90a: the matmuls' steps follow those of the convolution's GEMM.
#include <algorithm>

#include "backend/cuda/gemm/sm90/op.h"
#include "ops/conv2d_shortcut/op.h"
#include "ops/prim/conv2d/cuda_sm90.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d();
std::vector<Kernel> matmul();

namespace {

namespace gemm = ebb::cuda::gemm;

// Where addresses are not aligned: image by image the convolution in f32, then the matmuls with the
// sum so far as their residual. Sums that take too much memory are in the result's dtype.
class OneByOne {
 public:
  OneByOne(const Signature& s, Device& d)
      : images_(s.out[0].shape[0]), conv_(shortcut_conv_of(s)), matmuls_(shortcut_matmuls_of(s)) {
    constexpr int64_t most = 64 << 20;
    Type sum = s.out[0];
    sum.shape[0] = 1;
    if (sum.shape.numel() * size_of(DType::f32) <= most) sum.dtype = DType::f32;
    conv_.in[0].shape[0] = 1;
    auto conv = conv_.as<Conv2d>();
    conv.dtype = name_of(sum.dtype);
    conv_.attrs = conv;
    conv_.out = {sum};
    programs_.push_back(gemm::general_program(conv2d(), conv_, d));
    for (Signature& m : matmuls_) {
      const bool last = &m == &matmuls_.back();
      m.in[0].shape[0] = 1;
      m.in.push_back(sum);
      m.out = {{last ? s.out[0].dtype : sum.dtype, sum.shape}};
      auto matmul = m.as<Matmul>();
      matmul.dtype = name_of(m.out[0].dtype);
      m.attrs = matmul;
      programs_.push_back(gemm::general_program(cuda::matmul(), m, d));
    }
    sum_bytes_ = (sum.bytes() + 255) / 256 * 256;
  }

  int64_t workspace() const {
    int64_t most = 0;
    for (const Program& p : programs_) most = std::max(most, p.workspace);
    return sum_bytes_ + most;
  }

  void run(const Call& c) const {
    auto* sum = static_cast<char*>(c.workspace);
    const auto image = [](void* tensor, int64_t bytes, int64_t i) {
      return static_cast<char*>(tensor) + i * bytes;
    };
    for (int64_t i = 0; i < images_; ++i) {
      Call now = c;
      now.workspace = sum + sum_bytes_;
      now.in = {image(c.in[0], conv_.in[0].bytes(), i)};
      now.in.insert(now.in.end(), c.in.begin() + 1, c.in.begin() + conv_.in.size());
      now.out = {sum};
      programs_[0].run(now);
      for (size_t k = 0; k < matmuls_.size(); ++k) {
        const size_t y = conv_.in.size() + 2 * k;
        now.in = {image(c.in[y], matmuls_[k].in[0].bytes(), i), c.in[y + 1], sum};
        if (k + 1 == matmuls_.size()) now.out = {image(c.out[0], matmuls_[k].out[0].bytes(), i)};
        programs_[k + 1].run(now);
      }
    }
  }

 private:
  int64_t images_ = 0, sum_bytes_ = 0;
  Signature conv_;  // of one image, as the matmuls
  std::vector<Signature> matmuls_;
  std::vector<Program> programs_;
};

struct Use {
  static gemm::Problem problem(const Signature& s) {
    gemm::Problem p = conv2d_sm90_problem(shortcut_conv_of(s));
    const std::vector<Signature> matmuls = shortcut_matmuls_of(s);
    for (size_t k = 0; k < matmuls.size(); ++k) p.shortcut[k] = matmuls[k].in[1].shape[1];
    return p;
  }
  static gemm::Kernels kernels(const gemm::Problem& p) { return conv2d_sm90_kernels(p.type); }
  static bool supports(const Signature& s) { return s.in[0].dtype == s.in[1].dtype; }
  static auto operands(const Signature& s) {
    return [bias = s.as<Conv2dShortcut>().bias](const Call& c) {
      gemm::Operands o{
          .a = c.in[0], .b = c.in[1], .bias = bias ? c.in[2] : nullptr, .out = c.out[0]};
      const size_t first = bias ? 3 : 2;
      for (size_t k = first; k + 1 < c.in.size(); k += 2)
        o.more[(k - first) / 2] = {c.in[k], c.in[k + 1]};
      return o;
    };
  }
  static Program general(const Signature& s, Device& d) {
    const OneByOne steps(s, d);
    return {.workspace = steps.workspace(), .run = [steps](const Call& c) { steps.run(c); }};
  }
};

}  // namespace

// Named as the convolution's own kernel: the matmuls cost at most what they do alone.
std::vector<Kernel> conv2d_shortcut() {
  return {gemm::op_kernel<Use>("conv2d_shortcut", "conv2d_sm90")};
}

}  // namespace ebb::ops::cuda
