// oneDNN behind plain structs: convolutions, their gradients and matmuls on raw pointers.
//
// A problem is described once, prepared once (oneDNN picks and generates the code) and run many
// times. Activations are NHWC, conv weights OHWI, matrices row-major, all dense unless said
// otherwise. oneDNN wants weights in blocks of its own: run() packs them into the scratch memory
// on the way in and unpacks weight gradients on the way out, which costs 0-10% of a call.
//
// The number of threads is the one set with omp_set_num_threads when the object is made. run() is
// const and may be called from several threads, each with its own scratch. Sums are f32. For the
// same problem, thread count and machine the bits are the same from run to run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/dtype.h"

namespace ebb::cpu {

// True if this machine multiplies matrices of `dtype` (f32, bf16) through oneDNN at all; other
// types must be converted first. The constructors below throw Error where this is false.
bool onednn_supports(DType dtype);
// True if the processor multiplies matrices of bf16 faster than of f32; always for f32.
bool onednn_fast_in(DType dtype);

// y[n,p,q,o] = bias[o] + sum over r,s,c of x[n, p*stride - top + r, q*stride - left + s, c]
//                                           * weights[o,r,s,c]
// The types of the forward pass also name those of the gradients: `src` is the type of the
// gradient of src, and so on. Activations compute in their own type; weights of another type are
// converted while they are packed (f32 master weights need no bf16 shadow).
struct ConvProblem {
  int64_t n = 1, h = 1, w = 1, c = 1;  // src [n,h,w,c]
  int64_t o = 1, kh = 1, kw = 1;       // weights [o,kh,kw,c]
  int64_t stride = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;  // zero padding; may differ
  DType src = DType::f32;
  DType weights = DType::f32;
  DType dst = DType::f32;
  std::optional<DType> bias = std::nullopt;  // type of bias [o] or of its gradient; none: no bias

  int64_t out_h() const { return (h + top + bottom - kh) / stride + 1; }
  int64_t out_w() const { return (w + left + right - kw) / stride + 1; }
};
std::string to_string(const ConvProblem& p);

// c = a b, plus bias[n] along rows, plus the old c if `accumulate`; for every batch and head.
// Strides are in elements; none means dense [batch, heads, rows, cols].
struct MatrixLayout {
  bool transposed = false;  // the memory holds the transpose; `row` is then its row stride
  struct Strides {
    int64_t batch = 0, head = 0, row = 0;
  };
  std::optional<Strides> strides = std::nullopt;
};
struct MatmulProblem {
  int64_t batch = 1, heads = 1;
  int64_t m = 1, n = 1, k = 1;                // a [m,k], b [k,n], c [m,n]
  MatrixLayout a_layout = {}, b_layout = {};  // e.g. linear weights [n,k]: b_layout = {true}
  std::optional<MatrixLayout::Strides> c_strides = std::nullopt;
  DType a = DType::f32, b = DType::f32, c = DType::f32;  // a and b must agree
  std::optional<DType> bias = std::nullopt;
  bool accumulate = false;
};
std::string to_string(const MatmulProblem& p);

namespace detail {
struct Prepared;  // the oneDNN objects of one problem
}

// What the four classes share. Scratch is memory of at least scratch_bytes() (any alignment) that
// run() overwrites; it may be null where scratch_bytes() is 0.
class OneDnnCall {
 public:
  int64_t scratch_bytes() const;
  std::string implementation() const;  // oneDNN's name of the code it picked; "none" if empty

 protected:
  std::shared_ptr<const detail::Prepared> prepared_;
};

class ConvForward : public OneDnnCall {
 public:
  struct Args {
    const void* src = nullptr;
    const void* weights = nullptr;
    const void* bias = nullptr;
    void* dst = nullptr;
    void* scratch = nullptr;
  };
  explicit ConvForward(const ConvProblem& p);  // throws Error naming the problem
  void run(const Args& args) const;
};

class ConvBackwardData : public OneDnnCall {
 public:
  struct Args {
    const void* diff_dst = nullptr;
    const void* weights = nullptr;
    void* diff_src = nullptr;
    void* scratch = nullptr;
  };
  explicit ConvBackwardData(const ConvProblem& p);
  void run(const Args& args) const;
};

// src and diff_dst have one type; diff_weights may be f32 whatever that is.
class ConvBackwardWeights : public OneDnnCall {
 public:
  struct Args {
    const void* src = nullptr;
    const void* diff_dst = nullptr;
    void* diff_weights = nullptr;
    void* diff_bias = nullptr;
    void* scratch = nullptr;
  };
  explicit ConvBackwardWeights(const ConvProblem& p);
  void run(const Args& args) const;
};

class Matmul : public OneDnnCall {
 public:
  struct Args {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;
  };
  explicit Matmul(const MatmulProblem& p);
  void run(const Args& args) const;
};

}  // namespace ebb::cpu
