// ebb explain: what becomes of a model, stage by stage.
#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "diffusion/loss.h"
#include "ir/text.h"
#include "models/model.h"
#include "passes/precision/mixed_precision.h"
#include "pipeline/load_model.h"
#include "runtime/launches.h"
#include "runtime/plan.h"
#include "runtime/traffic.h"
#include "train/config.h"
#include "train/model_weights.h"

namespace ebb::cli {
namespace {

constexpr std::string_view after = "after:";

struct Options {
  std::string model = "tiny", stage = "plan", dtype = "f32", recompute = "off", shard = "auto",
              reduce_dtype = "f32";
  std::string optimizer = "adamw";
  int64_t batch = 8, ranks = 1;
  bool train = true, all = false;
  CommonOptions common;
  DiffusionConfig diffusion;
  void fields(auto&& f) {
    f("model", model, "name of a model or preset");
    f("stage", stage,
      "graph (as built), grad (the full training step), passes (those that lower and fuse it), "
      "after:PASS (one of them), fused (all of them), launches (counts and bytes by kernel, also "
      "for a GPU that is not here: --device cuda:h100 or cuda:h200) or plan");
    f("dtype", dtype, "of matmuls and convolutions: f32 or bf16");
    f("recompute", recompute,
      "plan: activation checkpointing to save memory: off, pointwise, all, auto or a size like "
      "8GB");
    f("batch", batch, "images");
    f("ranks", ranks,
      "of a training step on so many devices: the plan of each, and what it sends (`batch` is of "
      "all)");
    f("shard", shard, "what these keep in parts: auto, none, optimizer, weights");
    f("reduce_dtype", reduce_dtype, "of the gradients that these send each other: f32 or bf16");
    f("optimizer", optimizer, "of the training step, as `ebb train`");
    f("all", all, "print long lists and expressions in full");
    f("train", train, "the training step; --no-train: one evaluation of the network");
  }
  void choices(auto&& f) {
    if (!stage.starts_with(after))
      f("stage", stage, {"graph", "grad", "passes", "fused", "launches", "plan"});
    f("dtype", dtype, {"f32", "bf16", "f16"});
    f("optimizer", optimizer, train::optimizer_names());
    f("shard", shard, train::shard_choices());
    f("reduce_dtype", reduce_dtype, {"f32", "bf16"});
  }
};

constexpr int64_t most_images = 1'000'000;  // in a batch

// Lists of many numbers, such as tables that are part of a graph, as their ends:
// "[1,2,3, 994 more, 998,999,1000]".
std::string with_short_lists(std::string_view text) {
  constexpr int64_t longest = 12, kept = 3;  // items; at an end
  std::string out;
  while (!text.empty()) {
    const size_t open = std::min(text.find('['), text.size());
    const size_t end = text.find_first_of("[]\n", std::min(open + 1, text.size()));
    const std::string_view list = text.substr(open, end == text.npos ? text.npos : end - open);
    const int64_t items = 1 + std::count(list.begin(), list.end(), ',');
    if (items <= longest) {
      out += text.substr(0, open + list.size());
    } else {
      size_t head = 0, tail = list.size();
      for (int64_t i = 0; i < kept; ++i) head = list.find(',', head + 1);
      for (int64_t i = 0; i < kept; ++i) tail = list.rfind(',', tail - 1);
      out += str(text.substr(0, open), list.substr(0, head), ", ", items - 2 * kept, " more, ",
                 list.substr(tail + 1));
    }
    text.remove_prefix(open + list.size());
  }
  return out;
}

// Long expressions as their ends: "expr=<2|t2=...;t3=...;t4=...; 94 more; t99=...|t99>".
std::string with_short_expressions(std::string_view text) {
  constexpr std::string_view begin = "expr=<";
  constexpr int64_t longest = 12, kept = 3;  // instructions; at an end
  std::string out;
  for (size_t open = text.find(begin); open != text.npos; open = text.find(begin)) {
    const std::string_view expr = text.substr(open, text.find_first_of(">\n", open) - open);
    const int64_t items = 1 + std::count(expr.begin(), expr.end(), ';');
    size_t head = 0, tail = expr.size();
    if (items > longest) {
      for (int64_t i = 0; i < kept; ++i) head = expr.find(';', head + 1);
      for (int64_t i = 0; i < kept; ++i) tail = expr.rfind(';', tail - 1);
      out += str(text.substr(0, open), expr.substr(0, head), "; ", items - 2 * kept, " more; ",
                 expr.substr(tail + 1));
    } else {
      out += text.substr(0, open + expr.size());
    }
    text.remove_prefix(open + expr.size());
  }
  return out += text;
}

// More than four equal types in a row as "f32[] (91 times)".
std::string with_short_types(std::string_view text) {
  constexpr int64_t longest = 4;
  std::string out;
  while (!text.empty()) {
    const size_t word = text.find_first_of(" \n");
    const std::string_view types = text.substr(0, word);
    for (size_t at = 0; at < types.size();) {
      const size_t close = types.find(']', at);
      const std::string_view type =
          types.substr(at, close == types.npos ? types.npos : close + 1 - at);
      size_t next = at + type.size();
      int64_t times = 1;
      while (close != types.npos && next < types.size() && types[next] == ',' &&
             types.substr(next + 1, type.size()) == type) {
        next += 1 + type.size();
        ++times;
      }
      out += times > longest ? str(type, " (", times, " times)") : types.substr(at, next - at);
      at = next;
    }
    if (word == text.npos) break;
    out += text[word];
    text.remove_prefix(word + 1);
  }
  return out;
}

// Name and purpose of every pass, and which are skipped for this graph on the device.
std::string pass_list(const Lowering& l) {
  std::string out;
  for (const Pass& p : lowering_passes())
    out += fmt::format("{:26} {}{}\n", p.name, p.what, p.runs(l) ? "" : " (skipped here)");
  return out;
}

// What a rank sends; "" where there is one.
std::string sent_text(const Options& o, const Graph& lowered) {
  return o.ranks == 1 ? "" : text_of(traffic_of(lowered, o.ranks)) + '\n';
}

// The graph as `stage` wants it, or what is to be said of the passes.
std::string lowered_text(const Options& o, const Graph& g, Lowering& l) {
  if (o.stage == "passes") return pass_list(l);
  const std::string last = o.stage.starts_with(after) ? o.stage.substr(after.size()) : "";
  require(o.stage != after, "explain: after: needs a pass (ebb explain --stage passes)");
  const Graph out = lowered(g, l, last);
  for (const Pass& p : lowering_passes())
    if (p.name == last && !p.runs(l))
      std::fprintf(stderr, "ebb: %s is skipped here (ebb explain --stage passes)\n", last.c_str());
  if (o.stage != "launches") return to_text(out);
  return launch_table(out, l) + sent_text(o, out);
}

Graph forward_graph(const Options& o, const NamedModel& m) {
  const CommonConfig& c = m.config.common();
  const nn::Network network = network_of(*m.model, m.config);
  if (o.train)
    return loss_graph(o.diffusion, network,
                      {.batch = o.batch / o.ranks,
                       .image = {c.image_size, c.image_size, c.in_channels},
                       .conditions = class_conditions(m.config)});
  Graph g;
  g.output("F", network(g, network_inputs(g, *m.model, m.config, o.batch)));
  return g;
}

Graph training_graph(const Options& o, const NamedModel& m, const Graph& forward) {
  if (!o.train) return mixed_precision(forward, parse_dtype(o.dtype), Parameters::rounded);
  const train::Optimizer& optimizer = train::find_optimizer(o.optimizer);
  return train::train_step(forward, {.dtype = parse_dtype(o.dtype),
                                     .optimizer = o.optimizer,
                                     .settings = {.beta2 = optimizer.beta2},
                                     .undecayed = nn::without_decay(weights_of(*m.model, m.config)),
                                     .split = {.ranks = o.ranks,
                                               .shard = train::shard_of(o.shard, optimizer),
                                               .sent = parse_dtype(o.reduce_dtype),
                                               .grain = std::max<int64_t>(optimizer.grain, 1)}});
}

std::string text_of(const Options& o, const std::string& text) {
  return o.all ? text : with_short_types(with_short_expressions(with_short_lists(text)));
}

void print_sum(const Options& o, const Plan& plan) {
  const Cost cost = plan.cost();
  nlohmann::ordered_json j = {{"model", o.model},
                              {"stage", o.stage},
                              {"batch", o.batch},
                              {"steps", plan.steps().size()},
                              {"flops", cost.flops},
                              {"bytes_moved", cost.bytes},
                              {"arena_bytes", plan.arena_bytes()},
                              {"recomputed_pointwise", plan.recomputed().pointwise},
                              {"recomputed_blocks", plan.recomputed().blocks},
                              {"source_bytes", plan.source_bytes()},
                              {"text", text_of(o, plan.text())}};
  if (o.ranks > 1) {
    const Traffic sent = sum_of(traffic_of(plan.graph(), o.ranks));
    j.update({{"ranks", o.ranks}, {"collectives", sent.collectives}, {"sent_bytes", sent.bytes}});
  }
  print_json(j);
}

// The network's config, with the number of channels that the diffusion needs.
NamedModel model_of(const Options& o) {
  NamedModel m = find_model(o.model);
  for (const Field& f : m.config.fields())
    if (f.name == "learn_sigma" && o.train) **std::get_if<bool*>(&f.ref) = o.diffusion.learn_sigma;
  return m;
}

// Throws Error for flags that say nothing of what is printed.
void check_given(const Options& o, const std::vector<std::string>& given) {
  using Names = std::vector<std::string_view>;
  const Names of_step = {"optimizer", "shard", "reduce_dtype"};
  Names unread;
  if (o.stage == "graph") unread = {"optimizer", "shard", "reduce_dtype", "dtype"};
  if (o.stage == "passes")  // of which the device alone decides
    unread = {"model", "optimizer", "reduce_dtype", "dtype", "batch", "all"};
  const auto is_in = [](const Names& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const std::string& name : given) {
    require(o.train || !is_in(of_step, name), "explain: ", flag_of(name),
            " is for the training step (--no-train)");
    require(!is_in(unread, name), "explain: ", flag_of(name), " has no effect on --stage ",
            o.stage);
  }
}

void check_ranks(const Options& o) {
  constexpr int64_t most_ranks = 65536;
  require(o.ranks >= 1 && o.ranks <= most_ranks, "explain: ranks must be 1 to ", most_ranks,
          " (got ", o.ranks, ")");
  require(o.ranks > 1 || (o.shard == "auto" && o.reduce_dtype == "f32"),
          "explain: --shard and --reduce-dtype are of several ranks (--ranks ", o.ranks, ")");
  require(o.train || o.ranks == 1, "explain: ranks are of the training step (--no-train)");
  require(o.batch % o.ranks == 0, "explain: every rank must get as many images (batch ", o.batch,
          " on ", o.ranks, ")");
}

int run(const Options& o) {
  check_choices(o, [](std::string_view field) { return str("explain: unknown ", field); });
  require(o.batch > 0 && o.batch <= most_images, "explain: batch must be 1 to ", most_images,
          " (got ", o.batch, ")");
  const Recompute r = parse_recompute(o.recompute);
  require(o.dtype != "f16" || !o.train,
          "explain: dtype of a training step must be f32 or bf16 (got 'f16')");
  require(r.kind == Recompute::Kind::off || (o.train && o.stage == "plan"),
          "explain: recompute is of the plan of a training step (--stage ", o.stage,
          o.train ? ")" : ", --no-train)");
  require(o.train || o.stage != "grad", "explain: stage grad is of the training step (--no-train)");
  check_ranks(o);
  const NamedModel m = model_of(o);
  const Graph forward = forward_graph(o, m);
  const Context context = open_device(o.common, Devices::described);
  if (o.ranks > 1) context.device->describe_ranks(o.ranks);
  // Plans that sample compute nothing of weights alone: see docs/weights.md.
  const CompileOptions options{
      .recompute = r,
      .gather_again = o.shard == "weights",
      .weights = o.train ? nullptr : train::described_weights(weights_of(*m.model, m.config))};
  std::string text;
  if (o.stage == "graph") {
    text = to_text(forward);
  } else if (o.stage == "grad") {
    text = to_text(training_graph(o, m, forward));
  } else if (o.stage != "plan") {
    Lowering l{*context.device, options};
    l.verify_each = true;
    text = lowered_text(o, training_graph(o, m, forward), l);
  } else {
    const Plan plan(training_graph(o, m, forward), context, options);
    if (o.common.json) {
      print_sum(o, plan);
      return 0;
    }
    text = plan.text() + sent_text(o, plan.graph());
  }
  text = text_of(o, text);
  if (o.common.json)
    text = nlohmann::ordered_json({{"model", o.model}, {"stage", o.stage}, {"text", text}}).dump() +
           "\n";
  std::fputs(text.c_str(), stdout);
  return 0;
}

// Throws Error for flags that say nothing here. A model that usually learns variances does not with
// a diffusion that has none to learn.
void check_diffusion_flags(Options& o, const std::vector<std::string>& given) {
  const std::vector<Field> fields = fields_of(o.diffusion);
  check_choices(o.diffusion,
                [](std::string_view name) { return str("diffusion: unknown ", name); });
  bool learns = false;
  for (const std::string& name : given) {
    if (std::ranges::find(fields, name, &Field::name) == fields.end()) continue;
    require(o.train, "explain: ", flag_of(name), " is for the training step (--no-train)");
    require(o.stage != "passes", "explain: ", flag_of(name), " has no effect on --stage passes");
    learns = learns || name == "learn_sigma";
    if (name != "learn_sigma") check_applies(name, o.diffusion.precond);
  }
  if (!o.diffusion.discrete() && !learns) o.diffusion.learn_sigma = false;
  check(o.diffusion);
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>& words) {
  const auto o = std::make_shared<Options>();
  if (const std::string name = flag_value(words, "--model"); !name.empty()) o->model = name;
  const NamedModel m = find_model(o->model);
  o->diffusion = usual_diffusion(*m.model, m.config);
  add_flags(app, fields_of(*o));
  add_flags(app, fields_of(o->diffusion));
  add_flags(app, fields_of(o->common));
  describe_flag(app, "--device",
                "auto, cpu or cuda; or cuda:h100 or cuda:h200, a GPU that is not here");
  return [o, &app] {
    resolve(*o);
    resolve(o->diffusion);
    check_diffusion_flags(*o, given_fields(app));
    check_given(*o, given_fields(app));
    return run(*o);
  };
}

}  // namespace

const Command& explain() {
  static const Command c{"explain",
                         "print a model's graph, gradient, fused graph or plan",
                         "ebb explain --model tiny --stage plan --batch 64",
                         bind,
                         {"model", "stage", "batch", "dtype", "train", "recompute", "all",
                          "precond", "device", "json"}};
  return c;
}

}  // namespace ebb::cli
