// ebb eval CHECKPOINT: how good the samples are.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "pipeline/evaluate.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string checkpoint, model;
  EvaluateOptions evaluate;
  CommonOptions common;
  FieldTexts diffusion;
  void fields(auto&& f) {
    f("data", evaluate.data, "images to compare with, as for train");
    f("n", evaluate.n, "number of samples");
    f("features", evaluate.features, "network file of another feature space");
    f("model", model, "model of a file that is not recognised");
    evaluate.generate.fields(f);
  }
};

// None if a signal stopped it, with a message.
std::optional<Quality> evaluate_until(const train::StopSignals& signals, const Options& o,
                                      const LoadedModel& model, const Context& context) {
  const auto log = [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  try {
    return evaluate(model, o.evaluate, context, {log, [&] { return signals.requested() != 0; }});
  } catch (const Cancelled&) {
    std::fprintf(stderr, "eval: interrupted by signal %d; nothing was measured\n",
                 signals.requested());
    return std::nullopt;
  }
}

int run(const Options& o) {
  require(!o.evaluate.data.empty(), "eval: --data is missing");
  const Context context = open_device(o.common);
  const LoadedModel model = load_model(o.checkpoint, o.model, o.diffusion);
  say_guesses(model);
  const train::StopSignals signals("stopping; again, after a second, to end now");
  const std::optional<Quality> measured = evaluate_until(signals, o, model, context);
  if (!measured) return signal_exit + signals.requested();
  const Quality& q = *measured;
  if (o.common.json) {
    nlohmann::ordered_json j;
    j["class_accuracy"] = q.conditional ? nlohmann::ordered_json(q.class_accuracy) : nullptr;
    j["frechet_distance"] = q.frechet_distance;
    j["n"] = q.n;
    j["held_out"] = q.held_out;
    j["held_out_is_training"] = q.held_out_seen;
    j["classifier_accuracy"] = q.classifier_accuracy;
    j["seconds"] = q.seconds;
    std::puts(j.dump().c_str());
    return 0;
  }
  if (q.conditional)
    std::printf("class accuracy      %.1f %%  (the classifier's on %s images: %.1f %%)\n",
                100 * q.class_accuracy, q.held_out_seen ? "training" : "held-out",
                100 * q.classifier_accuracy);
  std::printf("Frechet distance    %.3f  (%lld samples, %lld held-out images)\n",
              q.frechet_distance, static_cast<long long>(q.n), static_cast<long long>(q.held_out));
  return 0;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "CHECKPOINT", o->checkpoint, "a model file or the folder of a training run");
  add_flags(app, fields_of(*o));
  add_overrides(app, o->diffusion);
  add_flags(app, fields_of(o->common));
  return [o, &app] {
    check_model_flag(app, o->model, "eval");
    resolve(o->evaluate.generate);
    resolve_auto({&o->evaluate.generate.schedule, &o->evaluate.generate.noise});
    check_steps_flag(app, o->evaluate.generate.schedule, o->evaluate.generate.dialect, "eval");
    return run(*o);
  };
}

}  // namespace

const Command& eval() {
  static const Command c{"eval", "measure the quality of samples",
                         "ebb eval out/demo --data /usr/share/datasets/fashion-mnist --n 1000",
                         bind};
  return c;
}

}  // namespace ebb::cli
