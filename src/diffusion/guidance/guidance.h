// Guidance: combines the predictions of several branches into one, by a sequence of rules.
// src/diffusion/guidance/rules/<r>.cpp defines `const GuidanceRule& ebb::guidance_rules::<r>()`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "diffusion/guidance/sample.h"
#include "diffusion/levels/prediction.h"
#include "diffusion/solver/space.h"

namespace ebb {

// ---- predictions ---------------------------------------------------------------------------

// The branches: predictions by which condition or network. Each is a D(x, sigma).
enum class Branch {
  cond,       // the condition
  uncond,     // no condition, or the negative prompt
  empty,      // no condition at all, where uncond is a negative prompt
  partial,    // part of the condition: the image without the text, or the second prompt
  weak,       // the condition, by a network that is smaller, less trained or without some layers
  skipped,    // the condition, with some blocks skipped (skip-layer guidance)
  perturbed,  // the condition, with some self-attention maps replaced by the identity (PAG)
  smoothed,   // the condition, with the queries of some self-attention blurred (SEG)
  skipped_uncond,  // no condition or the negative prompt, with some blocks skipped
  sag_input,       // no evaluation: `uncond`, blurred where attention is high (sag_blur())
  sag,             // no condition, at the state sag_input + (x - uncond)
};
constexpr int branch_count = 11;
std::string_view name_of(Branch branch);

// result = own result + sum_k weight_k prediction_k.
struct Factors {
  double own = 0;
  std::vector<std::pair<Branch, double>> weights = {};  // none is 0, each prediction once
  double weight(Branch branch) const;
  Factors& add(Branch branch, double weight);
};
// `second` after `first`.
Factors chained(const Factors& first, const Factors& second);

// ---- one evaluation ------------------------------------------------------------------------

// A network's output F where D(x, sigma) = skip x + out F.
struct OutputForm {
  double skip = 0, out = 1;
};
// Of a network that predicts `p` (levels/prediction.h). sigma_data: of edm and edm_v.
OutputForm output_form(Prediction p, double sigma, double sigma_data = 1);

struct StepContext {
  double sigma = 0;
  int64_t step = 0, steps = 1;
  Space space = Space::ve;
  OutputForm raw = {};
  // Set by earlier rules: guidance is off (scale 1), or has this scale.
  bool off = false;
  std::optional<double> scale = {};
};

// What a rule computes with. data: D; velocity: noise minus data on flow models, else v of the
// variance-preserving process; raw: the network's output; mixed: velocity, but data on flow models.
enum class Form { data, velocity, raw, mixed };
// Throws Error, suggests the nearest.
Form find_form(std::string_view name);
// F of D(x, sigma) = skip x + out F.
OutputForm form_at(Form form, const StepContext& m);

// ---- rules ---------------------------------------------------------------------------------

// A rule during one run. Norms and dot products are per sample: results do not depend on the batch.
class Guidance {
 public:
  virtual ~Guidance() = default;
  // Resets the state at the start of a run.
  virtual void restart() {}
  // Changes the step context of later rules.
  virtual void direct(StepContext&) const {}
  // The noise levels at which the rule's behaviour changes; between these and within a step it is
  // constant.
  virtual std::vector<double> edges() const { return {}; }
  // Of a rule of kind `mends`: whether it also changes the conditional prediction itself.
  virtual bool changes_alone() const { return false; }
  // The coefficients if the rule is linear at this step, so that a device can evaluate it within
  // its plan. Weights have the sum 1 - own, so that every form gives the same.
  virtual std::optional<Factors> factors(const StepContext&) const { return Factors{.own = 1}; }
  // Otherwise: the branches it needs, and how it changes s.result, in a form.
  virtual std::vector<Branch> needs(const StepContext&) const { return {}; }
  virtual Form form() const { return Form::data; }
  virtual void apply(GuidedSample&, const StepContext&) {}
};

// How a rule interacts with those before and after it.
enum class RuleKind {
  combines,  // computes the result from the predictions and discards the previous one
  adds,      // adds to the result
  mends,     // corrects the result towards the conditional prediction, which it leaves unchanged
  changes,   // changes any result
  directs,   // turns guidance of later rules on or off
  scales,    // sets the scale of later rules
  prepares,  // changes the unconditional prediction for later rules
};

struct GuidanceRule {
  std::string name;
  std::string help;
  RuleKind kind = RuleKind::combines;
  bool has_scale = true;    // a rule that combines: has a scale that another rule may set
  bool can_be_off = false;  // a rule that adds: honours rules that turn guidance off
  std::function<std::unique_ptr<Guidance>(const OptionTexts& options)> start = {};
  std::function<std::vector<Option>()> options = {};
  std::vector<std::string> aliases = {};
  std::vector<Branch> extra = {};  // further branches that it may need
};

// A rule that is a class with a constructor from Options: a struct with fields() and, to refuse
// values, check().
template <class Rule, class Options>
GuidanceRule make_rule(GuidanceRule about);

const std::vector<const GuidanceRule*>& all_guidance_rules();
// Whatever the case of the name. Throws Error, suggests the nearest.
const GuidanceRule& find_guidance_rule(std::string_view name);

// ---- details -------------------------------------------------------------------------------

template <class Rule, class Options>
GuidanceRule make_rule(GuidanceRule about) {
  about.start = [name = about.name](const OptionTexts& texts) {
    return std::make_unique<Rule>(read_options<Options>(texts, name));
  };
  about.options = [] { return describe<Options>(); };
  return about;
}

}  // namespace ebb
