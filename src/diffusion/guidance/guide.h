// Guide: guidance rules in order, and a denoiser made of them and of a network's predictions.
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

// From "rule:option=value,option=value;rule", with blanks around names and values or without.
// Throws Error for unknown names and options, for parts that are empty, and for rules and options
// that would do nothing where they stand (check_order).
std::vector<RuleCall> parse_rules(std::string_view text);
// Throws Error, and says which order works, unless every rule has something to work on: one that
// directs, scales or prepares has a rule after it that listens; one that mends has one before it
// that guides; after what changes the result none makes it anew; and what is told its scale has
// none of its own.
void check_order(const std::vector<RuleCall>& rules);
// Throws Error for rules that ask for other answers than those with and without condition, at
// whatever moment.
void check_branches(const std::vector<RuleCall>& rules);
// Whether a rule makes the result of more than the conditional prediction.
bool has_guidance(const std::vector<RuleCall>& rules);

// The result is the conditional prediction; then every rule changes it, in order. Rules remember
// evaluations of a run here (apg its momentum): make a Guide for each run, that is for each batch,
// or call restart() between runs. Without either rules can tell a new run only by its level: one
// that rises, or does not fall within the first step.
class Guide {
 public:
  explicit Guide(const std::vector<RuleCall>& rules);  // throws Error for names and options

  // Forgets the run before.
  void restart();

  // The predictions that an evaluation needs, in the order of Branch.
  std::vector<Branch> branches(const StepContext& m) const;
  // All rules as one sum, if they are linear at this moment: a device can make it in its plan.
  std::optional<Factors> factors(const StepContext& m) const;
  // Whether anything but the conditional prediction comes out at this moment.
  bool acts(const StepContext& m) const;
  // The noise levels between which acts() changes only from step to step.
  std::vector<double> edges() const;
  // Writes s.result from s.predictions, of which branches() must be there and may change.
  void apply(GuidedSample& s, const StepContext& m);

 private:
  std::vector<std::unique_ptr<Guidance>> rules_;
  std::vector<RuleKind> kinds_;  // of rules_
};

// Writes the prediction D(x, sigma) for every branches to the `predictions` of the same place. `x`
// is the sampler's: data + sigma noise, or on flow models (1 - sigma) data + sigma noise.
template <class T>
using HostPredict =
    std::function<void(std::span<const T> x, double sigma, std::span<const Branch> branches,
                       std::span<const std::span<T>> predictions)>;

struct GuidanceCall {
  GuidedShape shape;
  std::vector<double> sigmas = {};  // of the run: they tell the step
  Space space = Space::ve;
  // Of the network's own output, such as raw_of(); none: of eps, or of flow on flow models.
  std::function<OutputForm(double sigma)> raw = {};
  // The step of an evaluation, where sigmas do not tell.
  std::function<int64_t(double sigma)> step = {};
};

// output_form() of a network.
std::function<OutputForm(double sigma)> raw_of(Prediction p, double sigma_data = 1);

// The step that an evaluation belongs to: the last one that starts at `sigma` or above; the first
// one for levels above all. A second evaluation at the end of a step counts for the next step.
int64_t step_at(const std::vector<double>& sigmas, double sigma);

StepContext step_context_of(const GuidanceCall& call, double sigma);

// Whether the rules change the conditional prediction anywhere in the run: at one of its levels or
// between them, wherever a sampler may evaluate, however narrow the range. `highest`: where a
// sampler goes above the first level (SampleCounts::highest).
bool has_effect(const std::vector<RuleCall>& rules, const GuidanceCall& call, double highest = 0);

// Guided predictions as a sampler's denoiser, with a Guide of its own: one for each run. Its
// unconditional answer is the network's, as it is.
// Linear rules are summed in double; a batch gives bit for bit what its samples give.
template <class T>
HostDenoise<T> guided(HostPredict<T> predict, const std::vector<RuleCall>& rules,
                      GuidanceCall call);

extern template HostDenoise<float> guided(HostPredict<float>, const std::vector<RuleCall>&,
                                          GuidanceCall);
extern template HostDenoise<double> guided(HostPredict<double>, const std::vector<RuleCall>&,
                                           GuidanceCall);

}  // namespace ebb
