// Runs stable-diffusion.cpp's samplers on the toy, and its schedules: a request a line in, an
// answer in JSON a line out. sdcpp_golden.py compiles it against a checkout, as it is and with
// double in place of float (-DAS_DOUBLE), and asks.
//
//   sample METHOD FLOW ETA EXTRA COUNT SIGMA... X X X X   EXTRA: "key=value,..." or -
//   schedule SCHEDULER MODEL STEPS TOKENS VERSION EXTRA   MODEL: sd1, edm, flow3 or flux
//   times MODEL VALUE                                     timestep of a level, level of a timestep
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Everything of the standard library stands above: below it float may mean double.
#ifdef AS_DOUBLE
#define float double
#endif
#include "runtime/denoiser.hpp"

// ---- what the reference declares elsewhere ---------------------------------------------------

KeyValueArgs parse_key_value_args(const char* args, const char*) {
  KeyValueArgs out;
  std::stringstream parts(args == nullptr ? "" : args);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.find('=');
    if (equals != std::string::npos)
      out.emplace_back(part.substr(0, equals), part.substr(equals + 1));
  }
  return out;
}
KeyValueArgs parse_key_value_args(const std::string& args, const char* what) {
  return parse_key_value_args(args.c_str(), what);
}
bool parse_strict_float(const std::string& text, float& value) {
  value = static_cast<float>(std::stod(text));
  return true;
}
bool parse_strict_int(const std::string& text, int& value) {
  value = std::stoi(text);
  return true;
}
bool parse_strict_bool(const std::string& text, bool& value) {
  value = text == "true" || text == "1";
  return true;
}

namespace {

using Real = float;

// ---- the toy (toy.py) ------------------------------------------------------------------------

struct Draws : RNG {
  int count = 0;
  void manual_seed(uint64_t) override {}
  std::vector<Real> randn(uint32_t n) override {
    ++count;
    return std::vector<Real>(n, static_cast<Real>(std::sqrt(2.0) * std::sin(12.9898 * count)));
  }
};

using Exact = double;

Exact mixture(Exact x, Exact sigma) {
  constexpr Exact weight[] = {.35, .65}, mean[] = {-1.2, .8}, deviation[] = {.25, .4};
  Exact log_weight[2], posterior[2];
  for (int i = 0; i < 2; ++i) {
    const Exact own = deviation[i] * deviation[i], all = own + sigma * sigma;
    const Exact off = x - mean[i];
    log_weight[i] = std::log(weight[i]) - .5 * std::log(all) - off * off / (2 * all);
    posterior[i] = (own * x + sigma * sigma * mean[i]) / all;
  }
  const Exact most = std::max(log_weight[0], log_weight[1]);
  const Exact a = std::exp(log_weight[0] - most), b = std::exp(log_weight[1] - most);
  return (a * posterior[0] + b * posterior[1]) / (a + b);
}

Exact single(Exact x, Exact sigma) {
  return (.64 * x + .5 * sigma * sigma) / (.64 + sigma * sigma);
}

struct Toy {
  bool flow = false;
  Exact denoise(Exact x, Exact sigma, bool uncond) const {
    if (!flow) return uncond ? single(x, sigma) : mixture(x, sigma);
    if (sigma >= 1) return uncond ? .5 : .1;  // the means
    const Exact k = 1 - sigma;
    return uncond ? single(x / k, sigma / k) : mixture(x / k, sigma / k);
  }
};

// ---- answers ---------------------------------------------------------------------------------

std::string number(double v, int digits) {
  if (!std::isfinite(v)) return "\"nan\"";
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, v);
  return text;
}

template <class List>
std::string list(const List& values, int digits) {
  std::string out = "[";
  for (const auto v : values)
    out += (out.size() > 1 ? "," : "") + number(static_cast<double>(v), digits);
  return out + "]";
}

std::string error_of(const std::exception& e) {
  return std::string(",\"error\":\"") + e.what() + "\"";
}

std::string sample(std::istream& in) {
  int method, flow, count;
  double eta, value;
  std::string extra;
  in >> method >> flow >> eta >> extra >> count;
  std::vector<Real> sigmas, start;
  for (int i = 0; i < count && in >> value; ++i) sigmas.push_back(static_cast<Real>(value));
  for (int i = 0; i < 4 && in >> value; ++i) start.push_back(static_cast<Real>(value));
  const Toy toy{flow != 0};
  const auto draws = std::make_shared<Draws>();
  std::vector<double> evaluated;
  const auto model = [&](const sd::Tensor<Real>& x, Real sigma, int) {
    evaluated.push_back(static_cast<double>(sigma));
    std::vector<Real> cond, uncond;
    for (const Real v : x.values()) {
      cond.push_back(static_cast<Real>(toy.denoise(v, sigma, false)));
      uncond.push_back(static_cast<Real>(toy.denoise(v, sigma, true)));
    }
    sd::guidance::GuiderOutput out;
    out.pred = out.pred_cond = sd::Tensor<Real>({4, 1, 1, 1}, cond);
    out.pred_uncond = sd::Tensor<Real>({4, 1, 1, 1}, uncond);
    return out;
  };
  std::string x = "[]", error;
  try {
    const auto end = sample_k_diffusion(
        static_cast<sample_method_t>(method), model, sd::Tensor<Real>({4, 1, 1, 1}, start), sigmas,
        draws, static_cast<Real>(eta), flow != 0, extra == "-" ? nullptr : extra.c_str());
    x = list(end.values(), 17);
  } catch (const std::exception& e) {
    error = error_of(e);
  }
  return "{\"x\":" + x + error + ",\"nfe\":" + std::to_string(evaluated.size()) +
         ",\"draws\":" + std::to_string(draws->count) + ",\"evaluated\":" + list(evaluated, 17) +
         "}";
}

// Latent diffusion's table, a product in the reference's precision.
std::shared_ptr<Denoiser> table() {
  auto out = std::make_shared<CompVisDenoiser>();
  const auto low = std::sqrt(static_cast<Real>(.00085)), high = std::sqrt(static_cast<Real>(.0120));
  Real alpha_bar = 1;
  for (int i = 0; i < TIMESTEPS; ++i) {
    const Real root = low + (high - low) * (static_cast<Real>(i) / (TIMESTEPS - 1));
    alpha_bar *= 1 - std::pow(root, static_cast<Real>(2));
    out->sigmas[i] = std::sqrt((1 - alpha_bar) / alpha_bar);
    out->log_sigmas[i] = std::log(out->sigmas[i]);
  }
  return out;
}

std::shared_ptr<Denoiser> denoiser(const std::string& model) {
  if (model == "edm") return std::make_shared<EDMVDenoiser>();
  if (model == "flow3") return std::make_shared<DiscreteFlowDenoiser>(static_cast<Real>(3));
  if (model == "flux") return std::make_shared<FluxFlowDenoiser>();
  return table();
}

// The reference's own version of a network.
SDVersion version_of(const std::string& name) {
  if (name == "SDXL") return VERSION_SDXL;
  return name == "SVD" ? VERSION_SVD : VERSION_SD1;
}

std::string schedule(std::istream& in) {
  int scheduler, steps, tokens;
  std::string model, version, extra;
  in >> scheduler >> model >> steps >> tokens >> version >> extra;
  try {
    const auto sigmas = denoiser(model)->get_sigmas(
        static_cast<uint32_t>(steps), tokens, static_cast<scheduler_t>(scheduler),
        version_of(version), extra == "-" ? nullptr : extra.c_str());
    return "{\"sigmas\":" + list(sigmas, 9) + "}";
  } catch (const std::exception& e) {
    return "{\"sigmas\":[]" + error_of(e) + "}";
  }
}

std::string times(std::istream& in) {
  std::string model;
  double value = 0;
  in >> model >> value;
  const auto d = denoiser(model);
  const auto v = static_cast<Real>(value);
  return list(std::vector<double>{static_cast<double>(d->sigma_to_t(v)),
                                  static_cast<double>(d->t_to_sigma(v))},
              9);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::stringstream in(line);
    std::string request;
    in >> request;
    const std::string answer = request == "sample"     ? sample(in)
                               : request == "schedule" ? schedule(in)
                                                       : times(in);
    std::printf("%s\n", answer.c_str());
    std::fflush(stdout);
  }
}
