#include "pipeline/text_in_loss.h"

#include <algorithm>
#include <set>

#include "models/config_fields.h"
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

}  // namespace

std::string text_prefix(size_t encoder) { return scope_of(encoder) + '.'; }

std::vector<nn::Condition> token_conditions(const std::vector<EncoderRule>& rules) {
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
  }
  return out;
}

nn::Network reading_tokens(nn::Network denoiser, std::vector<EncoderRule> rules) {
  return [denoiser = std::move(denoiser), rules = std::move(rules)](Graph& g,
                                                                    const nn::NetworkInputs& in) {
    nn::NetworkInputs call = in;
    std::vector<Value> states;
    for (size_t e = 0; e < rules.size(); ++e) {
      const Component& c = rules[e].encoder.component;
      const nn::ValuesByName made = find_entry(*c.model, entry)
                                        .build(nn::Params(g, scope_of(e)), c.config,
                                               {{"tokens", in.condition(token_input(e))},
                                                {"end", in.condition(end_input(e))}});
      call.conditions.erase(token_input(e));
      call.conditions.erase(end_input(e));
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
