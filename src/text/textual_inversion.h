// Textual inversion: files of vectors that stand for a name in a prompt ("embeddings").
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "io/safetensors.h"
#include "text/prompt.h"

namespace ebb::text {

struct TextualInversion {
  std::string name;  // of the file, without folder and ending
  // For each text encoder f32 [n, width], all of the same n. The width tells the encoder.
  std::vector<Tensor> vectors;

  // Null if it has none of this width.
  const Tensor* of_width(int64_t width) const;
};

// From the tensors of a file: `clip_l`, `clip_g`, `t5xxl` of SDXL and after, or one tensor of any
// name ("emb_params", "<token>", "string_to_param.*", "*"), [n, width] or [width]. `path` gives the
// name. Throws Error "embedding: ..." on other ranks, widths, dtypes, on more than 255 vectors, on
// what is not finite, and where clip_l and clip_g differ in n.
TextualInversion textual_inversion(std::span<const io::NamedTensor> tensors,
                                   const std::string& path);

// Reads a file (.safetensors, .pt, .bin); refuses files of more than 64 tensors or 64 MB.
TextualInversion read_textual_inversion(const std::string& path);

struct EmbeddingFolder {
  std::map<std::string, TextualInversion> embeddings;  // by the names that prompts use
  std::multimap<std::string, std::string> left_out;    // files that cannot be used: why
};

// All files of a folder and those below it, by their stems; ComfyUI: by the path from the folder.
EmbeddingFolder read_embedding_folder(const std::string& folder, PromptSyntax syntax);

// A line for each file that cannot be used where the prompt has its name; others are of no
// interest.
std::vector<std::string> left_out_of(const EmbeddingFolder& folder, const Prompt& prompt);

// How many vectors each has for an encoder (EncoderText::embeddings). One without vectors of the
// width is left out; with a warning if its name is in the prompt.
std::map<std::string, int64_t> vector_counts(const EmbeddingFolder& folder, int64_t width,
                                             const Prompt& prompt,
                                             std::vector<std::string>& warnings);

}  // namespace ebb::text
