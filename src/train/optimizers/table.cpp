#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "train/optimizer.h"

#define X(name)                        \
  namespace ebb::train::optimizers {   \
  const ebb::train::Optimizer& name(); \
  }
#include "ebb/gen/optimizers.inc"
#undef X

namespace ebb::train {

const std::vector<const Optimizer*>& all_optimizers() {
  static const std::vector<const Optimizer*> all = {
#define X(name) &optimizers::name(),
#include "ebb/gen/optimizers.inc"
#undef X
  };
  return all;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> out;
  for (const Optimizer* o : all_optimizers()) out.push_back(o->name);
  return out;
}

std::string optimizer_help() {
  std::string out;
  for (const Optimizer* o : all_optimizers())
    out += str(out.empty() ? "" : "; ", o->name, ": ", o->help);
  return out;
}

namespace {

// "value (name, name), value (name)", values in the order in which they come first.
std::string grouped(const std::function<std::optional<double>(const Optimizer&)>& value) {
  std::vector<std::pair<double, std::string>> groups;
  for (const Optimizer* o : all_optimizers()) {
    const auto v = value(*o);
    if (!v) continue;
    const auto same = std::ranges::find(groups, *v, &std::pair<double, std::string>::first);
    if (same == groups.end())
      groups.emplace_back(*v, o->name);
    else
      same->second += ", " + o->name;
  }
  return separated(groups, ", ", [](const auto& g) { return str(g.first, " (", g.second, ")"); });
}

}  // namespace

bool reads(const Optimizer& o, std::string_view setting) {
  return std::ranges::find(o.reads, setting) != o.reads.end();
}

std::string readers_of(std::string_view setting) {
  std::vector<std::string> out;
  for (const Optimizer* o : all_optimizers())
    if (reads(*o, setting)) out.push_back(o->name);
  return separated(out, ", ");
}

std::string usual_beta2_help() {
  return grouped([](const Optimizer& o) -> std::optional<double> {
    if (!reads(o, "beta2")) return {};
    return o.beta2;
  });
}

std::string own_rates_help() {
  return grouped([](const Optimizer& o) -> std::optional<double> {
    if (!o.rate) return {};
    return o.rate({});
  });
}

const Optimizer& find_optimizer(std::string_view name) {
  for (const Optimizer* o : all_optimizers())
    if (o->name == name) return *o;
  fail_unknown("optimizer: unknown", std::string(name), optimizer_names());
}

double one_minus(double beta, double t) { return -std::expm1(t * std::log(beta)); }

std::vector<StepNumber> bias_corrections() {
  // exact where beta^t is next to 1, too
  return {{"c1", [](const OptimizerSettings& s, double t) { return one_minus(s.beta1, t); }},
          {"c2", [](const OptimizerSettings& s, double t) { return one_minus(s.beta2, t); }}};
}

void check(const Optimizer& o, const OptimizerSettings& s) {
  if (o.check) return o.check(s);
  require(s.options.empty(), "optimizer_options: ", o.name, " has none (", s.options, ")");
}

void check_above_zero(std::string_view option, double value) {
  require(value > 0 && std::isfinite(value), "optimizer_options: ", option, " must be above 0 (",
          value, ")");
}

std::vector<WeightState> states_of(const Optimizer& o, const std::string& weight,
                                   const Type& type) {
  std::vector<WeightState> out;
  for (const StateRule& rule : o.states)
    if (const auto kept = rule.type ? rule.type(type) : type)
      out.push_back({rule.prefix + weight, *kept, rule.begin});
  return out;
}

bool is_optimizer_state(std::string_view tensor) {
  return std::ranges::any_of(all_optimizers(), [&](const Optimizer* o) {
    return std::ranges::any_of(o->states,
                               [&](const StateRule& s) { return tensor.starts_with(s.prefix); }) ||
           (o->survey && std::ranges::any_of(o->survey->kept,
                                             [&](const RunNumber& n) { return tensor == n.name; }));
  });
}

}  // namespace ebb::train
