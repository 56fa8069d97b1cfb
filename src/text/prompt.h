// Prompts as the programs write them: what is not text is taken out, the rest is split into parts.
//
//   text --parse_prompt()--> Prompt --tokenize_prompt()--> PromptTokens (chunks.h)
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ebb::text {

// a1111: (emphasis), [less], (x:1.2), BREAK, AND, [from:to:when], [one|other], <lora:name:weight>,
//        # comments; embeddings by their names.
// comfyui: (emphasis), (x:1.2), embedding:name.
// diffusers: plain text, cut after 75 tokens; embeddings by their names.
enum class PromptSyntax { a1111, comfyui, diffusers };

// By its name. Throws Error that suggests the nearest.
PromptSyntax prompt_syntax(std::string_view name);
std::string_view prompt_syntax_name(PromptSyntax syntax);

struct LoraTag {
  std::string name;
  double strength = 1;             // on the U-Net
  double text_strength = 1;        // on the text encoders
  std::string block_weights = {};  // "1,0,0.5,...", of lbw=; "": none
};

// One of several prompts that are evaluated for themselves; guidance adds their weighted
// differences from the negative prompt.
struct PromptPart {
  std::string text;  // valid UTF-8; A1111's editing and emphasis still in it
  double weight = 1;
};

struct Prompt {
  PromptSyntax syntax = PromptSyntax::a1111;
  std::vector<PromptPart> parts;  // at least one; more than one only by A1111's AND
  std::vector<LoraTag> loras;     // in order
  std::vector<std::string> warnings;
};

// Invalid UTF-8 is replaced (and warned of). `negative`: A1111 reads neither AND nor the weight of
// a whole part in negative prompts. Tags are <lora:name>, <lora:name:weight> and
// <lora:name:text weight:weight>, or with te=, unet= and lbw=; other tags of A1111 are removed with
// a warning. Throws Error "prompt: ..." on a weight that is no number. Linear.
Prompt parse_prompt(std::string_view text, PromptSyntax syntax, bool negative = false);

}  // namespace ebb::text
