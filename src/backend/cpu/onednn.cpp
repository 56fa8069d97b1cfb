// oneDNN 2.x behind the structs of onednn.h. https://oneapi-src.github.io/oneDNN/v2.6/
#include "backend/cpu/onednn.h"

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "backend/cpu/onednn_faults.h"
#include "base/error.h"
#include "core/image_limits.h"

namespace ebb::cpu {

using dnnl::memory;
using Tag = memory::format_tag;

namespace detail {

// A copy between the plain layout of the caller and the one the primitive wants. `view` is what is
// copied of the packed tensor: all of it, unless the primitive computes more than was asked for.
struct Packing {
  dnnl::reorder primitive;
  memory::desc plain, packed, view, scratch;
};

// Scratch memory is laid out as [packed operand][primitive's own][packing's own].
struct Prepared {
  const unsigned isa = onednn_isa();  // fixed before oneDNN is asked for anything
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::string implementation;
  memory::desc scratch;
  std::optional<Packing> packing;
  bool packs_result = false;                   // the packed operand is written, not read
  std::unordered_map<int, memory::desc> args;  // DNNL_ARG_* -> layout the caller uses
  int packed_arg = 0;
  int64_t scratch_bytes = 0;
};

}  // namespace detail

namespace {

using detail::Packing;
using detail::Prepared;
using Pointers = std::unordered_map<int, void*>;

constexpr int64_t kAlign = 128;

int64_t rounded(size_t bytes) {
  return (static_cast<int64_t>(bytes) + kAlign - 1) / kAlign * kAlign;
}

memory::data_type type_of(DType t) {
  switch (t) {
    case DType::f32: return memory::data_type::f32;
    case DType::bf16: return memory::data_type::bf16;
    case DType::i32: return memory::data_type::s32;
    case DType::u8: return memory::data_type::u8;
    default: break;
  }
  fail("onednn: no type of oneDNN for ", t);
}

// Turns an exception of oneDNN into an Error that names the problem.
template <class Problem, class F>
auto named(const char* what, const Problem& p, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    fail(what, ": oneDNN refuses the problem (", e.what(), ", status ", static_cast<int>(e.status),
         ")  ", to_string(p));
  }
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// Packs operand `arg` between `plain` and what the primitive wants, if they differ. Of dims in
// which `wanted` is larger than `plain`, the first indices count.
void pack(Prepared& p, int arg, const memory::desc& plain, const memory::desc& wanted) {
  p.args[arg] = plain;
  if (plain == wanted) return;
  const memory::dims origin(plain.dims().size(), 0);
  const memory::desc view =
      plain.dims() == wanted.dims() ? wanted : wanted.submemory_desc(plain.dims(), origin);
  const memory::desc& from = p.packs_result ? view : plain;
  const memory::desc& to = p.packs_result ? plain : view;
  const dnnl::reorder::primitive_desc pd(p.engine, from, p.engine, to, attributes());
  p.packing = Packing{dnnl::reorder(pd), plain, wanted, view, pd.scratchpad_desc()};
  p.packed_arg = arg;
}

// Takes the primitive and adds up the scratch memory; after pack().
template <class Desc, class Primitive>
void finish(Prepared& p, const Desc& desc, const Primitive& primitive) {
  p.primitive = primitive;
  p.implementation = desc.impl_info_str();
  p.scratch = desc.scratchpad_desc();
  int64_t bytes = rounded(p.scratch.get_size());
  if (p.packing) {
    bytes += rounded(p.packing->packed.get_size()) + rounded(p.packing->scratch.get_size());
  }
  p.scratch_bytes = bytes == 0 ? 0 : bytes + kAlign;
}

char* aligned(void* scratch) {
  const auto at = reinterpret_cast<uintptr_t>(scratch);
  return reinterpret_cast<char*>((at + kAlign - 1) / kAlign * kAlign);
}

void run_packing(const Prepared& p, void* plain, void* packed, void* scratch) {
  const Packing& k = *p.packing;
  const memory outside(k.plain, p.engine, plain);
  const memory inside(k.view, p.engine, packed);
  dnnl::stream stream = p.stream;
  k.primitive.execute(stream, {{DNNL_ARG_FROM, p.packs_result ? inside : outside},
                               {DNNL_ARG_TO, p.packs_result ? outside : inside},
                               {DNNL_ARG_SCRATCHPAD, memory(k.scratch, p.engine, scratch)}});
}

void run_prepared(const Prepared& p, const Pointers& pointers, void* scratch) {
  require(scratch != nullptr || p.scratch_bytes == 0, "onednn: scratch memory is missing (",
          p.scratch_bytes, " bytes)");
  char* const packed = aligned(scratch);
  char* const own = packed + (p.packing ? rounded(p.packing->packed.get_size()) : 0);
  char* const packing_own = own + rounded(p.scratch.get_size());
  std::unordered_map<int, memory> args;
  for (const auto& [arg, desc] : p.args) {
    const bool is_packed = p.packing && arg == p.packed_arg;
    args.emplace(arg, memory(is_packed ? p.packing->packed : desc, p.engine,
                             is_packed ? packed : pointers.at(arg)));
  }
  args.emplace(DNNL_ARG_SCRATCHPAD, memory(p.scratch, p.engine, own));
  dnnl::stream stream = p.stream;
  if (p.packing && !p.packs_result) {
    run_packing(p, pointers.at(p.packed_arg), packed, packing_own);
  }
  p.primitive.execute(stream, args);
  if (p.packing && p.packs_result) {
    run_packing(p, pointers.at(p.packed_arg), packed, packing_own);
  }
  stream.wait();
}

template <class T>
void* writable(const T* p) {  // oneDNN takes inputs through void* as well
  return const_cast<void*>(static_cast<const void*>(p));
}

// ---- convolution ----

void check(const char* what, const ConvProblem& p) {
  require(p.n >= 0 && p.h > 0 && p.w > 0 && p.c > 0 && p.o > 0 && p.kh > 0 && p.kw > 0, what,
          ": sizes must be positive  ", to_string(p));
  require(p.stride > 0, what, ": stride (", p.stride, ") must be positive  ", to_string(p));
  require(p.top >= 0 && p.left >= 0 && p.bottom >= 0 && p.right >= 0, what,
          ": padding must not be negative  ", to_string(p));
  require(p.h + p.top + p.bottom >= p.kh && p.w + p.left + p.right >= p.kw, what,
          ": the kernel must fit into the padded image  ", to_string(p));
  // oneDNN counts pixels of 16 channels in 32 bits, and divides by the count
  const int64_t pixels = std::max(p.h * p.w, p.out_h() * p.out_w());
  require(pixels < most_image_pixels, what, ": a processor computes images of less than ",
          most_image_pixels, " pixels (got ", pixels, ")  ", to_string(p));
  for (const DType t : {p.src, p.dst, p.weights, p.bias.value_or(DType::f32)}) {
    require(onednn_supports(t), what, ": this machine has no ", t, " products  ", to_string(p));
  }
}

// Layouts of a convolution that computes in `type`; `any` weights are oneDNN's choice.
struct ConvDescs {
  memory::desc src, weights, plain_weights, bias, dst;
  memory::dims strides, before, after;
};

ConvDescs conv_descs(const ConvProblem& p, DType weights_type) {
  ConvDescs d;
  const memory::dims weights{p.o, p.c, p.kh, p.kw};
  d.src = memory::desc({p.n, p.c, p.h, p.w}, type_of(p.src), Tag::nhwc);
  d.weights = memory::desc(weights, type_of(weights_type), Tag::any);
  d.plain_weights = memory::desc(weights, type_of(p.weights), Tag::ohwi);
  if (p.bias) d.bias = memory::desc({p.o}, type_of(*p.bias), Tag::a);
  d.dst = memory::desc({p.n, p.o, p.out_h(), p.out_w()}, type_of(p.dst), Tag::nhwc);
  d.strides = {p.stride, p.stride};
  d.before = {p.top, p.left};
  d.after = {p.bottom, p.right};
  return d;
}

using Forward = dnnl::convolution_forward;

// oneDNN asks for a forward description as a hint of every backward one. A gradient may be asked
// for in types that have no forward pass, so the hint has the type of `src` throughout.
Forward::primitive_desc forward_hint(const dnnl::engine& engine, const ConvProblem& p,
                                     DType compute) {
  ConvProblem q = p;
  q.src = q.dst = q.weights = compute;
  q.bias.reset();
  const ConvDescs d = conv_descs(q, compute);
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, d.src, d.weights,
           d.dst, d.strides, d.before, d.after},
          engine};
}

}  // namespace

bool onednn_supports(DType dtype) {
  if (dtype == DType::f32) return true;
  const auto avx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return dtype == DType::bf16 && (onednn_isa() & avx512) == avx512;
}

// Tiles (AMX) multiply bf16 sixteen times as fast as vectors multiply f32. The vector instruction
// for pairs of bf16 does twice as much as one for f32, but Intel's processors start one a cycle in
// place of two, and both kinds of operands have to be interleaved: 0.285 against 0.390 TFLOP/s on a
// Xeon of 2023 without AMX. AMD's start as many of either.
bool onednn_fast_in(DType dtype) {
  if (dtype == DType::f32) return true;
  const auto has = [](dnnl::cpu_isa isa) {
    return (onednn_isa() & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
  };
  return dtype == DType::bf16 &&
         (has(dnnl::cpu_isa::avx512_core_amx) ||
          (has(dnnl::cpu_isa::avx512_core_bf16) && __builtin_cpu_is("amd") != 0));
}

std::string to_string(const ConvProblem& p) {
  const auto of = [](DType t, int64_t n, int64_t h, int64_t w, int64_t c) {
    return str(t, '[', n, ',', h, ',', w, ',', c, ']');
  };
  const bool has_output = p.stride > 0;
  std::string text = str(
      "src: ", of(p.src, p.n, p.h, p.w, p.c), "  weights: ", of(p.weights, p.o, p.kh, p.kw, p.c),
      "  dst: ", of(p.dst, p.n, has_output ? p.out_h() : 0, has_output ? p.out_w() : 0, p.o),
      "  stride: ", p.stride, "  padding: ", p.top, ',', p.left, ',', p.bottom, ',', p.right);
  return p.bias ? text + str("  bias: ", *p.bias) : text;
}

int64_t OneDnnCall::scratch_bytes() const { return prepared_ ? prepared_->scratch_bytes : 0; }

std::string OneDnnCall::implementation() const {
  return prepared_ ? prepared_->implementation : "none";
}

ConvForward::ConvForward(const ConvProblem& p) {
  check("conv2d", p);
  if (p.n == 0) return;
  prepared_ = named("conv2d", p, [&] {
    const ConvDescs d = conv_descs(p, p.src);
    auto r = std::make_shared<Prepared>();
    const Forward::primitive_desc pd(
        {dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, d.src, d.weights,
         d.bias, d.dst, d.strides, d.before, d.after},
        attributes(), r->engine);
    r->args = {{DNNL_ARG_SRC, d.src}, {DNNL_ARG_DST, d.dst}};
    if (p.bias) r->args[DNNL_ARG_BIAS] = d.bias;
    pack(*r, DNNL_ARG_WEIGHTS, d.plain_weights, pd.weights_desc());
    finish(*r, pd, Forward(pd));
    return r;
  });
}

void ConvForward::run(const Args& a) const {
  if (!prepared_) return;
  run_prepared(*prepared_,
               {{DNNL_ARG_SRC, writable(a.src)},
                {DNNL_ARG_WEIGHTS, writable(a.weights)},
                {DNNL_ARG_BIAS, writable(a.bias)},
                {DNNL_ARG_DST, a.dst}},
               a.scratch);
}

ConvBackwardData::ConvBackwardData(const ConvProblem& p) {
  check("conv2d gradient of src", p);
  if (p.n == 0) return;
  prepared_ = named("conv2d gradient of src", p, [&] {
    using Backward = dnnl::convolution_backward_data;
    const ConvDescs d = conv_descs(p, p.dst);
    auto r = std::make_shared<Prepared>();
    const Backward::primitive_desc pd({dnnl::algorithm::convolution_direct, d.src, d.weights, d.dst,
                                       d.strides, d.before, d.after},
                                      attributes(), r->engine, forward_hint(r->engine, p, p.dst));
    r->args = {{DNNL_ARG_DIFF_SRC, d.src}, {DNNL_ARG_DIFF_DST, d.dst}};
    pack(*r, DNNL_ARG_WEIGHTS, d.plain_weights, pd.weights_desc());
    finish(*r, pd, Backward(pd));
    return r;
  });
}

void ConvBackwardData::run(const Args& a) const {
  if (!prepared_) return;
  run_prepared(*prepared_,
               {{DNNL_ARG_DIFF_DST, writable(a.diff_dst)},
                {DNNL_ARG_WEIGHTS, writable(a.weights)},
                {DNNL_ARG_DIFF_SRC, a.diff_src}},
               a.scratch);
}

namespace {

using BackwardWeights = dnnl::convolution_backward_weights;

BackwardWeights::primitive_desc weight_gradient(const ConvProblem& p, const dnnl::engine& engine) {
  const ConvDescs d = conv_descs(p, p.weights);
  return {{dnnl::algorithm::convolution_direct, d.src, d.weights, d.bias, d.dst, d.strides,
           d.before, d.after},
          attributes(),
          engine,
          forward_hint(engine, p, p.src)};
}

// Where the kernel that oneDNN picks is wrong, the gradient of weights with one more column, which
// pack() leaves out: that takes other code of oneDNN's.
BackwardWeights::primitive_desc right_weight_gradient(const ConvProblem& p,
                                                      const dnnl::engine& engine) {
  const auto pd = weight_gradient(p, engine);
  if (!weight_gradient_is_wrong(p, pd.impl_info_str())) return pd;
  ConvProblem wider = p;
  ++wider.kw;
  ++wider.right;
  return weight_gradient(wider, engine);
}

}  // namespace

ConvBackwardWeights::ConvBackwardWeights(const ConvProblem& p) {
  check("conv2d gradient of weights", p);
  require(p.src == p.dst, "conv2d gradient of weights: src (", p.src, ") and dst (", p.dst,
          ") must have one type  ", to_string(p));
  prepared_ = named("conv2d gradient of weights", p, [&] {
    const ConvDescs d = conv_descs(p, p.weights);
    auto r = std::make_shared<Prepared>();
    r->packs_result = true;
    r->args[DNNL_ARG_DIFF_WEIGHTS] = d.plain_weights;
    if (p.bias) r->args[DNNL_ARG_DIFF_BIAS] = d.bias;
    if (p.n == 0) {
      r->implementation = "none";
      return r;
    }
    const auto pd = right_weight_gradient(p, r->engine);
    r->args[DNNL_ARG_SRC] = d.src;
    r->args[DNNL_ARG_DIFF_DST] = d.dst;
    pack(*r, DNNL_ARG_DIFF_WEIGHTS, d.plain_weights, pd.diff_weights_desc());
    finish(*r, pd, BackwardWeights(pd));
    return r;
  });
}

void ConvBackwardWeights::run(const Args& a) const {
  const Prepared& p = *prepared_;
  const Pointers pointers{{DNNL_ARG_SRC, writable(a.src)},
                          {DNNL_ARG_DIFF_DST, writable(a.diff_dst)},
                          {DNNL_ARG_DIFF_WEIGHTS, a.diff_weights},
                          {DNNL_ARG_DIFF_BIAS, a.diff_bias}};
  if (p.primitive) return run_prepared(p, pointers, a.scratch);
  for (const auto& [arg, desc] : p.args) {  // the sum over an empty batch
    std::memset(pointers.at(arg), 0, desc.get_size());
  }
}

// ---- matrix products ----

namespace {

// Packing b costs k*n moves for m*n*k multiply-adds: measured to pay from about this many rows.
constexpr int64_t kPackRows = 2048;

void check(const MatmulProblem& p) {
  require(p.batch >= 0 && p.heads >= 0 && p.m >= 0 && p.n >= 0 && p.k > 0,
          "matmul: sizes must not be negative, k positive  ", to_string(p));
  require(p.a == p.b, "matmul: a (", p.a, ") and b (", p.b, ") must have one type  ", to_string(p));
  for (const DType t : {p.a, p.c, p.bias.value_or(DType::f32)}) {
    require(onednn_supports(t), "matmul: this machine has no ", t, " products  ", to_string(p));
  }
}

// The matrix [rows, cols] of every batch and head; oneDNN sees two dims if there is one matrix.
memory::desc matrix(const MatmulProblem& p, DType type, std::pair<int64_t, int64_t> size,
                    const MatrixLayout& layout) {
  const auto [rows, cols] = size;
  MatrixLayout::Strides s;
  s.row = layout.transposed ? rows : cols;
  s.head = rows * cols;
  s.batch = s.head * p.heads;
  if (layout.strides) s = *layout.strides;
  const int64_t down = layout.transposed ? 1 : s.row;
  const int64_t right = layout.transposed ? s.row : 1;
  if (p.batch * p.heads == 1) return {{rows, cols}, type_of(type), memory::dims{down, right}};
  // A dim of size 1 has a stride that means nothing; oneDNN's fast code wants the dense one.
  if (p.heads == 1 || p.batch == 1) {
    const int64_t step = p.heads == 1 ? s.batch : s.head;
    return {{p.batch * p.heads, rows, cols}, type_of(type), memory::dims{step, down, right}};
  }
  return {
      {p.batch, p.heads, rows, cols}, type_of(type), memory::dims{s.batch, s.head, down, right}};
}

}  // namespace

std::string to_string(const MatmulProblem& p) {
  const auto of = [&](const char* name, DType t, int64_t rows, int64_t cols) {
    return str(name, t, '[', p.batch, ',', p.heads, ',', rows, ',', cols, ']');
  };
  std::string text = of("a: ", p.a, p.m, p.k) + (p.a_layout.transposed ? " transposed" : "") +
                     of("  b: ", p.b, p.k, p.n) + (p.b_layout.transposed ? " transposed" : "") +
                     of("  c: ", p.c, p.m, p.n);
  if (p.bias) text += str("  bias: ", *p.bias);
  return p.accumulate ? text + "  accumulating" : text;
}

Matmul::Matmul(const MatmulProblem& p) {
  check(p);
  if (p.batch == 0 || p.heads == 0 || p.m == 0 || p.n == 0) return;
  prepared_ = named("matmul", p, [&] {
    auto r = std::make_shared<Prepared>();
    const memory::desc a = matrix(p, p.a, {p.m, p.k}, p.a_layout);
    const memory::desc b = matrix(p, p.b, {p.k, p.n}, p.b_layout);
    const memory::desc c = matrix(p, p.c, {p.m, p.n}, {false, p.c_strides});
    memory::dims bias_dims(c.dims().size(), 1), bias_strides(c.dims().size(), p.n);
    bias_dims.back() = p.n;
    bias_strides.back() = 1;
    const memory::desc bias =
        p.bias ? memory::desc(bias_dims, type_of(*p.bias), bias_strides) : memory::desc();
    const bool packs = p.batch * p.heads == 1 && p.m >= kPackRows;
    const memory::desc wanted = packs ? memory::desc({p.k, p.n}, type_of(p.b), Tag::any) : b;
    dnnl::primitive_attr attr = attributes();
    if (p.accumulate) {
      dnnl::post_ops post;
      post.append_sum(1.0f);
      attr.set_post_ops(post);
    }
    const dnnl::matmul::primitive_desc pd({a, wanted, bias, c}, attr, r->engine);
    r->args = {{DNNL_ARG_SRC, a}, {DNNL_ARG_DST, c}};
    if (p.bias) r->args[DNNL_ARG_BIAS] = bias;
    pack(*r, DNNL_ARG_WEIGHTS, b, pd.weights_desc());
    finish(*r, pd, dnnl::matmul(pd));
    return r;
  });
}

void Matmul::run(const Args& a) const {
  if (!prepared_) return;
  run_prepared(*prepared_,
               {{DNNL_ARG_SRC, writable(a.a)},
                {DNNL_ARG_WEIGHTS, writable(a.b)},
                {DNNL_ARG_BIAS, writable(a.bias)},
                {DNNL_ARG_DST, a.c}},
               a.scratch);
}

}  // namespace ebb::cpu
