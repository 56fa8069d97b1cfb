// Text encoders inside of a loss graph, where a step trains them or vectors that they read: a batch
// brings the tokens of captions (TextStage::tokens) in place of their states.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/text_stage.h"

namespace ebb {

// Before the names that the weights of encoder k = 0, 1, ... have in the graph.
std::string text_prefix(size_t encoder);

// The param of a loss graph that has the new vectors of encoder k, f32 [vectors, width]: textual
// inversion (Gal et al. 2022, arXiv:2208.01618).
std::string vectors_name(size_t encoder);

// The inputs of the encoders; `vectors`: that each reads in place of tokens, or 0.
std::vector<nn::Condition> token_conditions(const std::vector<EncoderRule>& rules,
                                            int64_t vectors = 0);
// The denoiser with its encoders, which read tokens and give it their states.
nn::Network reading_tokens(nn::Network denoiser, std::vector<EncoderRule> rules,
                           int64_t vectors = 0);
// Of the encoder's weights those that the denoiser's conditions depend on, by its own names: of
// Stable Diffusion XL's first encoder the last layer is not among them.
nn::Weights weights_read(const EncoderRule& rule);

// The graph without params that nothing reads, and with those as states, which stay as they are,
// that are not trained.
Graph with_params(const Graph& g, const std::function<bool(std::string_view name)>& trained);

}  // namespace ebb
