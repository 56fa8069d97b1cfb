#include "pipeline/text_stage.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace ebb {
namespace {

using text::Chunk, text::PromptSyntax;

constexpr int64_t sd1_context = 768, sd2_context = 1024, refiner_context = 1280, xl_context = 2048;

int64_t number_of(ModelConfig config, std::string_view field) {
  const std::vector<Field> fields = config.fields();
  return parse_integer(field_text(find_field(fields, field, "config")), field);
}

// Channels of the text that a denoiser reads; 0: none.
int64_t context_of(const std::vector<nn::Condition>& conditions) {
  const auto c = std::ranges::find(conditions, nn::text_states, &nn::Condition::name);
  return c == conditions.end() ? 0 : c->shape[1];
}

const LoadedComponent& encoder_of(const std::vector<LoadedComponent>& encoders, int64_t width,
                                  std::string_view name) {
  const auto found = std::ranges::find_if(encoders, [&](const LoadedComponent& c) {
    return number_of(c.component.config, "width") == width;
  });
  require(found != encoders.end(), "generate: the model reads ", name,
          ", which the checkpoint does not have; --text-encoder FILE names it");
  return *found;
}

float mean(std::span<const float> v) {
  return static_cast<float>(std::accumulate(v.begin(), v.end(), 0.0) /
                            static_cast<double>(v.size()));
}

bool plain(const Chunk& chunk) {
  return std::ranges::all_of(chunk.weights, [](float w) { return w == 1; });
}

}  // namespace

std::string EncoderRule::states() const { return str("states.", layer, normed ? ".normed" : ""); }

std::vector<EncoderRule> encoder_rules(const Model& denoiser, const ModelConfig& config,
                                       const std::vector<LoadedComponent>& encoders,
                                       int64_t clip_skip) {
  constexpr int64_t clip_l = 768, clip_h = 1024, clip_g = 1280, cut_layers = 23;
  const int64_t context = context_of(denoiser.conditions(config));
  require(clip_skip >= 0, "generate: --clip-skip must not be negative (", clip_skip, ")");
  std::vector<EncoderRule> rules;
  const auto add = [&](int64_t width, std::string_view name, EncoderRule rule) {
    rule.encoder = encoder_of(encoders, width, name);
    rule.width = width;
    if (clip_skip > 0) rule.layer = clip_skip;
    const int64_t layers = number_of(rule.encoder.component.config, "layers");
    // Files of Hugging Face leave the layer out that Stable Diffusion 2 does not read.
    if (width == clip_h && layers == cut_layers) rule.layer = std::max<int64_t>(rule.layer - 1, 1);
    require(rule.layer <= layers, "generate: --clip-skip ", clip_skip, " leaves no layer of ", name,
            " (", layers, ")");
    rules.push_back(std::move(rule));
  };
  if (context == sd1_context) add(clip_l, "CLIP-L", {});
  if (context == sd2_context) add(clip_h, "CLIP-H", {.layer = 2, .pad = 0});
  if (context == xl_context) add(clip_l, "CLIP-L", {.layer = 2, .normed = false});
  if (context == xl_context || context == refiner_context)
    add(clip_g, "CLIP-G", {.layer = 2, .normed = false, .projected = true, .pad = 0});
  require(!rules.empty(), "generate: ", denoiser.name, " reads no text that ebb knows (", context,
          " channels)");
  return rules;
}

TextStage::TextStage(const Model& denoiser, const ModelConfig& config,
                     std::vector<EncoderRule> rules,
                     std::shared_ptr<const text::ClipVocabulary> vocabulary, DType dtype,
                     Context context)
    : known_(denoiser.conditions(config)),
      rules_(std::move(rules)),
      tokenizer_(std::move(vocabulary)),
      dtype_(dtype),
      context_(std::move(context)),
      plans_(rules_.size()) {}

// ---- one chunk -----------------------------------------------------------------------------

TextStage::States TextStage::run(size_t encoder, const Chunk& chunk) {
  const EncoderRule& rule = rules_[encoder];
  std::unique_ptr<Plan>& plan = plans_[encoder];
  if (!plan) {
    std::vector<std::string> outputs = {rule.states()};
    if (rule.projected) outputs.emplace_back("projected");
    const EntryCall call{"encode", {{"tokens", {1, text::chunk_tokens}}, {"end", {1}}}, outputs};
    plan = std::make_unique<Plan>(
        entry_plan(rule.encoder.component, call, dtype_, rule.encoder.weights, context_));
  }
  require(chunk.embeddings.empty(), "generate: embeddings in prompts cannot be encoded yet");
  Tensor tokens(DType::i64, {1, text::chunk_tokens}), end(DType::i64, {1});
  std::ranges::copy(chunk.ids, tokens.span<int64_t>().begin());
  end.span<int64_t>()[0] = chunk.end;
  const NamedTensors out = plan->run({{"tokens", tokens}, {"end", end}});
  return {out.at(rule.states()), rule.projected ? out.at("projected") : Tensor()};
}

// A1111 scales the states and restores their mean; ComfyUI moves them away from those of the empty
// prompt.
Tensor TextStage::weighted(size_t encoder, const Chunk& chunk, Tensor states, PromptSyntax syntax) {
  if (plain(chunk)) return states;
  const auto z = states.span<float>();
  const auto width = static_cast<size_t>(rules_[encoder].width);
  const auto each = [&](const auto& f) {
    for (size_t i = 0; i < z.size(); ++i) z[i] = f(z[i], chunk.weights[i / width], i);
  };
  if (syntax == PromptSyntax::comfyui) {
    const text::EncoderText empty{.tokenizer = &tokenizer_, .pad = rules_[encoder].pad};
    const Tensor from = run(encoder, text::empty_chunk(empty)).states;
    const auto e = from.span<float>();
    each([&](float v, float w, size_t i) { return w == 1 ? v : e[i] + (v - e[i]) * w; });
    return states;
  }
  const float before = mean(z);
  each([](float v, float w, size_t) { return v * w; });
  const float scale = before / mean(z);
  each([&](float v, float, size_t) { return v * scale; });
  return states;
}

// ---- prompts -------------------------------------------------------------------------------

struct TextStage::Branch {
  std::vector<text::PartTokens> encoders;  // the prompt as each of them reads it

  int64_t chunks() const { return static_cast<int64_t>(encoders[0].steps[0].chunks.size()); }
};

TextStage::Branch TextStage::branch(const std::string& prompt, const PromptRequest& r,
                                    bool negative, std::vector<std::string>& warnings) {
  const text::Prompt parsed = text::parse_prompt(prompt, r.syntax, negative);
  require(parsed.parts.size() == 1, "generate: prompts of several parts (AND) are not there yet (",
          parsed.parts.size(), " parts)");
  require(parsed.loras.empty(), "generate: LoRAs in prompts are not there yet (<lora:",
          parsed.loras.empty() ? "" : parsed.loras[0].name, ">)");
  warnings.insert(warnings.end(), parsed.warnings.begin(), parsed.warnings.end());
  Branch out;
  for (const EncoderRule& rule : rules_) {
    const text::PromptTokens tokens = text::tokenize_prompt(
        parsed, {.tokenizer = &tokenizer_, .pad = rule.pad}, {.count = r.steps});
    out.encoders.push_back(tokens.parts[0]);
    if (out.encoders.size() == 1)
      warnings.insert(warnings.end(), tokens.warnings.begin(), tokens.warnings.end());
  }
  return out;
}

// Attention over keys that are there twice is the same as over each once: prompts of different
// lengths are repeated to one length, and both give what they would alone.
NamedTensors TextStage::values(const Branch& b, int64_t step, int64_t chunks,
                               const PromptRequest& r) {
  int64_t width = 0;
  for (const EncoderRule& rule : rules_) width += rule.width;
  Tensor states(DType::f32, {1, chunks * text::chunk_tokens, width}), pooled;
  const auto to = states.span<float>();
  int64_t first = 0;  // channel of this encoder
  for (size_t e = 0; e < rules_.size(); ++e) {
    const std::vector<Chunk>& all = text::chunks_at(b.encoders[e], step);
    for (size_t i = 0; i < all.size(); ++i) {
      const States s = run(e, all[i]);
      if (i == 0 && s.pooled.defined()) pooled = s.pooled;
      const Tensor z = weighted(e, all[i], s.states, r.syntax);
      const float* from = z.span<float>().data();
      for (int64_t c = static_cast<int64_t>(i); c < chunks; c += static_cast<int64_t>(all.size()))
        for (int64_t t = 0; t < text::chunk_tokens; ++t)
          std::copy_n(from + t * rules_[e].width, rules_[e].width,
                      to.begin() + (c * text::chunk_tokens + t) * width + first);
    }
    first += rules_[e].width;
  }
  NamedTensors out;
  out.emplace(nn::text_states, states);
  const auto takes = [&](std::string_view name) {
    return std::ranges::find(known_, name, &nn::Condition::name) != known_.end();
  };
  if (takes(nn::pooled_text)) {
    require(pooled.defined(), "generate: the model reads a pooled text, which no encoder gives");
    out.emplace(nn::pooled_text, pooled);
  }
  if (takes(nn::size_numbers)) {
    // original height and width, crop from the top and the left, target height and width
    const int64_t h = r.size.height, w = r.size.width;
    const std::vector<int64_t> numbers = {h, w, 0, 0, h, w};
    const int64_t count = std::ranges::find(known_, nn::size_numbers, &nn::Condition::name)->shape[0];
    require(count == 6, "generate: the model reads ", count,
            " numbers of sizes, which ebb does not know (6)");
    Tensor t(DType::f32, {1, count});
    std::ranges::transform(numbers, t.span<float>().begin(),
                           [](int64_t n) { return static_cast<float>(n); });
    out.emplace(nn::size_numbers, t);
  }
  return out;
}

TextStage::Encoded TextStage::encode(const PromptRequest& r) {
  constexpr int64_t most_chunks = 64;
  Encoded out;
  const Branch prompt = branch(r.prompt, r, false, out.warnings),
               negative = branch(r.negative, r, true, out.warnings);
  const int64_t chunks = std::lcm(prompt.chunks(), negative.chunks());
  require(chunks <= most_chunks, "generate: the prompts are too long together (", prompt.chunks(),
          " and ", negative.chunks(), " chunks of 75 tokens, repeated to ", chunks, ", at most ",
          most_chunks, ")");
  out.tokens = text::chunk_tokens * std::max(prompt.chunks(), negative.chunks());
  std::vector<int64_t> ends;  // of ranges of steps in which neither changes
  for (const Branch* b : {&prompt, &negative})
    for (const text::StepChunks& s : b->encoders[0].steps) ends.push_back(s.end_step);
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  for (const int64_t end : ends)
    out.conditions.steps.push_back(
        {end, values(prompt, end, chunks, r), values(negative, end, chunks, r)});
  return out;
}

}  // namespace ebb
