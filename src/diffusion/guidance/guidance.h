// Guidance: how several predictions of one evaluation become one, as rules that follow each other.
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

// What the network is asked for besides x and the noise level. Each is a D(x, sigma).
enum class Branch {
  cond,       // the whole condition
  uncond,     // no condition, or the negative prompt
  empty,      // no condition at all, where uncond is a negative prompt
  partial,    // a part of the condition: the image without the text, or the second prompt
  weak,       // the condition, by a network that is smaller, less trained or lacks layers
  skipped,    // the condition, some blocks of the network left out (skip-layer guidance)
  perturbed,  // the condition, some self-attention maps replaced by the identity: V as it is (PAG)
  smoothed,   // the condition, the queries of some self-attention blurred (SEG)
  skipped_uncond,  // no condition or the negative prompt, some blocks left out
  sag_input,       // no network: `uncond`, blurred where much attention falls (sag_blur())
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
  // Set by rules that come before: guidance is off (scale 1), or has this scale.
  bool off = false;
  std::optional<double> scale = {};
};

// What a rule calculates in. data: D; velocity: noise minus data on flow models, else v of the
// variance-preserving process; raw: the network's output; mixed: velocity, but data on flow models.
enum class Form { data, velocity, raw, mixed };
// Throws Error, suggests the nearest.
Form find_form(std::string_view name);
// F of D(x, sigma) = skip x + out F.
OutputForm form_at(Form form, const StepContext& m);

// ---- rules ---------------------------------------------------------------------------------

// A rule at work in one run. All sums are over one sample: a batch gives what its samples give.
class Guidance {
 public:
  virtual ~Guidance() = default;
  // Forgets the evaluations before: a run starts.
  virtual void restart() {}
  // Changes what later rules are told.
  virtual void direct(StepContext&) const {}
  // The noise levels where the rule begins or ends; between these and within a step, it does the
  // same.
  virtual std::vector<double> edges() const { return {}; }
  // Of a rule that mends: whether it changes the conditional prediction itself, too.
  virtual bool changes_alone() const { return false; }
  // Where the rule is linear, which a device can do within its plan; most are not at every moment.
  // Weights have the sum 1 - own, so that every form gives the same.
  virtual std::optional<Factors> factors(const StepContext&) const { return Factors{.own = 1}; }
  // Elsewhere: what it needs, and how it changes s.result, in a form.
  virtual std::vector<Branch> needs(const StepContext&) const { return {}; }
  virtual Form form() const { return Form::data; }
  virtual void apply(GuidedSample&, const StepContext&) {}
};

// What a rule is to those before and after it.
enum class RuleKind {
  combines,  // makes the result anew from predictions: what it was before is lost
  adds,      // adds to the result
  mends,     // fits the result to the conditional prediction; that one itself it leaves alone
  changes,   // changes any result
  directs,   // tells rules after it when to guide
  scales,    // tells rules after it their scale
  prepares,  // changes the unconditional prediction for rules after it
};

struct GuidanceRule {
  std::string name;
  std::string help;
  RuleKind kind = RuleKind::combines;
  bool has_scale = true;    // a rule that combines: a scale that another rule may tell it
  bool can_be_off = false;  // a rule that adds: where rules tell it not to guide it does not
  std::function<std::unique_ptr<Guidance>(const OptionTexts& options)> start = {};
  std::function<std::vector<Option>()> options = {};
  std::vector<std::string> aliases = {};
  std::vector<Branch> extra = {};  // answers that it may ask for besides `cond` and `uncond`
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
