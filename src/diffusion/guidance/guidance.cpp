#include "diffusion/guidance/guidance.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/names.h"

#define X(name)                    \
  namespace ebb::guidance_rules {  \
  const ebb::GuidanceRule& name(); \
  }
#include "ebb/gen/guidance_rules.inc"
#undef X

namespace ebb {

// ---- predictions ---------------------------------------------------------------------------

std::string_view name_of(Branch branch) {
  constexpr std::string_view names[branch_count] = {
      "cond",      "uncond",   "empty",          "partial",   "weak", "skipped",
      "perturbed", "smoothed", "skipped_uncond", "sag_input", "sag"};
  return names[static_cast<int>(branch)];
}

double Factors::weight(Branch branch) const {
  for (const auto& [a, w] : weights)
    if (a == branch) return w;
  return 0;
}

Factors& Factors::add(Branch branch, double weight) {
  const auto same = [branch](const auto& w) { return w.first == branch; };
  const auto mine = std::find_if(weights.begin(), weights.end(), same);
  if (mine == weights.end())
    weights.emplace_back(branch, weight);
  else
    mine->second += weight;
  std::erase_if(weights, [](const auto& w) { return w.second == 0; });
  return *this;
}

Factors chained(const Factors& first, const Factors& second) {
  Factors out{.own = first.own * second.own};
  for (const auto& [branch, w] : first.weights) out.add(branch, second.own * w);
  for (const auto& [branch, w] : second.weights) out.add(branch, w);
  return out;
}

// ---- one evaluation ------------------------------------------------------------------------

OutputForm output_form(Prediction p, double sigma, double sigma_data) {
  const PrecondFactors<double> f = precond_factors(p, sigma, sigma_data);
  return {f.skip, f.out};
}

Form find_form(std::string_view name) {
  using Named = std::pair<std::string_view, Form>;
  constexpr Named forms[] = {{"data", Form::data},
                             {"velocity", Form::velocity},
                             {"raw", Form::raw},
                             {"mixed", Form::mixed}};
  return find_known("guidance form: unknown name", name, forms, &Named::first).second;
}

OutputForm form_at(Form form, const StepContext& m) {
  const bool flow = m.space == Space::flow;
  if (form == Form::data || (form == Form::mixed && flow)) return {0, 1};
  const OutputForm out =
      form == Form::raw ? m.raw : output_form(flow ? Prediction::flow : Prediction::v, m.sigma);
  return out.out == 0 ? OutputForm{0, 1} : out;  // at noise level 0 every output is D
}

// ---- rules ---------------------------------------------------------------------------------

const std::vector<const GuidanceRule*>& all_guidance_rules() {
  static const std::vector<const GuidanceRule*> table = {
#define X(name) &guidance_rules::name(),
#include "ebb/gen/guidance_rules.inc"
#undef X
  };
  return table;
}

const GuidanceRule& find_guidance_rule(std::string_view name) {
  std::vector<std::string> known;
  for (const GuidanceRule* r : all_guidance_rules()) {
    if (same_name(r->name, name)) return *r;
    known.push_back(r->name);
    for (const std::string& alias : r->aliases) {
      if (same_name(alias, name)) return *r;
      known.push_back(alias);
    }
  }
  fail_unknown("guidance: unknown name", name, known);
}

}  // namespace ebb
