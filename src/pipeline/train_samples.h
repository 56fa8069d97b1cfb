// Pictures of a checkpoint while it is trained: of fixed prompts from fixed noise, as `ebb
// generate` makes them with the file that a save would write.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipeline/checkpoint_training.h"

namespace ebb {

// FinetuneConfig::sample_prompts: those in a file of that name, a line each (blank lines and lines
// that begin with # are none), or the parts of the text between ';'. Throws Error for a file
// without one, and for more than 16.
std::vector<std::string> sample_prompts(const std::string& text);

class TrainSamples {
 public:
  struct What {
    std::vector<std::string> prompts;
    int64_t pictures = 2;     // of each prompt
    train::WriteModel write;  // writes the trained weights
    enum class File : uint8_t { checkpoint, adapter, embedding } file = File::checkpoint;
  };
  TrainSamples(const FinetuneRequest& request, const Context& context, What what)
      : request_(request), context_(context), what_(std::move(what)) {}

  // Writes sample_file(), a row a prompt; where memory runs out or `stops` says true meanwhile,
  // says so and leaves it. The trained weights are on the device a second time for so long.
  void draw(const train::TrainState& state, const std::function<bool()>& stops) const;

 private:
  std::vector<Tensor> pictures(const std::string& file, const std::function<bool()>& stops) const;

  const FinetuneRequest& request_;
  const Context& context_;
  What what_;
};

}  // namespace ebb
