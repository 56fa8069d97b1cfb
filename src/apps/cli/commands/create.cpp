// ebb create NETWORKS OUT: a checkpoint of text to image whose weights are drawn, to be trained.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/interruption.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "diffusion/solver/run.h"
#include "io/file.h"
#include "pipeline/new_checkpoint.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string networks, out, dtype = "f32";
  DrawableSeed seed = 0;
  bool overwrite = false, json = false;
  void fields(auto&& f) {
    f("seed", seed, "of the weights, 0 to 2^64 - 1; -1: drawn and told");
    f("dtype", dtype, "of the weights in the file: f32, f16, bf16");
    f("overwrite", overwrite, overwrite_help);
    f("json", json, "print one JSON object on standard output, all else on standard error");
  }
  void choices(auto&& f) { f("dtype", dtype, {"f32", "f16", "bf16"}); }
};

void report(const Options& o, const std::vector<NewComponent>& made) {
  if (o.json) {
    nlohmann::ordered_json j = {{"out", o.out}, {"seed", uint64_t{o.seed}}};
    for (const NewComponent& c : made)
      j[std::string(name_of(c.component.model->kind))] = {{"config", c.component.config.text()},
                                                          {"weights", c.weights}};
    return print_json(j);
  }
  int64_t all = 0;
  for (const NewComponent& c : made) {
    all += c.weights;
    std::fprintf(stderr, "%-13s %10lld weights  %s\n",
                 std::string(name_of(c.component.model->kind)).c_str(),
                 static_cast<long long>(c.weights), c.component.config.text().c_str());
  }
  std::fprintf(stderr, "%lld weights: %s\n", static_cast<long long>(all), o.out.c_str());
}

int run(const Options& o) {
  constexpr int64_t limit = 1 << 20;
  const train::StopSignals signals(stopping);
  ProgressLine line("create");
  const NewCheckpoint request{
      .out = o.out,
      .overwrite = o.overwrite,
      .networks = io::read_whole_file(o.networks, "create", limit),
      .subject = o.networks,
      .seed = o.seed,
      .dtype = parse_dtype(o.dtype),
      .progress = [&](int64_t done, int64_t all) {
        line.show(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(all, 1)));
        if (signals.requested() != 0) throw Cancelled("create: stopped");
      }};
  try {
    const std::vector<NewComponent> made = create_checkpoint(request);
    line.finish();
    report(o, made);
    return 0;
  } catch (const Cancelled&) {
    line.finish();
    const nlohmann::ordered_json facts = {{"out", o.out}};
    return say_interrupted("create", signals.requested(), "nothing was written to " + o.out,
                           o.json ? &facts : nullptr);
  }
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "NETWORKS", o->networks,
                 "a JSON file: {\"size\": 128, \"unet\": {...}, \"text_encoder\": {...}, "
                 "\"autoencoder\": {...}}; fields that it does not name are Stable Diffusion 1's");
  add_positional(app, "OUT", o->out, "a .safetensors file");
  add_flags(app, fields_of(*o));
  return [o] {
    check_choices(*o, [](std::string_view field) { return str("create: unknown ", field); });
    say_drawn(o->seed);
    return run(*o);
  };
}

}  // namespace

const Command& create() {
  static const Command c{"create",
                         "make a checkpoint of text to image with drawn weights, to be trained",
                         "ebb create networks.json new.safetensors --seed 1", bind};
  return c;
}

}  // namespace ebb::cli
