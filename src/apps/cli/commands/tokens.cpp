// ebb tokens: what a text encoder gets for a prompt.
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "base/utf8.h"
#include "models/config_fields.h"
#include "pipeline/checkpoint_family.h"
#include "pipeline/diffusers_folder.h"
#include "text/chunks.h"
#include "text/text_encoder.h"
#include "text/textual_inversion.h"
#include "train/model_weights.h"

namespace ebb::cli {
namespace {

using namespace ebb::text;

struct Options {
  std::string prompt, model, syntax = "a1111", encoder = "clip_l", tokenizer, embedding_dir;
  int64_t steps = 20;
  bool negative = false, json = false;
  void fields(auto&& f) {
    f("prompt", prompt, "the text");
    f("model", model,
      "a checkpoint, whose text encoder is taken: the one that --encoder names, or its first");
    f("syntax", syntax, "a1111, comfyui or diffusers");
    f("encoder", encoder, "clip_l (SD 1, SDXL), clip_h (SD 2) or clip_g (SDXL)");
    f("steps", steps, "steps of sampling, for [from:to:when] and [one|other]");
    f("negative", negative, "read it as a negative prompt, without AND");
    f("tokenizer", tokenizer, "a folder with vocab.json and merges.txt, or tokenizer.json");
    f("embedding_dir", embedding_dir, "a folder of textual inversion files");
    f("json", json, "print one JSON object on standard output");
  }
  void choices(auto&& f) {
    f("syntax", syntax, {"a1111", "comfyui", "diffusers"});
    f("encoder", encoder, {"clip_l", "clip_h", "clip_g"});
  }
};

// What reads the tokens.
struct Reader {
  std::string encoder;
  int64_t width = 0;      // of its token embeddings
  std::string tokenizer;  // a folder; "": the vocabulary that is built in
};

// The text encoder of this name in a checkpoint; "": its first. Throws Error where it has none.
Reader reader_in(const std::string& model, const std::string& encoder) {
  require(std::filesystem::exists(model), "tokens: --model does not exist  ", model);
  std::vector<std::string> files = {model};
  std::string tokenizer;
  if (std::filesystem::is_directory(model)) {
    const DiffusersFolder folder = read_diffusers_folder(model);
    files = folder.text_encoders;
    files.push_back(folder.denoiser);
    tokenizer = folder.tokenizer;
  }
  std::vector<Component> components;
  for (const std::string& file : files)
    for (Component& c : recognise_components(train::shapes_of(io::TensorFile::open(file))))
      components.push_back(std::move(c));
  const auto texts = texts_in(family_in(components), components);
  std::vector<std::string> names;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i]) continue;
    names.push_back(texts[i]->encoder);
    if (encoder.empty() || encoder == names.back())
      return {names.back(), number_in(components[i].config, "width"), tokenizer};
  }
  fail("tokens: --model must have the text encoder", encoder.empty() ? "" : " ", encoder,
       " (it has ", names.empty() ? "none" : listed(names), ")  ", model);
}

// The token at `i` as text: of an embedding its name and row.
std::string token_text(const ClipVocabulary& vocabulary, const Chunk& c, size_t i) {
  const auto at = static_cast<int64_t>(i);
  for (const EmbeddingSpan& e : c.embeddings)
    if (at >= e.at && at < e.at + e.count) return str("<", e.name, " ", e.first + at - e.at, ">");
  if (c.ids[i] == vocabulary.start()) return "<start>";
  if (c.ids[i] == vocabulary.end()) return "<end>";
  return repaired_utf8(vocabulary.bytes_of(c.ids[i]));
}

void print_text(const Prompt& prompt, const PromptTokens& tokens,
                const ClipVocabulary& vocabulary) {
  for (const LoraTag& l : prompt.loras)
    fmt::print("lora {}: strength {}, of text {}\n", printable(l.name), l.strength,
               l.text_strength);
  for (size_t p = 0; p < tokens.parts.size(); ++p) {
    const PartTokens& part = tokens.parts[p];
    if (tokens.parts.size() > 1 || part.weight != 1)
      fmt::print("part {}, weight {}\n", p + 1, part.weight);
    int64_t from = 1;
    for (const StepChunks& s : part.steps) {
      if (part.steps.size() > 1) fmt::print("steps {} to {}\n", from, s.end_step);
      from = s.end_step + 1;
      for (size_t k = 0; k < s.chunks.size(); ++k) {
        const Chunk& c = s.chunks[k];
        fmt::print("chunk {}: {} of {} tokens, then {}\n", k + 1, c.end - 1, chunk_room,
                   c.ids.back());
        for (size_t i = 0; i <= static_cast<size_t>(c.end); ++i)
          fmt::print("{:4} {:6} {:6.3f}  {}\n", i, c.ids[i], c.weights[i],
                     printable(token_text(vocabulary, c, i)));
      }
    }
  }
}

nlohmann::json json_of(const Chunk& c) {
  nlohmann::json spans = nlohmann::json::array();
  for (const EmbeddingSpan& e : c.embeddings)
    spans.push_back({{"name", e.name}, {"at", e.at}, {"first", e.first}, {"count", e.count}});
  return {{"ids", c.ids}, {"weights", c.weights}, {"end", c.end}, {"embeddings", spans}};
}

void print_tokens(const Prompt& prompt, const PromptTokens& tokens,
                  const std::vector<std::string>& warnings) {
  nlohmann::json loras = nlohmann::json::array(), parts = nlohmann::json::array();
  for (const LoraTag& l : prompt.loras)
    loras.push_back(
        {{"name", l.name}, {"strength", l.strength}, {"text_strength", l.text_strength}});
  for (const PartTokens& part : tokens.parts) {
    nlohmann::json steps = nlohmann::json::array();
    for (const StepChunks& s : part.steps) {
      nlohmann::json chunks = nlohmann::json::array();
      for (const Chunk& c : s.chunks) chunks.push_back(json_of(c));
      steps.push_back({{"end_step", s.end_step}, {"chunks", chunks}});
    }
    parts.push_back({{"weight", part.weight}, {"steps", steps}});
  }
  const nlohmann::json all{{"parts", parts}, {"loras", loras}, {"warnings", warnings}};
  print_json(all);
}

int run(Options o, bool names_encoder) {
  resolve(o);
  require(o.steps >= 1 && o.steps <= 100'000, "tokens: steps must be 1 to 100000 (", o.steps, ")");
  const Prompt prompt = parse_prompt(o.prompt, prompt_syntax(o.syntax), o.negative);
  std::vector<std::string> warnings = prompt.warnings;
  const Reader reader = o.model.empty() ? Reader{o.encoder, text_encoder(o.encoder).width, ""}
                                        : reader_in(o.model, names_encoder ? o.encoder : "");
  const std::string vocabulary = o.tokenizer.empty() ? reader.tokenizer : o.tokenizer;
  const TextEncoder& encoder = text_encoder(reader.encoder);
  const ClipTokenizer tokenizer = clip_tokenizer(
      vocabulary.empty() ? builtin_clip_vocabulary() : ClipVocabulary::open(vocabulary),
      encoder.pad, prompt.syntax);
  EncoderText text{.tokenizer = &tokenizer, .pad = encoder.pad};
  if (!o.embedding_dir.empty()) {
    const EmbeddingFolder folder = read_embedding_folder(o.embedding_dir, prompt.syntax);
    for (std::string& w : left_out_of(folder, prompt)) warnings.push_back(std::move(w));
    text.embeddings = vector_counts(folder, reader.width, prompt, warnings);
  }
  const PromptTokens tokens = tokenize_prompt(prompt, text, {.count = o.steps});
  warnings.insert(warnings.end(), tokens.warnings.begin(), tokens.warnings.end());
  say_warnings(warnings);
  if (o.json) {
    print_tokens(prompt, tokens, warnings);
  } else {
    print_text(prompt, tokens, tokenizer.vocabulary());
  }
  return 0;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_flags(app, fields_of(*o));
  return [o, &app] {
    require(is_given(app, "prompt"), "tokens: needs --prompt");
    return run(*o, is_given(app, "encoder"));
  };
}

}  // namespace

const Command& tokens() {
  static const Command c{"tokens", "tokens, weights and chunks of a prompt",
                         "ebb tokens --prompt 'a (red:1.2) cat, [day:night:0.5]'", bind};
  return c;
}

}  // namespace ebb::cli
