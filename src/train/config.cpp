#include "train/config.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/choices.h"
#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "runtime/fit.h"

namespace ebb::train {
namespace {

constexpr int64_t most_images = 1'000'000;  // in a batch: more elements than can be counted

// Numbers are where they must be; NaN is nowhere.
void in_range(std::string_view field, double v, double low, double high) {
  require(v >= low && v <= high, field, ": must be from ", low, " to ", high, " (", v, ")");
}

void at_least(std::string_view field, int64_t v, int64_t low) {
  require(v >= low, field, ": must be at least ", low, " (", v, ")");
}

// A setting that the optimiser does not read must be left as it is.
void check_optimizer_reads(const TrainConfig& c) {
  const Optimizer& o = find_optimizer(c.optimizer);
  const TrainConfig usual;
  for (const auto& [name, given, open] : {std::tuple{"beta1", c.beta1, usual.beta1},
                                          {"beta2", c.beta2, usual.beta2},
                                          {"eps", c.eps, usual.eps}})
    require(given == open || reads(o, name), name, ": ", o.name, " has none (", given, "), but ",
            readers_of(name));
}

}  // namespace

void check(const TrainConfig& c, int64_t ranks) {
  at_least("steps", c.steps, 0);
  require(c.minutes >= 0 && std::isfinite(c.minutes), "minutes: must be finite and not negative (",
          c.minutes, ")");
  require(c.steps > 0 || c.minutes > 0, "train: give --steps or --minutes");
  at_least("batch", c.batch, 1);
  require(c.batch <= most_images, "batch: must be at most ", most_images, " (", c.batch, ")");
  at_least("accumulation", c.accumulation, 1);
  require(c.batch % c.accumulation == 0, "accumulation: must divide batch (", c.batch, " / ",
          c.accumulation, ")");
  require(c.micro_batch() % ranks == 0,
          "batch: every rank must get as many images of a micro-batch (", c.batch, " / ",
          c.accumulation, " on ", ranks, ")");
  for (const auto& [name, v] : {std::pair{"threads", c.threads},
                                {"size", c.size},
                                {"limit", c.limit},
                                {"cache", c.cache},
                                {"checkpoint_every", c.checkpoint_every},
                                {"keep", c.keep},
                                {"validation_every", c.validation_every},
                                {"sample_every", c.sample_every}})
    at_least(name, v, 0);
  at_least("log_every", c.log_every, 1);
  in_range("beta1", c.beta1, 0, 0.999999);
  in_range("beta2", c.beta2, 0, 0.999999);
  in_range("eps", c.eps, 1e-30, 1);
  in_range("weight_decay", c.weight_decay, 0, 1e6);
  in_range("clip", c.clip, 0, 1e30);
  in_range("augment", c.augment, 0, 1);
  require(c.channels == 0 || c.channels == 1 || c.channels == 3, "channels: must be 0, 1 or 3 (",
          c.channels, ")");
  require(!(c.flip && c.augment > 0), "flip: is included in augment (augment ", c.augment, ")");
  check_choices(c, [](std::string_view field) { return str(field, ": unknown value"); });
  parse_recompute(c.recompute);
  require(!c.out.empty(), "out: must name a folder");
  require(!(c.resume && c.overwrite), "train: give resume or overwrite, not both");
  check_optimizer_reads(c);
  check(find_optimizer(c.optimizer), optimizer_settings(c));
  check(rate_schedule(c));
  check(ema_schedule(c));
}

RateSchedule rate_schedule(const TrainConfig& c) {
  return {.kind = c.schedule,
          .lr = c.lr,
          .warmup = c.warmup,
          .steps = c.steps,
          .final = c.lr_final,
          .reference = c.lr_reference};
}

EmaSchedule ema_schedule(const TrainConfig& c) {
  return {.decay = c.ema, .halflife = c.ema > 0 ? 0 : c.ema_halflife, .rampup = c.ema_rampup};
}

OptimizerSettings optimizer_settings(const TrainConfig& c) {
  return {.beta1 = c.beta1,
          .beta2 = c.beta2 > 0 ? c.beta2 : find_optimizer(c.optimizer).beta2,
          .eps = c.eps,
          .weight_decay = c.weight_decay,
          .options = c.optimizer_options};
}

std::string fixed_options(const TrainConfig& c) {
  const Optimizer& o = find_optimizer(c.optimizer);
  const OptionTexts given = parse_options(c.optimizer_options, "optimizer_options");
  std::string out;
  for (const std::string_view name : o.fixed_options) {
    const std::vector<Option> known = o.options();
    std::string text = std::ranges::find(known, name, &Option::name)->value;
    for (const auto& [option, value] : given)
      if (small_letters(option) == name) text = value;
    out += str(out.empty() ? "" : ",", name, "=", parse_number(text, name));
  }
  return out;
}

double usual_rate(const std::string& optimizer, const std::string& options, double usual) {
  const std::vector<std::string> names = optimizer_names();
  const size_t at = find_name(optimizer, names);
  if (at == names.size()) return usual;  // check() says so
  const Optimizer& o = find_optimizer(names[at]);
  const OptimizerSettings s{.options = options};
  check(o, s);
  return o.rate ? o.rate(s).value_or(usual) : usual;
}

StepOptions step_options(const TrainConfig& c, bool fast_bf16) {
  const bool bf16 = c.dtype == "bf16" || (c.dtype == "auto" && fast_bf16);
  return {.dtype = bf16 ? DType::bf16 : DType::f32,
          .optimizer = c.optimizer,
          .settings = optimizer_settings(c),
          .max_norm = c.clip,
          .accumulate = c.accumulation > 1};
}

Shard shard_of(const std::string& shard, const Optimizer& optimizer, bool accumulates) {
  const Shard parts = parse_shard(shard, accumulates);
  if (optimizer.grain > 0 || parts == Shard::none) return parts;
  require(shard == "auto", "shard: ", optimizer.name,
          " reads whole weights, so that nothing is kept in parts (", shard,
          "); give --shard none or another --optimizer");
  return Shard::none;
}

Split split_of(const TrainConfig& c, const RankGroup* ranks) {
  if (!ranks || ranks->ranks() == 1) return {};
  return {.ranks = ranks->ranks(),
          .rank = ranks->rank(),
          .shard = shard_of(c.shard, find_optimizer(c.optimizer), c.accumulation > 1),
          .sent = parse_dtype(c.reduce_dtype),
          .grain = std::max<int64_t>(find_optimizer(c.optimizer).grain, 1)};
}

std::string to_json(const TrainConfig& c) {
  TrainConfig copy = c;
  return fields_json(fields_of(copy));
}

TrainConfig train_config_from_json(std::string_view text, std::string_view subject) {
  TrainConfig c;
  set_fields_json(fields_of(c), text, subject);
  return c;
}

}  // namespace ebb::train
