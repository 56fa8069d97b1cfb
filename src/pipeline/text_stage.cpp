#include "pipeline/text_stage.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "models/config_fields.h"
#include "pipeline/checkpoint_family.h"
#include "text/text_encoder.h"

namespace ebb {
namespace {

using text::Chunk, text::PromptSyntax;

bool takes(const std::vector<nn::Condition>& known, std::string_view name) {
  return std::ranges::find(known, name, &nn::Condition::name) != known.end();
}

int64_t width_of(const LoadedComponent& c) { return number_in(c.component.config, "width"); }

std::vector<int64_t> widths_of(const std::vector<LoadedComponent>& encoders) {
  std::vector<int64_t> out;
  for (const LoadedComponent& c : encoders) out.push_back(width_of(c));
  return out;
}

// Of the family's texts, in its order.
std::vector<LoadedComponent> matching(const Family& family, int64_t channels,
                                      const std::vector<LoadedComponent>& encoders) {
  std::vector<LoadedComponent> out;
  for (const size_t i : texts_among(family, channels, widths_of(encoders)))
    out.push_back(encoders[i]);
  if (!out.empty()) return out;
  std::string have;
  for (const LoadedComponent& c : encoders)
    have += str(have.empty() ? "" : ", ", c.component.config.text());
  fail("generate: the model reads ", wanted_texts(family, channels), ", and the files have ",
       have.empty() ? "no text encoder" : have, "; --text-encoder FILE names one");
}

bool plain(const Chunk& chunk) {
  return std::ranges::all_of(chunk.weights, [](float w) { return w == 1; });
}

}  // namespace

std::string token_input(size_t encoder) { return str("tokens.", encoder + 1); }
std::string end_input(size_t encoder) { return str("end.", encoder + 1); }
std::string vector_input(size_t encoder) { return str("vectors.", encoder + 1); }

std::string EncoderRule::states() const {
  return str("states.", reading.layer, reading.normed ? ".normed" : "");
}

bool follows(const FamilyText& text, std::string_view dialect) {
  return !text.fixed || picture_dialect(dialect).skips_all;
}

std::vector<EncoderRule> encoder_rules(const Model& denoiser, const ModelConfig& config,
                                       const std::vector<LoadedComponent>& encoders,
                                       ClipSkip skip) {
  const Family* family = find_family(config, widths_of(encoders));
  require(family && text_channels(config) > 0, "generate: ", denoiser.name, " reads no text");
  require(skip.layer >= 0, "generate: --clip-skip must not be negative (", skip.layer, ")");
  std::vector<EncoderRule> rules;
  for (const LoadedComponent& encoder : matching(*family, text_channels(config), encoders)) {
    const FamilyText& text = family->texts[rules.size()];
    EncoderRule& r = rules.emplace_back(EncoderRule{family, encoder, width_of(encoder), text,
                                                    text::text_encoder(text.encoder).pad});
    if (skip.layer > 0 && follows(text, skip.dialect)) r.reading.layer = skip.layer;
    const int64_t layers = number_in(encoder.component.config, "layers");
    if (layers == text.cut_layers) r.reading.layer = std::max<int64_t>(r.reading.layer - 1, 1);
    require(r.reading.layer <= layers, "generate: --clip-skip ", skip.layer,
            " leaves no layer of an encoder with ", layers);
  }
  return rules;
}

EmptyNegative empty_negative(const Family& family, std::string_view dialect,
                             std::optional<bool> folder) {
  if (!family.zeros_for_empty) return EmptyNegative::encoded;
  const PictureDialect& d = picture_dialect(dialect);
  if (!d.folder_says_empty) return d.empty_negative;
  return folder.value_or(family.diffusers_zeros) ? EmptyNegative::zeros : EmptyNegative::encoded;
}

void check_parts(const text::Prompt& prompt) {
  constexpr size_t most = 32;
  require(prompt.parts.size() <= most, "generate: a prompt may have ", most,
          " parts, joined by AND (got ", prompt.parts.size(), ")");
}

TextStage::TextStage(const Model& denoiser, const ModelConfig& config,
                     std::vector<EncoderRule> rules,
                     std::shared_ptr<const text::ClipVocabulary> vocabulary, DType dtype,
                     Context context, text::EmbeddingFolder embeddings)
    : family_(*rules.at(0).family),
      known_(denoiser.conditions(config)),
      rules_(std::move(rules)),
      vocabulary_(std::move(vocabulary)),
      embeddings_(std::move(embeddings)),
      dtype_(dtype),
      context_(std::move(context)),
      plans_(rules_.size()) {}

struct TextStage::Part {
  ConditionBranch branch;
  std::vector<text::PartTokens> encoders;  // the prompt as each of them reads it
  int64_t length = 0;                      // in chunks, with what fills it

  int64_t chunks() const { return static_cast<int64_t>(encoders[0].steps[0].chunks.size()); }
};

struct TextStage::Prompts {
  PromptRequest request;
  std::vector<Part> parts = {};  // the second one is the negative one
  std::vector<std::string> warnings = {};
  RunConditions conditions = {};  // empty: not encoded yet
};

// ---- one chunk -----------------------------------------------------------------------------

// `embed` gives the embeddings of tokens, the others the states.
Plan& TextStage::plan(size_t encoder, const std::string& entry) {
  std::unique_ptr<Plan>& plan = plans_[encoder][entry];
  if (plan) {
    plan->refresh();
    return *plan;
  }
  const EncoderRule& rule = rules_[encoder];
  EntryCall call{entry, {}, {}};
  if (entry == "encode_embeddings")
    call.inputs["embeddings"] = {1, text::chunk_tokens, rule.width};
  else
    call.inputs["tokens"] = {1, text::chunk_tokens};
  if (entry == "embed") {
    call.outputs = {"embeddings"};
  } else {
    call.inputs["end"] = {1};
    call.outputs = {rule.states()};
    if (rule.reading.projected) call.outputs.emplace_back("projected");
  }
  plan = std::make_unique<Plan>(
      entry_plan(rule.encoder.component, call, dtype_, rule.encoder.weights, context_));
  return *plan;
}

// With the vectors that prompts name in place of tokens.
Tensor TextStage::embedded(size_t encoder, const Chunk& chunk, const Tensor& tokens) {
  Tensor out = plan(encoder, "embed").run({{"tokens", tokens}}).at("embeddings");
  const auto width = rules_[encoder].width;
  for (const text::EmbeddingSpan& e : chunk.embeddings) {
    const Tensor* vectors = embeddings_.embeddings.at(e.name).of_width(width);
    std::copy_n(vectors->span<float>().begin() + e.first * width, e.count * width,
                out.span<float>().begin() + e.at * width);
  }
  return out;
}

namespace {

NamedTensors tensors_of(const Chunk& chunk, const std::string& tokens, const std::string& end) {
  NamedTensors out{{tokens, Tensor(DType::i64, {1, text::chunk_tokens})},
                   {end, Tensor(DType::i64, {1})}};
  std::ranges::copy(chunk.ids, out.at(tokens).span<int64_t>().begin());
  out.at(end).span<int64_t>()[0] = chunk.end;
  return out;
}

Tensor vector_rows(const Chunk& chunk) {
  const Tensor out(DType::i64, {1, text::chunk_tokens});
  for (const text::EmbeddingSpan& e : chunk.embeddings)
    std::iota(out.span<int64_t>().begin() + e.at, out.span<int64_t>().begin() + e.at + e.count,
              e.first + 1);
  return out;
}

}  // namespace

NamedTensors TextStage::outputs(size_t encoder, const Chunk& chunk) {
  Plan& encode = plan(encoder, chunk.embeddings.empty() ? "encode" : "encode_embeddings");
  if (!runs_) {
    if (!chunk.embeddings.empty()) plan(encoder, "embed");
    NamedTensors out;
    for (const NamedValue& o : encode.graph().outputs())
      out.emplace(o.name, Tensor(encode.graph().type(o.value)));
    return out;
  }
  const NamedTensors in = tensors_of(chunk, "tokens", "end");
  if (chunk.embeddings.empty()) return encode.run(in);
  return encode.run(
      {{"embeddings", embedded(encoder, chunk, in.at("tokens"))}, {"end", in.at("end")}});
}

const TextStage::States& TextStage::run(size_t encoder, const Chunk& chunk) {
  std::list<EncodedChunk>& all = runs_ ? encoded_ : sketched_;
  const auto known = std::ranges::find_if(all, [&](const EncodedChunk& c) {
    return c.encoder == encoder && c.chunk.ids == chunk.ids &&
           c.chunk.embeddings == chunk.embeddings;
  });
  if (known != all.end()) {
    all.splice(all.end(), all, known);
    return known->states;
  }
  const EncoderRule& rule = rules_[encoder];
  const NamedTensors out = outputs(encoder, chunk);
  all.push_back({encoder,
                 chunk,
                 {out.at(rule.states()), rule.reading.projected ? out.at("projected") : Tensor()}});
  return all.back().states;
}

void TextStage::forget_states() {
  constexpr size_t kept = 64;  // of SDXL's larger encoder 394 kB each
  if (const uint64_t version = weights_version(); std::exchange(encoded_by_, version) != version) {
    encoded_.clear();
    if (last_) last_->conditions = {};
  }
  while (encoded_.size() > kept) encoded_.pop_front();
}

Chunk TextStage::empty(size_t encoder) const {
  const text::ClipTokenizer tokenizer(vocabulary_);
  return text::empty_chunk({.tokenizer = &tokenizer, .pad = rules_[encoder].pad});
}

// ---- prompts -------------------------------------------------------------------------------

std::vector<TextStage::Part> TextStage::parts(const std::string& prompt, const PromptRequest& r,
                                              bool negative, std::vector<std::string>& warnings) {
  const text::Prompt parsed = text::parse_prompt(prompt, r.syntax, negative);
  check_parts(parsed);
  for (const auto& more : {parsed.warnings, text::left_out_of(embeddings_, parsed)})
    warnings.insert(warnings.end(), more.begin(), more.end());
  std::vector<Part> out;
  for (const text::PromptPart& p : parsed.parts)
    out.push_back({{negative ? Branch::uncond : Branch::cond, p.weight}, {}, 0});
  for (const EncoderRule& rule : rules_) {
    const text::ClipTokenizer tokenizer = text::clip_tokenizer(vocabulary_, rule.pad, r.syntax);
    text::EncoderText encoder{.tokenizer = &tokenizer, .pad = rule.pad};
    encoder.embeddings = text::vector_counts(embeddings_, rule.width, parsed, warnings);
    const text::PromptTokens tokens = text::tokenize_prompt(
        parsed, encoder, {.count = r.steps * r.evaluations, .before = r.before * r.evaluations});
    if (out[0].encoders.empty())
      warnings.insert(warnings.end(), tokens.warnings.begin(), tokens.warnings.end());
    for (size_t i = 0; i < out.size(); ++i) out[i].encoders.push_back(tokens.parts[i]);
  }
  int64_t longest = 0;
  for (const Part& p : out) longest = std::max(longest, p.chunks());
  for (Part& p : out) p.length = r.fills_parts ? longest : p.chunks();
  return out;
}

// What restores the mean that A1111 restores: that of a chunk in all texts of an edited prompt.
float TextStage::restored_scale(size_t encoder, const Part& part, size_t i) {
  const std::vector<text::StepChunks>& steps = part.encoders[encoder].steps;
  if (std::ranges::all_of(steps, [&](const text::StepChunks& s) { return plain(s.chunks[i]); }))
    return 1;
  double before = 0, after = 0;
  for (const text::StepChunks& s : steps) {
    const Tensor states = run(encoder, s.chunks[i]).states;
    const auto z = states.span<float>();
    const auto width = static_cast<size_t>(rules_[encoder].width);
    for (size_t k = 0; k < z.size(); ++k) {
      before += double{z[k]};
      after += double{z[k] * s.chunks[i].weights[k / width]};
    }
  }
  return static_cast<float>(before / after);
}

// A1111 scales the states and restores their mean; ComfyUI moves them away from those of the empty
// prompt.
Tensor TextStage::weighted(size_t encoder, const Part& part, int64_t step, size_t i,
                           PromptSyntax syntax) {
  const Chunk& chunk = text::chunks_at(part.encoders[encoder], step)[i];
  const Tensor plain_states = run(encoder, chunk).states;
  if (!runs_) return plain_states;  // zeros have no mean to keep
  const float scale = syntax == PromptSyntax::a1111 ? restored_scale(encoder, part, i) : 1;
  if (plain(chunk) && scale == 1) return plain_states;
  Tensor states = plain_states.clone();
  const auto z = states.span<float>();
  const auto width = static_cast<size_t>(rules_[encoder].width);
  if (syntax == PromptSyntax::a1111) {
    for (size_t k = 0; k < z.size(); ++k) z[k] = z[k] * chunk.weights[k / width] * scale;
    return states;
  }
  const Tensor from = run(encoder, empty(encoder)).states;
  const auto e = from.span<float>();
  for (size_t k = 0; k < z.size(); ++k)
    if (const float w = chunk.weights[k / width]; w != 1) z[k] = e[k] + (z[k] - e[k]) * w;
  return states;
}

// The states of a part's chunks one behind the other, [tokens,width]; `pooled`: of the first.
Tensor TextStage::states_of(size_t encoder, const Part& part, int64_t step, PromptSyntax syntax,
                            Tensor* pooled) {
  const std::vector<Chunk>& all = text::chunks_at(part.encoders[encoder], step);
  const int64_t width = rules_[encoder].width;
  Tensor out(DType::f32, {part.chunks() * text::chunk_tokens, width});
  for (size_t i = 0; i < all.size(); ++i) {
    if (const States& s = run(encoder, all[i]); i == 0 && s.pooled.defined()) *pooled = s.pooled;
    const Tensor z = weighted(encoder, part, step, i, syntax);
    std::ranges::copy(z.span<float>(), out.span<float>().begin() +
                                           static_cast<int64_t>(i) * text::chunk_tokens * width);
  }
  return out;
}

// Attention over keys that are there twice is the same as over each once: prompts of different
// lengths are repeated to one length, and both give what they would alone. `part.length` above its
// own: the last vector fills it.
NamedTensors TextStage::values(const Part& part, int64_t step, int64_t chunks,
                               const PromptRequest& r) {
  int64_t width = 0;
  for (const EncoderRule& rule : rules_) width += rule.width;
  Tensor states(DType::f32, {1, chunks * text::chunk_tokens, width}), pooled;
  const auto to = states.span<float>();
  const int64_t own = part.chunks() * text::chunk_tokens, length = part.length * text::chunk_tokens;
  int64_t first = 0;  // channel of this encoder
  for (size_t e = 0; e < rules_.size(); ++e) {
    const Tensor z = states_of(e, part, step, r.syntax, &pooled);
    for (int64_t t = 0; t < chunks * text::chunk_tokens; ++t)
      std::copy_n(z.span<float>().data() + std::min(t % length, own - 1) * rules_[e].width,
                  rules_[e].width, to.begin() + t * width + first);
    first += rules_[e].width;
  }
  NamedTensors out;
  out.emplace(nn::text_states, states);
  if (takes(known_, nn::pooled_text)) {
    require(pooled.defined(), "generate: the model reads a pooled text, which no encoder gives");
    out.emplace(nn::pooled_text, pooled);
  }
  const bool negative = part.branch.branch == Branch::uncond;
  if (negative && r.negative.empty() && r.empty_negative != EmptyNegative::encoded)
    for (auto& [name, value] : out)
      if (name == nn::text_states || r.empty_negative == EmptyNegative::zeros)
        value = Tensor(DType::f32, value.shape());
  if (takes(known_, nn::size_numbers)) out.emplace(nn::size_numbers, size_values(r, negative));
  return out;
}

Tensor TextStage::size_values(const PromptRequest& r, bool negative) const {
  const int64_t count = std::ranges::find(known_, nn::size_numbers, &nn::Condition::name)->shape[0];
  std::vector<float> numbers;
  if (family_.sizes) numbers = family_.sizes(r.size, negative);
  require(count == std::ssize(numbers), "generate: the model reads ", count,
          " numbers of sizes, which ebb does not know (", family_.name, " has ", numbers.size(),
          ")");
  Tensor out(DType::f32, {1, count});
  std::ranges::copy(numbers, out.span<float>().begin());
  return out;
}

void TextStage::run_all(size_t encoder, const Part& part, PromptSyntax syntax) {
  for (const text::StepChunks& s : part.encoders[encoder].steps)
    for (const Chunk& chunk : s.chunks) {
      run(encoder, chunk);
      if (syntax == PromptSyntax::comfyui && !plain(chunk)) run(encoder, empty(encoder));
    }
}

void TextStage::release(size_t encoder) {
  for (auto& [entry, plan] : plans_[encoder]) plan->release();
  rules_[encoder].encoder.weights->drop_unused(*context_.device);
}

void TextStage::release() {
  for (size_t e = 0; e < rules_.size(); ++e) release(e);
}

std::vector<std::vector<PlanNeeds>> TextStage::needs() const {
  std::vector<std::vector<PlanNeeds>> out;
  for (const auto& plans : plans_) {
    out.emplace_back();
    for (const auto& [entry, plan] : plans) out.back().push_back(plan->needs());
  }
  return out;
}

size_t TextStage::plans() const {
  size_t out = 0;
  for (const auto& plans : plans_) out += plans.size();
  return out;
}

uint64_t TextStage::weights_version() const {
  uint64_t out = 0;
  for (const EncoderRule& r : rules_) out += r.encoder.weights->version();
  return out;
}

TextStage::Encoded TextStage::sketch(const PromptRequest& r) {
  runs_ = false;
  try {
    Encoded out = encode(r);
    runs_ = true;
    sketched_.clear();
    return out;
  } catch (...) {
    runs_ = true;
    sketched_.clear();
    throw;
  }
}

namespace {

PromptRequest request_of_caption(const std::string& text, ImageSize size) {
  return {.prompt = text, .negative = {}, .syntax = PromptSyntax::diffusers, .size = size};
}

}  // namespace

TextStage::Part TextStage::part_of_caption(const PromptRequest& r,
                                           std::vector<std::string>& warnings) {
  return std::move(parts(r.prompt, r, false, warnings)[0]);
}

NamedTensors TextStage::caption(const std::string& text, ImageSize size,
                                std::vector<std::string>& warnings) {
  const PromptRequest r = request_of_caption(text, size);
  encoded_.clear(), last_.reset();
  const Part part = part_of_caption(r, warnings);
  return values(part, 1, part.chunks(), r);
}

NamedTensors TextStage::tokens(const std::string& text, ImageSize size,
                               std::vector<std::string>& warnings) {
  const PromptRequest r = request_of_caption(text, size);
  const Part part = part_of_caption(r, warnings);
  NamedTensors out;
  for (size_t e = 0; e < rules_.size(); ++e) {
    const Chunk& chunk = text::chunks_at(part.encoders[e], 1)[0];
    out.merge(tensors_of(chunk, token_input(e), end_input(e)));
    if (!embeddings_.embeddings.empty()) out.emplace(vector_input(e), vector_rows(chunk));
  }
  if (takes(known_, nn::size_numbers)) out.emplace(nn::size_numbers, size_values(r, false));
  return out;
}

// A run asks for them twice, for its plan and to encode them, and the next one often for the same.
TextStage::Prompts& TextStage::prompts_of(const PromptRequest& r) {
  PromptRequest request = r;
  request.one_by_one = false;
  if (last_ && last_->request == request) return *last_;
  auto out = std::make_shared<Prompts>(Prompts{.request = request});
  out->parts = parts(r.prompt, r, false, out->warnings);
  out->parts.insert(out->parts.begin() + 1, parts(r.negative, r, true, out->warnings)[0]);
  last_ = out;
  return *last_;
}

RunConditions TextStage::conditions(const Prompts& prompts, const PromptRequest& r) {
  constexpr int64_t most_chunks = 64;
  RunConditions out;
  int64_t chunks = 1;
  std::vector<int64_t> ends;  // of ranges of steps in which none changes
  out.branches.clear();
  for (const Part& p : prompts.parts) {
    chunks = std::lcm(chunks, p.length);
    require(chunks <= most_chunks, "generate: the prompts are too long together (", chunks,
            " chunks of 75 tokens or more after repetition to one length, at most ", most_chunks,
            ")");
    for (const text::StepChunks& s : p.encoders[0].steps) ends.push_back(s.end_step);
    out.branches.push_back(p.branch);
  }
  out.by_evaluation = r.by_evaluation;
  for (size_t e = 0; e < rules_.size(); ++e) {
    for (const Part& p : prompts.parts) run_all(e, p, r.syntax);
    if (r.one_by_one) release(e);
  }
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  for (const int64_t end : ends) {
    RunConditions::Steps& steps = out.steps.emplace_back();
    steps.end_step = end + r.late;
    for (const Part& p : prompts.parts) steps.branches.push_back(values(p, end, chunks, r));
  }
  return out;
}

TextStage::Encoded TextStage::encode(const PromptRequest& r) {
  forget_states();
  Prompts& prompts = prompts_of(r);
  RunConditions now = prompts.conditions;
  if (now.empty()) now = conditions(prompts, r);
  if (runs_) prompts.conditions = now;
  int64_t longest = 1;
  for (const Part& p : prompts.parts) longest = std::max(longest, p.length);
  return {std::move(now), text::chunk_tokens * longest, prompts.warnings};
}

}  // namespace ebb
