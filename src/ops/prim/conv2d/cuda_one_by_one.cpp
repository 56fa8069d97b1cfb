// conv2d with further products where addresses are not aligned: one after the other.
#include <algorithm>

#include "ops/prim/conv2d/cuda_sm90.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d();
std::vector<Kernel> matmul();

namespace {

namespace gemm = ebb::cuda::gemm;

// Image by image the convolution in f32, then the matmuls with the sum so far as their residual.
// Sums that take too much memory are in the result's dtype.
class OneByOne {
 public:
  OneByOne(const Signature& s, Device& d)
      : images_(s.out[0].shape[0]), conv_(s), matmuls_(added_products_of(s)) {
    constexpr int64_t most = 64 << 20;
    Type sum = s.out[0];
    sum.shape[0] = 1;
    if (sum.shape.numel() * size_of(DType::f32) <= most) sum.dtype = DType::f32;
    conv_.in[0].shape[0] = 1;
    auto conv = conv_.as<Conv2d>();
    conv.products = 1;
    conv.dtype = name_of(sum.dtype);
    conv_.in.erase(conv_.in.begin() + 2, conv_.in.begin() + first_operand());
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
      now.in = {image(c.in[0], conv_.in[0].bytes(), i), c.in[1]};
      now.in.insert(now.in.end(), c.in.begin() + first_operand(), c.in.end());
      now.out = {sum};
      programs_[0].run(now);
      for (size_t k = 0; k < matmuls_.size(); ++k) {
        const size_t y = 2 + 2 * k;
        now.in = {image(c.in[y], matmuls_[k].in[0].bytes(), i), c.in[y + 1], sum};
        if (k + 1 == matmuls_.size()) now.out = {image(c.out[0], matmuls_[k].out[0].bytes(), i)};
        programs_[k + 1].run(now);
      }
    }
  }

 private:
  std::ptrdiff_t first_operand() const { return 2 + 2 * std::ssize(matmuls_); }

  int64_t images_ = 0, sum_bytes_ = 0;
  Signature conv_;  // of one image, as the matmuls
  std::vector<Signature> matmuls_;
  std::vector<Program> programs_;
};

}  // namespace

Program conv2d_one_by_one(const Signature& s, Device& d) {
  const OneByOne steps(s, d);
  return {.workspace = steps.workspace(), .run = [steps](const Call& c) { steps.run(c); }};
}

}  // namespace ebb::ops::cuda
