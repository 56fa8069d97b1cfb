// Guide: a sequence of guidance rules, and a guided denoiser of a network's predictions.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "diffusion/guidance/guidance.h"
#include "diffusion/solver/host_latents.h"

namespace ebb {

struct RuleCall {
  std::string rule;
  OptionTexts options = {};
};

// From "rule:option=value,option=value;rule", with optional blanks around names and values. Throws
// Error for unknown names and options, for empty rules, and for rules and options without effect in
// their position (check_order).
std::vector<RuleCall> parse_rules(std::string_view text);
// Throws Error with a suggested order unless every rule has an effect in its position: one that
// directs, scales or prepares needs a later rule that reads its setting; one that mends needs an
// earlier rule that guides; no rule may discard the result of one that changes it; and a rule whose
// scale is set by another has none of its own.
void check_order(const std::vector<RuleCall>& rules);
// Throws Error for rules that may need branches other than those given.
void check_branches(const std::vector<RuleCall>& rules,
                    std::span<const Branch> given = {{Branch::cond, Branch::uncond}});
// Whether a rule uses more than the conditional prediction.
bool has_guidance(const std::vector<RuleCall>& rules);

// The result starts as the conditional prediction; then every rule changes it, in order. Rules have
// state within a run (apg its momentum): make a Guide per run, that is per batch, or call restart()
// between runs. Otherwise rules can detect a new run only by its level: one that rises, or does not
// fall within the first step.
class Guide {
 public:
  explicit Guide(const std::vector<RuleCall>& rules);  // throws Error for names and options

  // Resets the state.
  void restart();

  // The branches that an evaluation needs, in the order of Branch.
  std::vector<Branch> branches(const StepContext& m) const;
  // All rules as one linear combination, if they are linear at this step: a device can evaluate it
  // in its plan.
  std::optional<Factors> factors(const StepContext& m) const;
  // Whether the result differs from the conditional prediction at this step.
  bool acts(const StepContext& m) const;
  // The noise levels between which acts() changes only from step to step.
  std::vector<double> edges() const;
  // Computes s.result from s.predictions, of which those of branches() must be present and may be
  // modified.
  void apply(GuidedSample& s, const StepContext& m);

 private:
  std::vector<std::unique_ptr<Guidance>> rules_;
  std::vector<RuleKind> kinds_;  // of rules_
};

// Writes the prediction D(x, sigma) of every branch to the span of the same index. `x` is the
// sampler's: data + sigma noise, or on flow models (1 - sigma) data + sigma noise.
template <class T>
using HostPredict =
    std::function<void(std::span<const T> x, double sigma, std::span<const Branch> branches,
                       std::span<const std::span<T>> predictions)>;

struct GuidanceCall {
  GuidedShape shape;
  std::vector<double> sigmas = {};  // of the run: they determine the step
  Space space = Space::ve;
  // Of the network's output, such as raw_of(); none: of eps, or of flow on flow models.
  std::function<OutputForm(double sigma)> raw = {};
  // The step of an evaluation, if sigmas do not determine it.
  std::function<int64_t(double sigma)> step = {};
};

// output_form() of a network.
std::function<OutputForm(double sigma)> raw_of(Prediction p, double sigma_data = 1);

// The step of an evaluation: the last one that starts at `sigma` or above; the first one for levels
// above all. A second evaluation at the end of a step counts for the next step.
int64_t step_at(const std::vector<double>& sigmas, double sigma);

StepContext step_context_of(const GuidanceCall& call, double sigma);

// Whether the rules change the conditional prediction anywhere in the run: at one of its levels or
// between them, wherever a sampler may evaluate. `highest`: if a sampler goes above the first level
// (SampleCounts::highest).
bool has_effect(const std::vector<RuleCall>& rules, const GuidanceCall& call, double highest = 0);

// Guided predictions as a sampler's denoiser, with a Guide of its own: one per run. Its
// unconditional prediction is the network's, unchanged. Linear rules are summed in double; results
// have the same bits in any batch.
template <class T>
HostDenoise<T> guided(HostPredict<T> predict, const std::vector<RuleCall>& rules,
                      GuidanceCall call);

extern template HostDenoise<float> guided(HostPredict<float>, const std::vector<RuleCall>&,
                                          GuidanceCall);
extern template HostDenoise<double> guided(HostPredict<double>, const std::vector<RuleCall>&,
                                           GuidanceCall);

}  // namespace ebb
