// Pictures of a checkpoint while it is trained: of fixed prompts from fixed noise, as `ebb
// generate` makes them with the file that a save would write.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipeline/checkpoint_training.h"
#include "pipeline/text_to_image.h"

namespace ebb {

// FinetuneConfig::sample_prompts: those in a file of that name, a line each (blank lines and lines
// that begin with # are none), or the parts of the text between ';'. Throws Error where there is
// none, for more than 16, for a file that cannot be read, and for a text like a file's name (it
// ends in .txt) that is none.
std::vector<std::string> sample_prompts(const std::string& text);

// FinetuneConfig::sample_controls: an image u8 [H,W,3] for each of so many prompts. Throws Error.
std::vector<Tensor> sample_controls(const std::string& text, size_t prompts);

class TrainSamples {
 public:
  struct What {
    std::vector<std::string> prompts = {};
    text::PromptSyntax syntax = text::PromptSyntax::a1111;  // of the prompts
    int64_t pictures = 2;                                   // of each prompt
    train::WriteModel write = {};                           // writes the trained weights
    enum class File : uint8_t { checkpoint, adapter, embedding, control } file = File::checkpoint;
    std::vector<Tensor> controls = {};  // of a control network: u8 [H,W,3], one for each prompt
  };
  // Throws Error for prompts that cannot be asked of the checkpoint.
  TrainSamples(const FinetuneRequest& request, const CheckpointParts& parts, const Context& context,
               What what);

  // Writes sample_file(), a row a prompt; where that fails, as memory runs out, or `stops` says
  // true meanwhile, says so and leaves it. The whole model is on the device a second time for so
  // long.
  void draw(const train::TrainState& state, const std::function<bool()>& stops) const;

 private:
  TextToImageRequest request() const;  // without a prompt
  std::vector<Tensor> pictures(const std::string& file, const std::function<bool()>& stops) const;

  const FinetuneRequest& request_;
  const Context& context_;
  What what_;
};

}  // namespace ebb
