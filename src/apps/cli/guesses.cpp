#include "apps/cli/guesses.h"

#include "base/error.h"

namespace ebb::cli {

std::vector<std::string> guesses_of(const LoadedModel& model) {
  std::vector<std::string> out;
  if (!model.missing.empty()) out.push_back("checkpoint: " + missing_text(model.missing));
  if (!model.guessed.empty())
    out.push_back(str("model: no preset of ", model.model->name,
                      " is of these sizes, and tensors do not tell all; guessed: ", model.guessed,
                      ". Pictures are wrong if it was trained with others"));
  return out;
}

}  // namespace ebb::cli
