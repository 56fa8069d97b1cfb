// Uses of attention for tests and benches: widths, masks, grouped heads, views.
#include "ops/prim/attention/op.h"

namespace ebb::ops {
namespace {

Example example(std::string label, Shape q, Shape k, Attention attrs = {}) {
  return {.label = std::move(label),
          .attrs = attrs,
          .in = {{DType::f32, q}, {DType::f32, k}, {DType::f32, k}}};
}

Example packed_example(std::string label, Shape qkv, Attention attrs = {}) {
  attrs.packed = true;
  return {.label = std::move(label), .attrs = attrs, .in = {{DType::f32, qkv}}};
}

Example with_bias(Example e, Shape bias) {
  Attention attrs = e.attrs.as<Attention>();
  attrs.bias = true;
  e.attrs = attrs;
  e.in.push_back({DType::f32, bias});
  return e;
}

// Samples have 0 to S keys.
Example with_lengths(Example e) {
  Attention attrs = e.attrs.as<Attention>();
  attrs.key_lengths = true;
  e.attrs = attrs;
  e.integers = (attrs.packed ? e.in[0] : e.in[1]).shape[1] + 1;
  e.in.push_back({DType::i64, {e.in[0].shape[0]}});
  return e;
}

std::vector<Example> plain_examples() {
  Example peaked = example("peaked", {1, 9, 2, 16}, {1, 17, 2, 16}, {0.5});
  peaked.low = -4, peaked.high = 4;
  return {example("self", {2, 13, 3, 8}, {2, 13, 3, 8}),
          example("cross", {2, 5, 2, 32}, {2, 77, 2, 32}),
          example("odd_width", {1, 7, 1, 5}, {1, 11, 1, 5}, {0.3}),
          example("blocks", {1, 131, 1, 16}, {1, 269, 1, 16}),
          example("width_40", {1, 66, 2, 40}, {1, 40, 2, 40}),
          example("width_72", {2, 33, 1, 72}, {2, 100, 1, 72}),
          example("width_128", {1, 20, 2, 128}, {1, 70, 2, 128}),
          example("width_160", {1, 20, 1, 160}, {1, 33, 1, 160}),
          example("width_328", {1, 70, 1, 328}, {1, 150, 1, 328}),
          example("width_512", {2, 9, 2, 512}, {2, 33, 2, 512}),
          std::move(peaked),
          packed_example("packed", {2, 37, 3, 2, 24}),
          packed_example("packed_72", {1, 140, 3, 2, 72}),
          packed_example("packed_64", {1, 200, 3, 2, 64}),
          packed_example("packed_264", {2, 40, 3, 1, 264}),
          example("one_key", {1, 3, 2, 8}, {1, 1, 2, 8}),
          example("empty", {0, 3, 2, 8}, {0, 3, 2, 8})};
}

std::vector<Example> masked_examples() {
  const Attention causal{.causal = true};
  return {example("causal", {2, 13, 3, 8}, {2, 13, 3, 8}, causal),
          example("causal_77", {2, 77, 2, 64}, {2, 77, 2, 64}, causal),
          example("causal_more_keys", {1, 131, 1, 40}, {1, 269, 1, 40}, causal),
          example("causal_more_queries", {1, 150, 2, 16}, {1, 67, 2, 16}, causal),
          example("causal_blocks", {1, 300, 1, 72}, {1, 300, 1, 72}, causal),
          example("causal_128", {1, 290, 1, 128}, {1, 290, 1, 128}, causal),
          example("causal_256", {1, 130, 1, 256}, {1, 141, 1, 256}, causal),
          packed_example("packed_causal", {2, 77, 3, 2, 64}, causal),
          packed_example("packed_causal_264", {1, 33, 3, 1, 264}, causal),
          with_lengths(example("lengths", {5, 9, 2, 32}, {5, 77, 2, 32})),
          with_lengths(example("lengths_160", {3, 70, 1, 160}, {3, 154, 1, 160})),
          with_lengths(example("lengths_causal", {4, 40, 1, 80}, {4, 53, 1, 80}, causal)),
          with_lengths(packed_example("packed_lengths", {4, 66, 3, 2, 40}, causal)),
          with_lengths(example("lengths_one_key", {4, 5, 2, 24}, {4, 1, 2, 24})),
          with_bias(example("bias", {2, 33, 2, 64}, {2, 33, 2, 64}, {0.25}), {1, 2, 33, 33}),
          with_bias(example("bias_231", {1, 70, 2, 40}, {1, 231, 2, 40}), {1, 1, 70, 231}),
          with_bias(example("bias_keys", {3, 21, 2, 72}, {3, 77, 2, 72}), {3, 1, 1, 77}),
          with_bias(example("bias_heads", {2, 9, 3, 128}, {2, 98, 3, 128}), {2, 3, 1, 98}),
          with_bias(example("bias_160", {2, 9, 1, 160}, {2, 70, 1, 160}), {2, 1, 9, 70}),
          with_bias(example("bias_odd", {1, 7, 1, 5}, {1, 11, 1, 5}, causal), {1, 1, 7, 11}),
          with_bias(packed_example("packed_bias", {2, 37, 3, 2, 24}, causal), {1, 2, 37, 37}),
          with_lengths(
              with_bias(example("all", {3, 66, 2, 64}, {3, 140, 2, 64}, causal), {3, 2, 66, 140})),
          with_lengths(
              with_bias(packed_example("packed_all", {3, 20, 3, 1, 80}, causal), {1, 1, 20, 20}))};
}

// Heads of k and v that several query heads read.
std::vector<Example> grouped_examples() {
  const Attention causal{.causal = true};
  return {example("group_2", {2, 13, 4, 8}, {2, 19, 2, 8}),
          example("group_4", {1, 35, 8, 64}, {1, 70, 2, 64}),
          example("group_3_odd", {3, 7, 3, 5}, {3, 11, 1, 5}),
          example("group_width_72", {1, 33, 4, 72}, {1, 100, 2, 72}),
          example("group_width_128", {1, 70, 4, 128}, {1, 150, 1, 128}),
          example("group_width_264", {2, 9, 2, 264}, {2, 70, 1, 264}),
          example("group_long", {1, 260, 2, 40}, {1, 260, 1, 40}),
          example("group_causal", {1, 77, 4, 64}, {1, 77, 2, 64}, causal),
          example("group_causal_128", {1, 131, 2, 128}, {1, 140, 1, 128}, causal),
          with_lengths(example("group_lengths", {3, 66, 6, 32}, {3, 66, 2, 32}, causal)),
          with_bias(example("group_bias", {2, 21, 4, 80}, {2, 98, 2, 80}), {2, 4, 21, 98})};
}

// An operand that is `view` of an input of shape `input`.
Example with_view(Example e, size_t operand, Shape input, StridedView view) {
  Attention attrs = e.attrs.as<Attention>();
  attrs.views.set(operand, std::move(view));
  e.attrs = attrs;
  e.in[operand].shape = std::move(input);
  return e;
}
// q, k, v and o with heads before tokens.
Example heads_first(Example e) {
  Attention attrs = e.attrs.as<Attention>();
  const Shape q = e.in[0].shape;
  for (size_t i = 0; i < 3; ++i) {
    const Shape s = e.in[i].shape, input{s[0], s[2], s[1], s[3]};
    attrs.views.set(i, permuted(dense_view(input), {0, 2, 1, 3}));
    e.in[i].shape = input;
  }
  const Shape o{q[0], q[2], q[1], q[3]};
  attrs.result_views.set(0, {0, o, permuted(dense_view(o), {0, 2, 1, 3}).strides});
  e.attrs = attrs;
  return e;
}
// q, k and v side by side in the rows of one tensor of `rows`, the heads in [N,T,A+2H,K].
Example in_one(Example e) {
  const Shape q = e.in[0].shape, k = e.in[1].shape;
  const Shape input{q[0], q[1], q[2] + 2 * k[2], q[3]};
  const StridedView all = dense_view(input);
  int64_t head = 0;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t heads = e.in[i].shape[2];
    e = with_view(std::move(e), i, input, sliced(all, 2, head, head + heads));
    head += heads;
  }
  return e;
}
// k and v are tokens [first, first + S) of longer tensors, and q its last ones of `all`.
Example of_tokens(Example e, int64_t all, int64_t first) {
  for (size_t i = 0; i < 3; ++i) {
    const Shape s = e.in[i].shape, input{s[0], all, s[2], s[3]};
    const int64_t begin = i == 0 ? all - s[1] : first;
    e = with_view(std::move(e), i, input, sliced(dense_view(input), 1, begin, begin + s[1]));
  }
  return e;
}

std::vector<Example> viewed_examples() {
  const Attention causal{.causal = true};
  return {
      heads_first(example("heads_first", {2, 13, 3, 8}, {2, 13, 3, 8})),
      heads_first(example("heads_first_64", {2, 130, 2, 64}, {2, 150, 2, 64})),
      heads_first(example("heads_first_72", {2, 70, 2, 72}, {2, 140, 2, 72})),
      heads_first(example("heads_first_128", {2, 290, 1, 128}, {2, 290, 1, 128}, causal)),
      heads_first(example("heads_first_264", {1, 70, 2, 264}, {1, 150, 2, 264})),
      heads_first(example("heads_first_group", {2, 77, 4, 64}, {2, 90, 2, 64}, causal)),
      heads_first(with_lengths(example("heads_first_lengths", {3, 66, 2, 32}, {3, 66, 2, 32}))),
      heads_first(
          with_bias(example("heads_first_bias", {2, 33, 2, 64}, {2, 33, 2, 64}), {1, 2, 33, 33})),
      in_one(example("in_one_odd", {2, 7, 3, 5}, {2, 7, 3, 5})),
      in_one(example("in_one_64", {2, 130, 2, 64}, {2, 130, 2, 64})),
      in_one(example("in_one_group", {2, 90, 4, 64}, {2, 90, 2, 64})),
      in_one(example("in_one_group_80", {2, 70, 4, 80}, {2, 70, 1, 80}, causal)),
      of_tokens(example("tokens", {2, 9, 2, 32}, {2, 40, 2, 32}), 77, 5),
      of_tokens(example("tokens_40", {2, 290, 2, 40}, {2, 300, 2, 40}), 377, 77),
      of_tokens(with_lengths(example("tokens_lengths", {2, 66, 2, 128}, {2, 77, 1, 128})), 143, 3),
      with_view(example("view_k", {2, 33, 2, 160}, {2, 40, 2, 160}), 1, {2, 2, 60, 160},
                sliced(permuted(dense_view({2, 2, 60, 160}), {0, 2, 1, 3}), 1, 20, 60))};
}

std::vector<Example> bench_examples() {
  const Attention causal{.causal = true};
  std::vector<Example> all{
      example("dit", {4, 256, 4, 32}, {4, 256, 4, 32}),
      example("long", {2, 1024, 4, 64}, {2, 1024, 4, 64}),
      example("vae", {1, 4096, 1, 512}, {1, 4096, 1, 512}),
      example("text_77", {2, 1024, 8, 40}, {2, 77, 8, 40}),
      example("clip", {2, 77, 12, 64}, {2, 77, 12, 64}, causal),
      example("qwen3", {1, 512, 32, 128}, {1, 512, 8, 128}, causal),
      with_bias(example("t5", {1, 256, 8, 64}, {1, 256, 8, 64}, {1}), {1, 8, 256, 256})};
  for (Example& e : all) e.bench = true;
  return all;
}

}  // namespace

std::vector<Example> attention_examples() {
  std::vector<Example> all = plain_examples();
  for (auto& more : {masked_examples(), grouped_examples(), viewed_examples(), bench_examples()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace ebb::ops
