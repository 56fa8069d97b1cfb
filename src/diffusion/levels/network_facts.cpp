#include "diffusion/levels/network_facts.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/names.h"

namespace ebb {
namespace {

using Named = std::pair<std::string_view, Prediction>;

constexpr Named predictions[] = {
    {"eps", Prediction::eps},     {"v", Prediction::v},         {"x0", Prediction::x0},
    {"edm", Prediction::edm},     {"edm_v", Prediction::edm_v}, {"ve", Prediction::ve},
    {"rflow", Prediction::rflow}, {"flow", Prediction::flow},   {"dataward", Prediction::dataward}};

// Levels whose networks mostly predict something else than noise.
constexpr Named usual[] = {{"flow", Prediction::flow},
                           {"edm", Prediction::edm},
                           {"ve", Prediction::ve},
                           {"rflow", Prediction::rflow},
                           {"atan", Prediction::v}};

Prediction prediction_of(const NetworkOptions& o) {
  const std::string& levels = o.levels.levels;
  if (o.prediction == "usual") {
    for (const auto& [name, own] : usual)
      if (name == levels) return own;
    return Prediction::eps;
  }
  const Prediction p =
      find_known("levels: unknown prediction", o.prediction, predictions, &Named::first).second;
  const bool flow = p == Prediction::flow || p == Prediction::dataward;
  require(flow == (levels == "flow"), "levels: prediction ", o.prediction,
          " does not go with levels ", levels);
  return p;
}

}  // namespace

void NetworkOptions::check() const {
  levels.check();
  require(std::isfinite(sigma_data) && sigma_data > 0, "levels: sigma_data must be positive (",
          sigma_data, ")");
  std::vector<std::string> known = {"usual"};
  for (const Named& n : predictions) known.emplace_back(n.first);
  check_known("levels: unknown prediction", prediction, known);
}

NetworkFacts network_facts(const NetworkOptions& o) {
  o.check();
  NetworkFacts n{.levels = discretisation(o.levels),
                 .prediction = prediction_of(o),
                 .sigma_data = o.sigma_data};
  const bool uses_deviation = n.prediction == Prediction::edm || n.prediction == Prediction::edm_v;
  require(uses_deviation || o.sigma_data == NetworkOptions().sigma_data, "levels: sigma_data (",
          o.sigma_data, ") is for predictions edm and edm_v");
  // Such networks count time from noise to data.
  if (n.prediction == Prediction::dataward) n.levels.c_noise = CNoise::dataward;
  return n;
}

}  // namespace ebb
