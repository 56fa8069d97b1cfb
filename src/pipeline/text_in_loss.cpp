#include "pipeline/text_in_loss.h"

#include <algorithm>
#include <set>

#include "models/config_fields.h"
#include "nn/clip.h"
#include "nn/ops.h"
#include "passes/simplify.h"

namespace ebb {
namespace {

constexpr const char* entry = "encode";

// Without the dot at its end.
std::string scope_of(size_t encoder) {
  return encoder == 0 ? "text_encoder" : str("text_encoder_", encoder + 1);
}

// What the denoiser's conditions are made of.
std::vector<std::string> outputs_of(const EncoderRule& rule) {
  std::vector<std::string> out = {rule.states()};
  if (rule.reading.projected) out.emplace_back("projected");
  return out;
}

nn::ValuesByName encoded(Graph& g, const nn::NetworkInputs& in, const EncoderRule& rule, size_t e,
                         int64_t vectors) {
  const Component& c = rule.encoder.component;
  const nn::Params p(g, scope_of(e));
  const Value tokens = in.condition(token_input(e)), end = in.condition(end_input(e));
  const auto built = [&](const char* name, const nn::ValuesByName& inputs) {
    return find_entry(*c.model, name).build(p, c.config, inputs);
  };
  if (vectors == 0) return built(entry, {{"tokens", tokens}, {"end", end}});
  const Value own =
      g.source(Source::Kind::param, vectors_name(e), {DType::f32, {vectors, rule.width}});
  const Value read = nn::with_vectors(built("embed", {{"tokens", tokens}}).at("embeddings"),
                                      in.condition(vector_input(e)), own);
  return built("encode_embeddings", {{"embeddings", read}, {"end", end}});
}

}  // namespace

std::string text_prefix(size_t encoder) { return scope_of(encoder) + '.'; }
std::string vectors_name(size_t encoder) { return "embedding." + scope_of(encoder); }

std::vector<nn::Condition> token_conditions(const std::vector<EncoderRule>& rules,
                                            int64_t vectors) {
  std::vector<nn::Condition> out;
  for (size_t e = 0; e < rules.size(); ++e) {
    const ModelConfig& c = rules[e].encoder.component.config;
    out.push_back({.name = token_input(e),
                   .dtype = DType::i64,
                   .shape = {text::chunk_tokens},
                   .ids = number_in(c, "vocabulary"),
                   .guided = false});
    out.push_back({.name = end_input(e),
                   .dtype = DType::i64,
                   .ids = number_in(c, "positions"),
                   .guided = false});
    if (vectors > 0)
      out.push_back({.name = vector_input(e),
                     .dtype = DType::i64,
                     .shape = {text::chunk_tokens},
                     .ids = vectors + 1,
                     .guided = false});
  }
  return out;
}

nn::Network reading_tokens(nn::Network denoiser, std::vector<EncoderRule> rules, int64_t vectors) {
  return [denoiser = std::move(denoiser), rules = std::move(rules), vectors](
             Graph& g, const nn::NetworkInputs& in) {
    nn::NetworkInputs call = in;
    std::vector<Value> states;
    for (size_t e = 0; e < rules.size(); ++e) {
      const nn::ValuesByName made = encoded(g, in, rules[e], e, vectors);
      for (const std::string& read : {token_input(e), end_input(e), vector_input(e)})
        call.conditions.erase(read);
      states.push_back(made.at(rules[e].states()));
      if (rules[e].reading.projected)
        call.conditions[std::string(nn::pooled_text)] = made.at("projected");
    }
    call.conditions[std::string(nn::text_states)] =
        states.size() == 1 ? states[0] : ops::concat(states, 2);
    return denoiser(g, call);
  };
}

nn::Weights weights_read(const EncoderRule& rule) {
  const Component& c = rule.encoder.component;
  const Graph g = with_params(
      entry_graph(*c.model, c.config,
                  {entry, {{"tokens", {1, text::chunk_tokens}}, {"end", {1}}}, outputs_of(rule)}),
      [](std::string_view) { return true; });
  nn::Weights out = weights_of(*c.model, c.config);
  std::erase_if(out, [&](const nn::Weight& w) { return !g.find_source(w.name); });
  return out;
}

Graph with_params(const Graph& whole, const std::function<bool(std::string_view)>& trained) {
  const Graph g = dead_code(whole);
  std::set<int32_t> read;
  for (const Node& n : g.nodes()) read.insert(n.in.begin(), n.in.end());
  Rewriter rw(g);
  for (const Source& s : g.sources()) {
    const bool param = s.kind == Source::Kind::param;
    if (param && !read.contains(s.value)) continue;
    const auto kind = param && !trained(s.name) ? Source::Kind::state : s.kind;
    rw.set(s.value, rw.to().source(kind, s.name, g.type(s.value)));
  }
  for (const Node& n : g.nodes()) {
    const AtScope at(rw.to(), n.at);
    rw.copy(n);
  }
  rw.copy_ends();
  verify(rw.to(), "with_params");
  return rw.take();
}

}  // namespace ebb
