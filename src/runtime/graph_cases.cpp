// The graphs that `ebb bench` times on accelerators, in bf16 with f32 parameters of norms.
#include "ops/adamw/op.h"
#include "ops/exp/op.h"
#include "ops/gelu/op.h"
#include "ops/group_norm/op.h"
#include "ops/layer_norm/op.h"
#include "ops/modulate/op.h"
#include "ops/mul/op.h"
#include "ops/prim/attention/op.h"
#include "ops/prim/attention_grad/op.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dw/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/rms_norm/op.h"
#include "ops/sigmoid/op.h"
#include "ops/silu/op.h"
#include "ops/sin/op.h"
#include "ops/softmax/op.h"
#include "ops/split/op.h"
#include "ops/tanh/op.h"
#include "passes/gradients.h"
#include "runtime/graph_bench.h"

namespace ebb {
namespace {

constexpr DType low = DType::bf16;

Type f32(Shape shape) { return {DType::f32, std::move(shape)}; }

// ---- convolutions: 3x3, NHWC ---------------------------------------------------------------

struct Conv {
  int64_t batch, in, out, size;
};
constexpr Conv convs[] = {{32, 64, 64, 64},   {32, 192, 64, 64},   {32, 128, 128, 32},
                          {32, 256, 256, 8},  {32, 192, 192, 64},  {32, 384, 384, 32},
                          {32, 768, 768, 8},  {2, 320, 320, 64},   {2, 320, 320, 128},
                          {2, 640, 640, 64},  {2, 1280, 1280, 32}, {1, 512, 512, 512},
                          {1, 128, 128, 1024}};

void add_convs(std::vector<GraphCase>& out) {
  const std::vector<int64_t> pad = {1, 1, 1, 1};
  for (const Conv& c : convs) {
    const std::string label = str(c.batch, "x", c.size, "x", c.size, "_", c.in, "_to_", c.out);
    const Type x = f32({c.batch, c.size, c.size, c.in}), y = f32({c.batch, c.size, c.size, c.out});
    const Type w = f32({c.out, 3, 3, c.in});
    out.push_back(one_op_case(ops::def::conv2d(), {label, ops::Conv2d{.pad = pad}, {x, w}}, low));
    out.push_back(one_op_case(ops::def::conv2d_dx(),
                              {label, ops::Conv2dDx{.pad = pad, .size = {c.size, c.size}}, {y, w}},
                              low));
    out.push_back(one_op_case(
        ops::def::conv2d_dw(),
        {label, ops::Conv2dDw{.pad = pad, .kernel = {3, 3}, .bias = false}, {x, y}}, low));
  }
}

// ---- attention -----------------------------------------------------------------------------

struct Heads {
  int64_t batch, heads, queries, keys, width;
  bool gradient = false;
  bool causal = false, lengths = false;
  bool bias = false;  // of heads, queries and keys
};
constexpr Heads attentions[] = {
    {1, 24, 4608, 4608, 128},
    {2, 10, 4096, 4096, 64},
    {2, 20, 1024, 1024, 64},
    {2, 8, 4096, 4096, 40},
    // SD 1.5 in training.
    {16, 8, 4096, 4096, 40, true},
    {16, 8, 1024, 1024, 80, true},
    {64, 16, 256, 256, 72, true},
    {32, 6, 256, 256, 32, true},
    {16, 16, 1024, 1024, 64, true},
    {32, 9, 256, 256, 64, true},
    {32, 12, 64, 64, 64, true},
    {32, 8, 64, 64, 32, true},
    // Text states in the attention of SD 1.x, SD 2.x and SDXL, with long prompts too.
    {2, 8, 4096, 77, 40, true},
    {2, 8, 1024, 77, 80},
    {2, 8, 256, 77, 160},
    {2, 8, 64, 77, 160},
    {2, 10, 4096, 77, 64, true},
    {2, 10, 4096, 154, 64},
    {2, 10, 4096, 231, 64},
    // Text encoders: CLIP's three widths, one that sees far, T5 with its bias; masked states.
    {2, 12, 77, 77, 64, false, true},
    {2, 16, 77, 77, 64, false, true},
    {2, 20, 77, 77, 64, true, true},
    {1, 32, 1024, 1024, 128, true, true},
    {1, 64, 512, 512, 64, true, false, false, true},
    {2, 16, 4096, 300, 72, true, false, true}};

// The attributes and the inputs behind q, k and v.
Example example_of(const Heads& h) {
  const Type q = f32({h.batch, h.queries, h.heads, h.width});
  const Type k = f32({h.batch, h.keys, h.heads, h.width});
  const ops::Attention attrs{.causal = h.causal, .bias = h.bias, .key_lengths = h.lengths};
  Example e{
      .label = str(h.batch, "x", h.heads, "_", h.queries, "_", h.keys, "_", h.width,
                   h.causal ? "_causal" : "", h.bias ? "_bias" : "", h.lengths ? "_lengths" : ""),
      .attrs = attrs,
      .in = {q, k, k}};
  if (h.bias) e.in.push_back(f32({1, h.heads, h.queries, h.keys}));
  if (h.lengths) {
    e.in.push_back({DType::i64, {h.batch}});
    e.integers = h.keys + 1;
  }
  return e;
}

void add_attentions(std::vector<GraphCase>& out) {
  for (const Heads& h : attentions) {
    Example e = example_of(h);
    out.push_back(one_op_case(ops::def::attention(), e, low));
    if (!h.gradient) continue;
    const Type o = e.in[0], lse = f32({h.batch, h.heads, h.queries});
    e.in.insert(e.in.end(), {o, lse, o});
    GraphCase g{.op = "attention_grad", .example = e.label, .dtype = low, .integers = e.integers};
    std::vector<Value> in;
    for (const Type& t : e.in) {
      const bool kept = t == lse || !is_float(t.dtype);
      in.push_back(g.graph.input(str("x", in.size()), kept ? t : Type{low, t.shape}));
    }
    for (const Value& y : g.graph.add(ops::def::attention_grad(), e.attrs, in))
      g.graph.output(str("y", g.graph.outputs().size()), y);
    out.push_back(std::move(g));
  }
}

// ---- matmuls -------------------------------------------------------------------------------

void add_products(std::vector<GraphCase>& out) {
  const auto add = [&](const std::string& label, const ops::Matmul& a, Shape x, Shape y) {
    out.push_back(one_op_case(ops::def::matmul(), {label, a, {f32(x), f32(y)}}, low));
  };
  for (const int64_t n : {4096, 8192}) add(str("square_", n), {.trans_b = true}, {n, n}, {n, n});
  // The layers of DiT-XL/2 on 64 images: forward, input gradient, weight gradient.
  constexpr int64_t tokens = 16384, width = 1152;
  struct Layer {
    const char* name;
    int64_t in, out;
  };
  for (const Layer& l : {Layer{"qkv", width, 3 * width},
                         {"proj", width, width},
                         {"fc1", width, 4 * width},
                         {"fc2", 4 * width, width}}) {
    add(str("dit_", l.name), {.trans_b = true}, {tokens, l.in}, {l.out, l.in});
    add(str("dit_", l.name, "_dx"), {}, {tokens, l.out}, {l.out, l.in});
    add(str("dit_", l.name, "_dw"), {.trans_a = true, .dtype = DType::f32}, {tokens, l.out},
        {tokens, l.in});
  }
}

// The gated layers of transformers: in SDXL's of two widths, and one as wide as DiT-XL/2.
void add_gated_layers(std::vector<GraphCase>& out) {
  struct Layer {
    const char* op;
    int64_t tokens, in, half;
  };
  for (const Layer& l : {Layer{"linear_geglu", 8192, 1280, 5120},
                         {"linear_geglu", 4096, 640, 2560},
                         {"linear_swiglu", 16384, 1152, 3072}}) {
    GraphCase c{.op = l.op, .example = str(l.tokens, "_", l.in, "_to_", l.half), .dtype = low};
    const auto in = [&](const char* name, Shape shape) {
      return c.graph.input(name, {low, std::move(shape)});
    };
    const Value z =
        ops::linear(in("x", {l.tokens, l.in}), in("w", {2 * l.half, l.in}), in("b", {2 * l.half}));
    const auto half = ops::split(z, 1, 2);
    const bool silu = c.op == "linear_swiglu";
    c.graph.output("y", silu ? ops::silu(half[0]) * half[1] : half[0] * ops::gelu(half[1]));
    out.push_back(std::move(c));
  }
}

// ---- norms and what is around them ---------------------------------------------------------

template <class F>
GraphCase case_of(const char* op, const Shape& shape, F build, DType dtype = low) {
  GraphCase c{.op = op, .example = str(shape), .dtype = dtype};
  c.graph.output("y", build(c.graph, c.graph.input("x", {dtype, shape})));
  return c;
}

// The gradients of all inputs of a case, from its inputs and the gradient of its result; what they
// need of the forward pass is recomputed.
GraphCase gradient_of(const GraphCase& forward) {
  GraphCase c = forward;
  std::vector<std::string> wrt;
  for (const Source& s : c.graph.sources()) wrt.push_back(s.name);
  const Value y = c.graph.take_output("y");
  const Value weighted = y * c.graph.input("dy", y.type());
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < weighted.shape().rank(); ++d) dims.push_back(d);
  c.graph.output("loss", ops::reshape(ops::sum(weighted, dims), {}));
  c.graph = gradients(c.graph, "loss", wrt);
  c.graph.take_output("loss");
  c.op += "_grad";
  return c;
}

void add_norms(std::vector<GraphCase>& out) {
  const size_t first = out.size();
  for (const Shape& s : {Shape{1, 1024, 2048},
                         {2, 1024, 2048},
                         {4, 1024, 2048},
                         {2, 4096, 3072},
                         {4, 4096, 3072},
                         {8, 8192, 4096}})
    out.push_back(case_of("rms_norm", s, [&](Graph& g, Value x) {
      return ops::rms_norm(x, g.input("gamma", f32({s[-1]})), {});
    }));
  out.push_back(case_of("ada_ln", {2, 4096, 3072}, [](Graph& g, Value x) {
    return ops::modulate(ops::layer_norm(x, {}, {}, {.eps = 1e-6}),
                         g.input("shift", {low, {2, 3072}}), g.input("scale", {low, {2, 3072}}));
  }));
  out.push_back(case_of("layer_norm", {64, 256, 1152}, [](Graph& g, Value x) {
    return ops::layer_norm(x, g.input("gamma", f32({1152})), g.input("beta", f32({1152})), {});
  }));
  out.push_back(case_of("geglu", {2, 4096, 20480}, [](Graph&, Value x) {
    const auto half = ops::split(x, 2, 2);
    return half[0] * ops::gelu(half[1]);
  }));
  for (const Shape& s : {Shape{2, 128, 128, 320}, {32, 64, 64, 192}})
    out.push_back(case_of("group_norm_silu", s, [&](Graph& g, Value x) {
      return ops::silu(ops::group_norm(x, g.input("gamma", f32({s[-1]})),
                                       g.input("beta", f32({s[-1]})), {.groups = 32}));
    }));
  for (size_t i = first, last = out.size(); i < last; ++i)
    if (out[i].op != "geglu") out.push_back(gradient_of(out[i]));
}

// What the elementary functions of generated kernels cost: in bf16 arithmetic counts, in f32
// memory.
void add_functions(std::vector<GraphCase>& out) {
  const std::pair<const char*, Value (*)(Value)> functions[] = {
      {"exp", ops::exp},   {"sigmoid", ops::sigmoid}, {"sin", ops::sin},
      {"tanh", ops::tanh}, {"gelu", ops::gelu},
  };
  for (const DType dtype : {low, DType::f32}) {
    const auto add = [&](const char* op, const Shape& shape, Value (*function)(Value)) {
      out.push_back(case_of(
          op, shape, [&](Graph&, Value x) { return function(x); }, dtype));
      if (dtype != low) out.back().example += "_f32";
    };
    for (const auto& [op, function] : functions) add(op, {64 << 20}, function);
    add("softmax", {16384, 1152}, ops::softmax);
    add("softmax", {16384, 4096}, ops::softmax);
  }
}

void add_adamw(std::vector<GraphCase>& out) {
  GraphCase c{.op = "adamw", .example = "64m", .low = 0.1, .high = 1};
  Graph& g = c.graph;
  const auto in = [&](const char* name, Shape shape) {
    return g.input(name, f32(std::move(shape)));
  };
  const Shape all{64 << 20};
  const auto r = ops::adamw({.p = in("p", all),
                             .g = in("g", all),
                             .m = in("m", all),
                             .v = in("v", all),
                             .lr = in("lr", {}),
                             .c1 = in("c1", {}),
                             .c2 = in("c2", {}),
                             .clip = in("clip", {})},
                            {});
  g.output("p2", r.p);
  g.output("m2", r.m);
  g.output("v2", r.v);
  out.push_back(std::move(c));
}

}  // namespace

std::vector<GraphCase> graph_cases() {
  std::vector<GraphCase> out;
  add_products(out);
  add_gated_layers(out);
  add_convs(out);
  add_attentions(out);
  add_norms(out);
  add_functions(out);
  add_adamw(out);
  return out;
}

}  // namespace ebb
