#include "ops/prim/matmul/examples.h"

#include "ops/prim/activation.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops {

namespace {

// The sum of part `p` of the products and of the bias, if there is one.
Scalar sum_of_part(int64_t p, int64_t parts, bool bias) {
  const Scalar z = Scalar::input(p);
  return bias ? z + Scalar::input(parts + p) : z;
}

}  // namespace

Epilogue activation_epilogue(const Expr& act, bool bias, bool keep) {
  const int64_t parts = act.inputs();
  std::vector<Scalar> z;
  for (int64_t p = 0; p < parts; ++p) z.push_back(sum_of_part(p, parts, bias));
  std::vector<Scalar> results = act.apply(z);
  if (keep) results.insert(results.end(), z.begin(), z.end());
  return {Expr(bias ? 2 * parts : parts, results), parts};
}

Epilogue activation_grad_epilogue(const Expr& act, bool bias) {
  const Scalar y[] = {Scalar::input(bias ? 2 : 1)}, z[] = {sum_of_part(0, 1, bias)};
  return {Expr(bias ? 3 : 2, act.gradient(y, z)), 1};
}

Epilogue scaled_epilogue(bool bias, int64_t column) {
  const int64_t residual = bias ? 2 : 1;
  const Scalar y = Scalar::input(residual) + Scalar::input(residual + 1) * sum_of_part(0, 1, bias);
  std::vector<int64_t> columns;
  if (column > 0) {
    columns.assign(static_cast<size_t>(residual) + 1, 0);
    columns.back() = column;
  }
  return {Expr(residual + 2, {&y, 1}), 1, std::move(columns)};
}

namespace {

// Residuals and sums.
std::vector<Example> sum_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "sums",
       .attrs = Matmul{true, false, DType::f32, true},
       .in = {f32({31, 3}), f32({31, 7})}},
      {.label = "sums_of_rows",
       .attrs = Matmul{false, true, {}, true},
       .in = {f32({5, 11}), f32({7, 11}), f32({7})}},
      {.label = "edges_sums",
       .attrs = Matmul{true, false, DType::f32, true},
       .in = {f32({328, 136}), f32({328, 72})}},
      {.label = "tiles_sums",
       .attrs = Matmul{true, false, DType::f32, true},
       .in = {f32({200, 264}), f32({200, 328})}},
      {.label = "residual",
       .attrs = Matmul{false, true},
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({17}), f32({3, 5, 17})}},
      {.label = "residual_without_bias",  // no bias
       .attrs = Matmul{},
       .in = {f32({7, 13}), f32({13, 5}), f32({7, 5})}},
      {.label = "row_for_each_image",
       .attrs = Matmul{false, true, DType::f32},
       .in = {f32({3, 70, 16}), f32({24, 16}), f32({24}), f32({3, 1, 24})}},
      {.label = "edges_residual",
       .attrs = Matmul{false, true},
       .in = {f32({2, 68, 200}), f32({264, 200}), f32({264}), f32({2, 68, 264})}},
      {.label = "long_sum_residual",
       .attrs = Matmul{},
       .in = {f32({40, 1032}), f32({1032, 24}), f32({40, 24})}},
  };
}

// f32 times narrower floats.
std::vector<Example> mixed_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto f16 = [](Shape s) { return Type{DType::f16, std::move(s)}; };
  const auto bf16 = [](Shape s) { return Type{DType::bf16, std::move(s)}; };
  return {
      {.label = "mixed_linear",
       .attrs = Matmul{false, true},
       .in = {f32({3, 5, 24}), f16({17, 24}), f32({17})}},
      {.label = "mixed_bf16", .attrs = Matmul{}, .in = {f32({7, 13}), bf16({13, 5})}},
      {.label = "mixed_narrow_bias",
       .attrs = Matmul{false, true},
       .in = {f32({40, 136}), f16({72, 136}), f16({72})}},
      {.label = "mixed_batch", .attrs = Matmul{}, .in = {f32({2, 3, 5, 7}), f16({2, 3, 7, 11})}},
      {.label = "mixed_shared_a", .attrs = Matmul{}, .in = {f32({5, 7}), bf16({3, 7, 2})}},
      {.label = "mixed_residual",
       .attrs = Matmul{false, true},
       .in = {f32({3, 5, 24}), bf16({17, 24}), bf16({17}), f32({3, 5, 17})}},
      {.label = "mixed_trans_a",
       .attrs = Matmul{true, false, DType::f32},
       .in = {f32({31, 3}), bf16({31, 7})}},
  };
}

std::vector<Example> plain_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "plain", .attrs = Matmul{}, .in = {f32({7, 13}), f32({13, 5})}},
      {.label = "trans_a", .attrs = Matmul{true, false}, .in = {f32({13, 7}), f32({13, 5})}},
      {.label = "trans_both", .attrs = Matmul{true, true}, .in = {f32({13, 7}), f32({5, 13})}},
      {.label = "linear",
       .attrs = Matmul{false, true},
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({17})}},
      {.label = "f32_result",
       .attrs = Matmul{true, false, DType::f32},
       .in = {f32({31, 3}), f32({31, 7})}},
      {.label = "batch", .attrs = Matmul{}, .in = {f32({2, 3, 5, 7}), f32({2, 3, 7, 11})}},
      {.label = "batch_trans_b",
       .attrs = Matmul{false, true},
       .in = {f32({3, 5, 7}), f32({3, 2, 7}), f32({2})}},
      {.label = "shared_a", .attrs = Matmul{}, .in = {f32({5, 7}), f32({3, 7, 2})}},
      {.label = "shared_b_trans_a",
       .attrs = Matmul{true, false},
       .in = {f32({3, 7, 5}), f32({7, 2})}},
      {.label = "edges",
       .attrs = Matmul{false, true},
       .in = {f32({136, 200}), f32({264, 200}), f32({264})}},
      {.label = "edges_plain", .attrs = Matmul{}, .in = {f32({2, 72, 136}), f32({2, 136, 200})}},
      {.label = "edges_turned",
       .attrs = Matmul{true, false, DType::f32},
       .in = {f32({328, 136}), f32({328, 72})}},
      {.label = "one", .attrs = Matmul{}, .in = {f32({1, 1}), f32({1, 1})}},
      {.label = "empty", .attrs = Matmul{}, .in = {f32({0, 3, 5}), f32({5, 2})}},
      {.label = "tiles",  // more than one of the largest tile of a kernel, with remainders
       .attrs = Matmul{false, true},
       .in = {f32({264, 160}), f32({136, 160}), f32({136})}},
      {.label = "long_sum", .attrs = Matmul{}, .in = {f32({40, 1032}), f32({1032, 24})}},
      {.label = "dit_mlp",
       .attrs = Matmul{false, true},
       .in = {f32({16, 256, 384}), f32({1536, 384}), f32({1536})},
       .bench = true},
      {.label = "dit_mlp_dw",
       .attrs = Matmul{true, false, DType::f32},
       .in = {f32({4096, 1536}), f32({4096, 384})},
       .bench = true},
  };
}

// The other of two inputs times the activation of one.
Expr gate_by(const Gate& g, size_t of) {
  const Scalar x[] = {Scalar::input(0), Scalar::input(1)};
  const Scalar y = x[1 - of] * activated(g, x[of]);
  return Expr(2, {&y, 1});
}

Expr expression_of(const Gate& g) {
  const Scalar y = activated(g, Scalar::input(0));
  return Expr(1, {&y, 1});
}

constexpr Gate silu{}, gelu_tanh{.linear = 1.5957691216057308, .cubic = 0.07135481627260025},
    gelu{.erf = true};

std::vector<Example> gate_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const Expr geglu = gate_by(gelu, 1), swiglu = gate_by(silu, 0);
  const auto gate = [](const Expr& act, bool bias, bool keep = false) {
    return Matmul{.trans_b = true, .epilogue = activation_epilogue(act, bias, keep)};
  };
  return {
      {.label = "geglu",
       .attrs = gate(geglu, true),
       .in = {f32({3, 5, 11}), f32({34, 11}), f32({34})}},
      {.label = "swiglu", .attrs = gate(swiglu, false), .in = {f32({9, 16}), f32({48, 16})}},
      {.label = "gate_tanh",
       .attrs = gate(gate_by(gelu_tanh, 1), true, true),
       .in = {f32({2, 9, 16}), f32({16, 16}), f32({16})}},
      {.label = "gate_columns",
       .attrs = Matmul{.epilogue = activation_epilogue(swiglu, false, false)},
       .in = {f32({7, 13}), f32({13, 10})}},
      {.label = "gate_batch",
       .attrs = Matmul{.epilogue = activation_epilogue(geglu, false, false)},
       .in = {f32({2, 3, 7}), f32({2, 7, 16})}},
      {.label = "gate_one", .attrs = gate(geglu, true), .in = {f32({1, 8}), f32({2, 8}), f32({2})}},
      {.label = "gate_empty",
       .attrs = gate(geglu, false, true),
       .in = {f32({0, 3, 5}), f32({4, 5})}},
      {.label = "edges_gate",  // more rows than go at once through a pass behind the product
       .attrs = gate(geglu, true),
       .in = {f32({320, 200}), f32({272, 200}), f32({272})}},
      {.label = "edges_gate_kept",
       .attrs = gate(swiglu, true, true),
       .in = {f32({2, 68, 200}), f32({272, 200}), f32({272})}},
      {.label = "sdxl_geglu",
       .attrs = gate(geglu, true),
       .in = {f32({2, 4096, 1280}), f32({10240, 1280}), f32({10240})},
       .bench = true},
      {.label = "sdxl_geglu_640",
       .attrs = gate(geglu, true),
       .in = {f32({2, 4096, 640}), f32({5120, 640}), f32({5120})},
       .bench = true},
      {.label = "swiglu_1152",
       .attrs = gate(swiglu, true),
       .in = {f32({64, 256, 1152}), f32({6144, 1152}), f32({6144})},
       .bench = true},
  };
}

std::vector<Example> activation_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto act = [](const Gate& g, bool bias, bool keep) {
    return Matmul{.trans_b = true, .epilogue = activation_epilogue(expression_of(g), bias, keep)};
  };
  const auto grad = [](const Gate& g, bool trans_b = false, bool bias = false) {
    return Matmul{.trans_b = trans_b, .epilogue = activation_grad_epilogue(expression_of(g), bias)};
  };
  return {
      {.label = "silu",
       .attrs = act(silu, true, false),
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({17})}},
      {.label = "activated_batch",
       .attrs = Matmul{.epilogue = activation_epilogue(expression_of(gelu_tanh), false, false)},
       .in = {f32({2, 3, 7}), f32({2, 7, 16})}},
      {.label = "kept",
       .attrs = act(gelu_tanh, true, true),
       .in = {f32({2, 9, 16}), f32({24, 16}), f32({24})}},
      {.label = "grad", .attrs = grad(gelu_tanh), .in = {f32({7, 13}), f32({13, 5}), f32({7, 5})}},
      {.label = "grad_bias",
       .attrs = grad(silu, true, true),
       .in = {f32({3, 5, 16}), f32({24, 16}), f32({24}), f32({3, 5, 24})}},
      {.label = "empty_kept", .attrs = act(silu, false, true), .in = {f32({0, 3, 5}), f32({2, 5})}},
      {.label = "edges_kept",
       .attrs = act(silu, true, true),
       .in = {f32({136, 200}), f32({264, 200}), f32({264})}},
      {.label = "edges_grad",
       .attrs = grad(gelu_tanh),
       .in = {f32({2, 68, 200}), f32({200, 264}), f32({2, 68, 264})}},
      {.label = "long_sum_kept",  // split-K
       .attrs = act(gelu_tanh, false, true),
       .in = {f32({40, 1032}), f32({24, 1032})}},
      {.label = "long_sum_grad",
       .attrs = grad(silu),
       .in = {f32({40, 1032}), f32({1032, 24}), f32({40, 24})}},
      {.label = "dit_mlp_gelu",
       .attrs = act(gelu_tanh, true, true),
       .in = {f32({16, 256, 384}), f32({1536, 384}), f32({1536})},
       .bench = true},
      {.label = "dit_mlp_gelu_dx",
       .attrs = grad(gelu_tanh),
       .in = {f32({16, 256, 384}), f32({384, 1536}), f32({16, 256, 1536})},
       .bench = true},
      {.label = "erf",
       .attrs = act(gelu, true, true),
       .in = {f32({9, 16}), f32({24, 16}), f32({24})},
       .low = -2,
       .high = 2},
      {.label = "erf_grad",
       .attrs = grad(gelu),
       .in = {f32({9, 16}), f32({16, 24}), f32({9, 24})},
       .low = -4,
       .high = 4},
  };
}

std::vector<Example> scaled_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto scaled = [](bool bias, int64_t column = 0) {
    return Matmul{.trans_b = true, .epilogue = scaled_epilogue(bias, column)};
  };
  return {
      {.label = "scaled",
       .attrs = scaled(true, 3),
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({17}), f32({3, 5, 17}), f32({3, 1, 21})}},
      {.label = "scaled_without_bias",
       .attrs = scaled(false),
       .in = {f32({2, 4, 16}), f32({24, 16}), f32({2, 4, 24}), f32({2, 1, 24})}},
      {.label = "edges_scaled",  // a row of factors for one, or for several, tiles of a kernel
       .attrs = scaled(true, 5),
       .in = {f32({2, 256, 72}), f32({136, 72}), f32({136}), f32({2, 256, 136}), f32({2, 1, 280})}},
      {.label = "edges_scaled_without_bias",
       .attrs = scaled(false),
       .in = {f32({3, 128, 40}), f32({200, 40}), f32({3, 128, 200}), f32({3, 1, 200})}},
      {.label = "empty_scaled",
       .attrs = scaled(false),
       .in = {f32({0, 3, 5}), f32({4, 5}), f32({0, 3, 4}), f32({0, 1, 4})}},
      {.label = "dit_proj_scaled",
       .attrs = scaled(true),
       .in = {f32({64, 256, 1152}), f32({1152, 1152}), f32({1152}), f32({64, 256, 1152}),
              f32({64, 1, 6912})},
       .bench = true},
  };
}

// With further products: a layer and the two factors of its adapter.
std::vector<Example> further_product_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto layer = [](int64_t products) {
    return Matmul{.trans_b = true, .products = products, .epilogue = {}};
  };
  const auto columns = [](const Epilogue& e = {}) { return Matmul{.products = 2, .epilogue = e}; };
  Matmul gated = layer(2);
  gated.epilogue = activation_epilogue(gate_by(gelu, 1), true, true);
  return {
      {.label = "two",
       .attrs = layer(2),
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({3, 5, 4}), f32({17, 4}), f32({17})}},
      {.label = "three_columns",
       .attrs = Matmul{.products = 3, .epilogue = {}},
       .in = {f32({7, 13}), f32({13, 5}), f32({7, 2}), f32({2, 5}), f32({7, 9}), f32({9, 5})}},
      {.label = "two_gated",
       .attrs = gated,
       .in = {f32({9, 16}), f32({48, 16}), f32({9, 8}), f32({48, 8}), f32({48})}},
      {.label = "two_activation_grad",
       .attrs = columns(activation_grad_epilogue(expression_of(silu), false)),
       .in = {f32({9, 24}), f32({24, 16}), f32({9, 8}), f32({8, 16}), f32({9, 16})}},
      {.label = "edges_two",  // fewer values of k than a step
       .attrs = layer(2),
       .in = {f32({2, 68, 200}), f32({264, 200}), f32({2, 68, 16}), f32({264, 16}), f32({264}),
              f32({2, 68, 264})}},
      {.label = "edges_three_columns",  // more steps of the others than of the first
       .attrs = Matmul{.products = 3, .epilogue = {}},
       .in = {f32({136, 24}), f32({24, 200}), f32({136, 136}), f32({136, 200}), f32({136, 72}),
              f32({72, 200})}},
      {.label = "edges_two_gated",
       .attrs = gated,
       .in = {f32({2, 68, 200}), f32({272, 200}), f32({2, 68, 24}), f32({272, 24}), f32({272})}},
      {.label = "empty_two",
       .attrs = columns(),
       .in = {f32({0, 2, 3}), f32({3, 5}), f32({0, 2, 2}), f32({2, 5})}},
      {.label = "sdxl_lora",
       .attrs = layer(2),
       .in = {f32({4, 1024, 1280}), f32({3840, 1280}), f32({4, 1024, 48}), f32({3840, 48})},
       .bench = true},
      {.label = "sdxl_lora_dx",
       .attrs = columns(),
       .in = {f32({4, 1024, 3840}), f32({3840, 1280}), f32({4, 1024, 48}), f32({48, 1280})},
       .bench = true},
  };
}

}  // namespace

std::vector<Example> matmul_examples() {
  std::vector<Example> all;
  for (const auto& some :
       {plain_examples(), sum_examples(), mixed_examples(), activation_examples(), gate_examples(),
        scaled_examples(), further_product_examples()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace ebb::ops
