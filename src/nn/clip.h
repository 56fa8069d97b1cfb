// The transformer of CLIP (Radford et al. 2021, arXiv:2103.00020), which its text and its vision
// encoder share. Parameters have the names of Hugging Face.
#pragma once

#include <string>

#include "nn/layers.h"

namespace ebb::nn {

struct ClipLayers {
  int64_t layers = 12, heads = 12;
  int64_t hidden = 3072;                  // width of the hidden layer
  std::string activation = "quick_gelu";  // of OpenAI's CLIP; "gelu" of OpenCLIP
  bool causal = false;                    // a position attends to itself and to those before it
};
// Throws Error, which begins with `model`, for what cannot be built.
void check(const ClipLayers& c, int64_t width, std::string_view model);

// x sigmoid(1.702 x), which OpenAI's CLIP was trained with.
Value quick_gelu(Value x);
// The rows of the table `weight` [rows,width].
Value clip_table(const Params& p, int64_t rows, int64_t width);
// What enters the layers, x [N,T,C], and what each of them makes. `p` holds 0, 1, ...
std::vector<Value> clip_states(const Params& p, Value x, const ClipLayers& c);

// Embeddings [N,T,C] of tokens with row k - 1 of the vectors where rows i64[N,T] have k > 0.
Value with_vectors(Value tokens, Value rows, Value vectors);

}  // namespace ebb::nn
