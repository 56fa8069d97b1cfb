// Denoisers, losses and sampler trajectories of whole networks against the references' golden
// values.
//
// As for networks: errors count against the norm, 1e-4 is the promise of the engine.
#include <gtest/gtest.h>

#include "diffusion/denoiser.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/loss.h"
#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/path.h"
#include "diffusion/solver/sampler.h"
#include "passes/gradients.h"
#include "support/cpu.h"
#include "support/golden_case.h"
#include "support/golden_distance.h"

namespace ebb::testing::golden_diffusion_test {
namespace {

constexpr double promise = 1e-4;
const Shape images{2, 16, 16, 3};
const std::vector<int64_t> classes = {1, 3};

using testing::cpu;

const nlohmann::json& golden() {
  static const nlohmann::json j = read_golden("diffusion");
  return j;
}

struct SmallModel {
  nn::Network network;
  nn::Weights weights;
};

// EDM's tiny network. Its iDDPM form has three more channels, which nothing reads.
SmallModel tiny_network() {
  const Model& model = *find_model("songunet").model;
  ModelConfig config = model.presets.front().config;
  auto fields = config.fields();
  for (const auto& [key, value] : golden()["edm"]["network"]["config"].items()) {
    if (key == "out_channels") continue;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    set_field(find_field(fields, our_field(key), key), text);
  }
  return {network_of(model, config), weights_of(model, config)};
}

std::string our_precond(const std::string& theirs) {
  static const std::map<std::string, std::string> names = {
      {"EDMPrecond", "edm"}, {"VPPrecond", "vp"}, {"VEPrecond", "ve"}, {"iDDPMPrecond", "iddpm"}};
  return names.at(theirs);
}

Denoiser tiny_denoiser(const std::string& precond) {
  const SmallModel m = tiny_network();
  const DenoiserOptions options{
      .batch = 2, .image = {16, 16, 3}, .conditions = {nn::class_condition(4)}};
  Denoiser d({.precond = precond}, m.network, options, cpu());
  for (const nn::Weight& w : m.weights) d.bind(w.name, hashed_weight(w));
  d.condition(nn::class_id, tensor_of(classes, {2}));
  return d;
}

State state_of(const Tensor& t) { return State(t.span<float>().begin(), t.span<float>().end()); }

double distance_of(const State& x, const nlohmann::json& want) {
  return distance("output", std::vector<float>(x.begin(), x.end()), want);
}

TEST(golden_denoiser, every_preconditioning__is_the_references) {
  for (const auto& c : golden()["edm"]["denoised"]["cases"]) {
    Denoiser d = tiny_denoiser(our_precond(c["preconditioning"]));
    for (const auto& v : c["values"])
      EXPECT_LE(distance_of(d(state_of(hashed_input("input.x", images)), v["sigma"]), v), promise)
          << c["preconditioning"] << ' ' << v["sigma"];
  }
}

class GoldenTrajectory : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTrajectory, states_after_every_step__are_the_references) {
  const auto& t = golden()["edm"]["sampling"]["trajectories"][GetParam()];
  const auto& o = t["options"];
  Denoiser denoiser = tiny_denoiser(our_precond(t["preconditioning"]));
  const Precond& precond = denoiser.precond();
  const std::string disc = o.value("discretization", "edm");
  const Path& path = find_path(o.value("schedule", "linear"));
  std::vector<double> asked;
  HostLatents<double> latents(
      static_cast<size_t>(images.numel()),
      [&](std::span<const double> x, double sigma, std::span<double> denoised, std::span<double>) {
        asked.push_back(sigma);
        const State d = denoiser(State(x.begin(), x.end()), sigma);
        std::copy(d.begin(), d.end(), denoised.begin());
      },
      [](std::span<double> out, const NoiseDraw& draw) {
        const State z = state_of(hashed_input(str("noise.", draw.index), images));
        std::copy(z.begin(), z.end(), out.begin());
      });
  SampleCall call{
      .sigmas = noise_levels(disc == "edm" ? "karras" : disc, precond.levels(), {.steps = 6}),
      .options = {{"path", path.name}},
      .dialect = "kdiff",  // draws in every step, as EDM's sampler does
      .round_sigma = [&](double sigma) { return precond.round_sigma(sigma); }};
  for (const auto& [name, option] : std::map<std::string, std::string>{{"S_churn", "s_churn"},
                                                                       {"S_min", "s_tmin"},
                                                                       {"S_max", "s_tmax"},
                                                                       {"S_noise", "s_noise"}})
    if (o.contains(name)) call.options.emplace_back(option, number_text(o[name]));
  call.progress = [&](const Progress& p) {
    State x = latents.values(p.x);
    for (double& v : x) v *= path.scale(path.time(p.sigma));
    EXPECT_LE(distance_of(x, t["after_step"][static_cast<size_t>(p.step) - 1]), promise)
        << "step " << p.step;
    return true;
  };
  State x = state_of(hashed_input("input.latents", images));
  for (double& v : x) v *= call.sigmas[0];
  sample(o.value("solver", "heun"), latents, latents.put(x), call);
  const auto want = t["denoiser_sigmas"].get<std::vector<double>>();
  ASSERT_EQ(asked.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(asked[i], want[i], 1e-8 * want[i]) << i;
}

std::vector<std::string> trajectory_names() {
  std::vector<std::string> names;
  for (const auto& [name, t] : golden()["edm"]["sampling"]["trajectories"].items())
    names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(golden, GoldenTrajectory, ::testing::ValuesIn(trajectory_names()),
                         [](const auto& info) { return info.param; });

// ---- losses --------------------------------------------------------------------------------

// A loss with gradients of the weights that the golden entry names.
struct LossRun {
  NamedTensors out;
  nn::Weights weights;
};

LossRun run_loss(const DiffusionConfig& config, const SmallModel& m, bool labels,
                 const nlohmann::json& want, NamedTensors in) {
  const Precond precond(config);
  Graph g;
  NoisyImages noisy;
  noisy.images = g.input("images", {DType::f32, images});
  noisy.noise = g.input("noise", {DType::f32, images});
  noisy.level.sigma = g.input("sigma", {DType::f32, {2}});
  noisy.level.argument = g.input("argument", {DType::f32, {2}});
  if (config.discrete()) noisy.level.timestep = g.input("timestep", {DType::i64, {2}});
  if (labels) noisy.conditions["class"] = g.input("class", {DType::i64, {2}});
  const LossTerms terms = denoising_loss(precond, m.network, noisy, {});
  LossRun run{.weights = m.weights};
  g.output("loss", terms.loss);
  g.output("mse", terms.mse);
  if (terms.bound) g.output("bound", terms.bound);
  std::vector<std::string> wrt;
  for (const auto& [name, entry] : want["gradients"].items()) wrt.push_back(name);
  Plan plan(gradients(g, "loss", wrt), cpu());
  for (const nn::Weight& w : run.weights) plan.bind(w.name, hashed_weight(w));
  in["noise"] = hashed_input("input.noise", images);
  if (labels) in["class"] = tensor_of(classes, {2});
  run.out = plan.run(in);
  return run;
}

void expect_loss(const LossRun& run, const nlohmann::json& want) {
  const double loss = want["loss"];
  EXPECT_NEAR(run.out.at("loss").span<float>()[0], loss, 1e-5 * loss);
  int compared = 0;
  for (const nn::Weight& w : run.weights) {
    if (!want["gradients"].contains(w.name)) continue;
    const Tensor grad = nn::to_file(w, run.out.at("grad." + w.name));
    EXPECT_LE(distance(w.name, grad.span<float>(), want["gradients"][w.name]), promise) << w.name;
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int>(want["gradients"].size()));
}

TEST(golden_loss, edm__is_the_references) {
  const auto& want = golden()["edm"]["edm_loss"];
  std::vector<float> sigma, argument;
  for (const double s : want["sigma"].get<std::vector<double>>()) {
    sigma.push_back(static_cast<float>(s));
    argument.push_back(static_cast<float>(Precond({}).at(s).noise));
  }
  expect_loss(run_loss({}, tiny_network(), true, want,
                       {{"images", hashed_input("input.images", images)},
                        {"sigma", tensor_of(sigma, {2})},
                        {"argument", tensor_of(argument, {2})}}),
              want);
}

TEST(golden_loss, ddpm_and_hybrid__are_the_references) {
  Tensor x0 = hashed("input.x_start", images, 1.25);
  for (float& v : x0.span<float>()) v = std::clamp(v, -1.0f, 1.0f);
  for (const auto& want : golden()["ddpm"]["losses"]) {
    const GoldenCase network(want["network"].get<std::string>());
    const auto& terms = want["terms_per_sample"];
    const DiffusionConfig config{
        .precond = "eps", .betas = want["schedule"], .learn_sigma = terms.contains("vb")};
    const auto steps = want["t"].get<std::vector<int64_t>>();
    std::vector<float> sigma, argument;
    for (const int64_t t : steps) {
      sigma.push_back(static_cast<float>(Precond(config).table().sigma[static_cast<size_t>(t)]));
      argument.push_back(static_cast<float>(t));
    }
    const LossRun run = run_loss(
        config,
        {network_of(*network.model, network.config), weights_of(*network.model, network.config)},
        network.config.common().classes > 0, want,
        {{"images", x0},
         {"sigma", tensor_of(sigma, {2})},
         {"argument", tensor_of(argument, {2})},
         {"timestep", tensor_of(steps, {2})}});
    SCOPED_TRACE(str(want["network"], ' ', want["schedule"], ' ', want["t"]));
    expect_loss(run, want);
    if (!config.learn_sigma) continue;
    const auto each = terms["vb"]["values"].get<std::vector<double>>();
    const double bound = (each[0] + each[1]) / 2;
    EXPECT_NEAR(run.out.at("bound").span<float>()[0], bound, 2e-5 * bound);
  }
}

}  // namespace
}  // namespace ebb::testing::golden_diffusion_test
