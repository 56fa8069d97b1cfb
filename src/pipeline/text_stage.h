// TextStage: prompts to the conditions of a denoiser, by the text encoders that it was trained
// with.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/family.h"
#include "pipeline/component.h"
#include "pipeline/picture_dialect.h"
#include "pipeline/run_conditions.h"
#include "text/chunks.h"
#include "text/textual_inversion.h"

namespace ebb {

// A component of a checkpoint with its weights.
struct LoadedComponent {
  Component component;
  std::shared_ptr<WeightStore> weights;
  std::string path = {};  // of its file, for errors; "": not known
};

// How a denoiser reads one of its text encoders: as its family was trained to.
struct EncoderRule {
  const Family* family = nullptr;  // the denoiser's, which all of its rules have
  LoadedComponent encoder;
  int64_t width = 0;  // channels of a state
  FamilyText reading;
  int32_t pad = 49407;  // the token behind the end

  std::string states() const;  // the output of the encoder
};

// Another layer of the text encoders than their family reads, from the last; 0: that one. By
// dialect, some encoders do not follow it.
struct ClipSkip {
  int64_t layer = 0;
  std::string_view dialect = "ebb";
};
bool follows(const FamilyText& text, std::string_view dialect);

// By the denoiser's family (models/family.h). Throws Error where an encoder that the network needs
// is missing.
std::vector<EncoderRule> encoder_rules(const Model& denoiser, const ModelConfig& config,
                                       const std::vector<LoadedComponent>& encoders, ClipSkip skip);

// By dialect. `folder` is force_zeros_for_empty_prompt of
// diffusers' model_index.json, if there is one; without it that of the published pipeline counts.
EmptyNegative empty_negative(const Family& family, std::string_view dialect,
                             std::optional<bool> folder);

// Throws Error for more parts than a run can have: each is a prediction in every step.
void check_parts(const text::Prompt& prompt);

struct PromptRequest {
  std::string prompt, negative;
  text::PromptSyntax syntax = text::PromptSyntax::a1111;
  int64_t steps = 20;
  int64_t before = 0;  // text::Steps::before
  // Its steps are evaluations of the denoiser, of which `steps` are taken to have so many each.
  bool by_evaluation = false;
  int64_t evaluations = 1;
  int64_t late = 0;          // so many steps later than it says, edited prompts change
  bool fills_parts = false;  // PictureDialect::fills_parts
  ImageSize size = {};       // pixels, of what Family::sizes tells
  EmptyNegative empty_negative = EmptyNegative::encoded;
  bool one_by_one = false;  // an encoder leaves the device before the next one comes
  bool operator==(const PromptRequest&) const = default;
};

// Names of the inputs of encoder k = 0, 1, ...
std::string token_input(size_t encoder);
std::string end_input(size_t encoder);
std::string vector_input(size_t encoder);

class TextStage {
 public:
  // `vocabulary`: that of the tokenizer; `embeddings`: what prompts may name. Compiles plans of the
  // encoders when they are first needed.
  TextStage(const Model& denoiser, const ModelConfig& config, std::vector<EncoderRule> rules,
            std::shared_ptr<const text::ClipVocabulary> vocabulary, DType dtype, Context context,
            text::EmbeddingFolder embeddings = {});

  struct Encoded {
    RunConditions conditions;
    int64_t tokens = 0;                 // of the longer prompt, with start, end and padding
    std::vector<std::string> warnings;  // of both prompts
  };
  // Conditions text [1,T,C] and, where the network takes them, pooled and size. Each part of a
  // prompt (AND) is a branch with its weight. Throws Error for prompts that get too long and have
  // too many parts. The same request again, with weights of no other version, gives the same
  // tensors.
  Encoded encode(const PromptRequest& request);
  // The same of zeros, unless they are there: compiles what encode() runs, and runs nothing.
  Encoded sketch(const PromptRequest& request);
  // The conditions of a text as training reads it: plain, and cut where it is too long, with a
  // warning.
  NamedTensors caption(const std::string& text, ImageSize size, std::vector<std::string>& warnings);
  // What an encoder inside of a graph reads in place of such conditions: of encoder k,
  // token_input(k) i64[1,77] and end_input(k) i64[1], and with them the conditions that no encoder
  // makes. Where there are embeddings, vector_input(k) i64[1,77] has 1 + the row of the vector that
  // a token stands for, and 0 for other tokens.
  NamedTensors tokens(const std::string& text, ImageSize size, std::vector<std::string>& warnings);
  // What the plans of each encoder need.
  std::vector<std::vector<PlanNeeds>> needs() const;
  size_t plans() const;              // that are compiled
  uint64_t weights_version() const;  // another number after every change of them
  // Encoders let go of the device's memory, as they do one by one with PromptRequest::one_by_one.
  void release();

 private:
  struct Part;     // of a prompt, or the negative one
  struct Prompts;  // of a request, as tokens
  struct States {
    Tensor states, pooled;  // f32 [1,77,C] and [1,P] of one chunk
  };
  std::vector<Part> parts(const std::string& prompt, const PromptRequest& r, bool negative,
                          std::vector<std::string>& warnings);
  Prompts& prompts_of(const PromptRequest& r);
  RunConditions conditions(const Prompts& prompts, const PromptRequest& r);
  Plan& plan(size_t encoder, const std::string& entry);
  text::Chunk empty(size_t encoder) const;  // the empty prompt
  void run_all(size_t encoder, const Part& part, text::PromptSyntax syntax);
  void release(size_t encoder);
  NamedTensors outputs(size_t encoder, const text::Chunk& chunk);
  Part part_of_caption(const PromptRequest& r, std::vector<std::string>& warnings);
  struct EncodedChunk {
    size_t encoder;
    text::Chunk chunk;
    States states;
  };
  // Of a chunk, whose weights do not matter. Holds until the next call of encode().
  const States& run(size_t encoder, const text::Chunk& chunk);
  // Before a run: what was encoded by other weights, and states of more chunks than are kept, go.
  void forget_states();
  Tensor embedded(size_t encoder, const text::Chunk& chunk, const Tensor& tokens);
  // `i`: of the chunks of a step.
  Tensor weighted(size_t encoder, const Part& part, int64_t step, size_t i,
                  text::PromptSyntax syntax);
  float restored_scale(size_t encoder, const Part& part, size_t i);
  Tensor states_of(size_t encoder, const Part& part, int64_t step, text::PromptSyntax syntax,
                   Tensor* pooled);
  NamedTensors values(const Part& part, int64_t step, int64_t chunks, const PromptRequest& r);
  Tensor size_values(const PromptRequest& r, bool negative) const;

  const Family& family_;
  std::vector<nn::Condition> known_;
  std::vector<EncoderRule> rules_;
  std::shared_ptr<const text::ClipVocabulary> vocabulary_;
  text::EmbeddingFolder embeddings_;
  DType dtype_;
  Context context_;
  std::vector<std::map<std::string, std::unique_ptr<Plan>>> plans_;  // by encoder and entry point
  // The least recently used first. The next request often has the same prompt, or the same negative
  // one.
  std::list<EncodedChunk> encoded_;
  uint64_t encoded_by_ = 0;           // weights_version()
  std::list<EncodedChunk> sketched_;  // zeros
  std::shared_ptr<Prompts> last_;     // of the request before; null: there was none
  bool runs_ = true;                  // false: a sketch
};

}  // namespace ebb
