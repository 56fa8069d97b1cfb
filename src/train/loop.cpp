#include "train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/version.h"
#include "io/file.h"
#include "nn/network.h"
#include "train/diagnose.h"
#include "train/loader.h"
#include "train/run_folder.h"
#include "train/stop.h"

namespace ebb::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double between_lines = 0.25;  // seconds, at least; a GPU does hundreds of steps in one

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

float number(const NamedTensors& out, std::string_view name) {
  return out.find(name)->second.span<float>()[0];
}

// NaN has a sign that says nothing.
std::string shown(float v) { return std::isnan(v) ? "nan" : str(v); }

StepOptions options_of(const TrainJob& job, const Context& context) {
  StepOptions o = step_options(job.config, context.device->fast_in(DType::bf16));
  o.undecayed = nn::without_decay(job.weights);
  return o;
}

class Run {
 public:
  Run(TrainJob job, const Context& context)
      : job_(std::move(job)),
        c_(job_.config),
        context_(context),
        options_(options_of(job_, context)),
        plan_(train_step(job_.loss, options_), context,
              {.recompute = parse_recompute(c_.recompute)}) {
    TrainConfig recorded = c_;
    recorded.resume = recorded.overwrite = false;  // of this start, not of the run
    job_.info.train_config = to_json(recorded);
    plan_.check_memory();
    state_ = c_.resume ? load_state(c_.out, job_.weights) : initial_state(job_.weights, c_.seed);
    bind_state(plan_, state_);
    first_ = state_.step;
    saved_ = c_.resume ? state_.step : -1;
    next_ = job_.batches(state_.step * c_.accumulation);
  }

  TrainResult run() {
    signals_.emplace(
        "stopping after this step, with a checkpoint; again, after a second, to end now");
    lock_ = begin_run_folder(c_.out, c_.overwrite, job_.hooks.log);
    metrics_ = std::make_unique<MetricsLog>(c_.out, state_.step, c_.tensorboard);
    if (!metrics_->warning().empty()) say(metrics_->warning());
    write_config();
    write_facts();
    announce();
    make_missing_sample();
    if (c_.steps > 0 && state_.step >= c_.steps)
      say(str("nothing to do: the run has ", state_.step, " steps (--steps ", c_.steps,
              "); a larger --steps goes on",
              c_.minutes > 0 ? ", or --steps 0 until --minutes are over" : ""));
    TrainResult result;
    try {
      for (bool go = state_.step < c_.steps || c_.steps == 0; go;) {
        step();
        const auto why = reason_to_end(signals_->requested());
        result.why = why.value_or(result.why);
        go = !why;
        between_steps(!go);
      }
    } catch (const Error&) {
      if (saved_ > 0 && !diverged_)
        say(str("saved up to step ", saved_, "; go on with --resume --out ", c_.out));
      throw;
    }
    result.step = state_.step;
    result.loss = loss_.value();
    result.checkpoint = model_file(c_.out, state_.step);
    end_of_signal(result);
    return result;
  }

 private:
  void say(std::string_view text) const {
    if (job_.hooks.log) job_.hooks.log(text);
  }

  void end_of_signal(TrainResult& result) const {
    const int signal = signals_->requested();
    if (result.why == TrainResult::Stop::signal) {
      result.signal = signal;
      say(str("stopped by signal ", signal, " after step ", state_.step,
              "; go on with --resume --out ", c_.out));
    } else if (signal != 0) {
      say(str("signal ", signal, " came at the end: the run is finished, with all its ",
              result.why == TrainResult::Stop::steps ? str(state_.step, " steps") : "time"));
    }
  }

  void announce() const {
    if (c_.resume) say(str("resumes at step ", state_.step, "  ", c_.out));
    say(str("trains ", nn::count_elements(state_.weights), " weights with ", options_.dtype,
            " matrix work on ", context_.device->description(), "; a step needs ",
            (plan_.arena_bytes() + plan_.source_bytes()) / 1000000, " MB",
            c_.recompute == "off"
                ? std::string()
                : str(" with ", plan_.recomputed().pointwise, " pointwise nodes and ",
                      plan_.recomputed().blocks, " blocks computed twice")));
  }

  void write_config() const {
    io::AtomicFile file((std::filesystem::path(c_.out) / "config.json").string(), "config");
    const auto section = [](const std::string& json) { return json.empty() ? "{}" : json; };
    file.write(str("{\n\"train\": ", section(job_.info.train_config),
                   ",\n\"diffusion\": ", section(job_.info.diffusion_config),
                   ",\n\"network\": ", section(job_.info.model_config), "\n}\n"));
    file.commit();
  }

  // What no setting says: for the report.
  void write_facts() const {
    const std::time_t now = std::time(nullptr);
    char started[40] = "";
    std::strftime(started, sizeof started, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
    const nlohmann::ordered_json facts = {{"ebb", version},
                                          {"started", started},
                                          {"device", context_.device->description()},
                                          {"dtype", str(options_.dtype)},
                                          {"parameters", nn::count_elements(state_.weights)},
                                          {"data", job_.data}};
    io::write_whole_file((std::filesystem::path(c_.out) / "run.json").string(),
                         facts.dump(2) + '\n', "run");
  }

  NamedTensors inputs_of(const StepInputs& in) {
    NamedTensors all = step_inputs(in, options_);
    for (auto& [name, t] : next_()) {
      const Source* s = plan_.graph().find_source(name);
      if (s && s->kind == Source::Kind::input) all[name] = t;
    }
    for (const auto& [name, v] :
         {std::pair{"seed", static_cast<int64_t>(uint64_t{c_.seed})}, {"step", state_.step}})
      if (plan_.graph().find_source(name)) all[name] = scalar_tensor(v);
    return all;
  }

  // One optimiser step.
  void step() {
    const auto start = Clock::now();
    StepInputs in{.step = state_.step,
                  .lr = rate_at(rate_schedule(c_), state_.step),
                  .ema_decay = ema_decay_at(ema_schedule(c_), state_.step, c_.batch),
                  .micro_batches = c_.accumulation};
    now_ = {.step = state_.step + 1, .lr = in.lr};
    for (; in.micro_batch < in.micro_batches; ++in.micro_batch) {
      const NamedTensors inputs = inputs_of(in);
      const NamedTensors out = plan_.run(inputs);
      now_.loss += number(out, "loss") / static_cast<double>(in.micro_batches);
      now_.grad_norm = number(out, "grad_norm");
      if (number(out, "finite") != 1) not_finite(out, inputs);
    }
    ++state_.step;
    loss_.add(now_.loss);
    const double seconds = seconds_since(start);
    speed_.add(seconds);
    now_.images_per_second = static_cast<double>(c_.batch) / seconds;
    now_.seconds = metrics_->seconds_before() + seconds_since(start_);
    metrics_->add(now_);
  }

  [[noreturn]] void not_finite(const NamedTensors& out, const NamedTensors& inputs) {
    diverged_ = true;
    const std::string found = first_not_finite(plan_, inputs);
    // Nothing was changed by this step: the state is the one before it.
    // The older checkpoints stay: what led here may have spoilt the newest weights already.
    fetch_state(plan_, state_);
    const std::string before = first_not_finite(state_);
    if (state_.step != saved_ && state_.step > 0 && before.empty()) write(0);
    metrics_->flush();
    fail("train: loss and gradients must be finite (step ", now_.step, ": loss ",
         shown(number(out, "loss")), ", gradient norm ", shown(number(out, "grad_norm")),
         ")  first: ", found.empty() ? "unknown" : found, what_is_left(before));
  }

  // `spoilt`: what the state before a step that diverged has in it.
  std::string what_is_left(const std::string& spoilt) const {
    if (state_.step == 0) return "";
    const std::string state =
        spoilt.empty() ? str("the state before it is saved: ", model_file(c_.out, state_.step))
                       : str("the state before it is not saved (", spoilt, ")");
    return str("  ", state,
               "; --resume alone comes to this step again: give a lower --lr as well, ",
               "or move the newest checkpoints away");
  }

  // None: the run goes on.
  std::optional<TrainResult::Stop> reason_to_end(int signal) const {
    using Stop = TrainResult::Stop;
    if (c_.steps > 0 && state_.step >= c_.steps) return Stop::steps;  // done, signal or not
    if (signal != 0) return Stop::signal;
    if (c_.minutes > 0 && seconds_since(start_) >= c_.minutes * 60) return Stop::minutes;
    if (job_.hooks.stop && job_.hooks.stop()) return Stop::hook;
    return {};
  }

  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  // A run that was killed behind a checkpoint may lack the picture of its step.
  void make_missing_sample() {
    const bool wanted = due(c_.sample_every) || (c_.sample_every > 0 && state_.step == c_.steps);
    if (c_.resume && wanted && job_.hooks.sample &&
        !std::filesystem::exists(sample_file(c_.out, state_.step)))
      job_.hooks.sample(state_);
  }

  void between_steps(bool last) {
    const bool first = state_.step == first_ + 1;
    if (job_.validation && (last || first || due(job_.validation->every))) validate();
    if (last || first || (due(c_.log_every) && seconds_since(said_) >= between_lines)) {
      said_ = Clock::now();
      metrics_->flush();
      say(progress_line(progress()));
      validation_ = {};
    }
    const bool sample = job_.hooks.sample && c_.sample_every > 0 && (last || due(c_.sample_every));
    if (last || due(c_.checkpoint_every)) {
      metrics_->flush();  // a run that goes on from the checkpoint has the lines before it
      save(c_.keep);
      if (job_.hooks.evaluate) job_.hooks.evaluate(state_, *metrics_);
      metrics_->flush();
    } else if (sample) {
      fetch_state(plan_, state_);
    }
    if (sample) job_.hooks.sample(state_);
  }

  // Made behind the first step, which it does not delay; training has its memory by then.
  void validate() {
    if (!validator_) try {
        validator_ = std::make_unique<Validator>(*job_.validation, c_, options_, context_, plan_);
      } catch (const Error& e) {
        say(str("validation: none, ", e.what()));
        job_.validation.reset();
        return;
      }
    validation_ = {.loss = validator_->loss(), .step = state_.step};
    const NamedNumber numbers[] = {{"validation/loss", validation_.loss}};
    metrics_->add(state_.step, numbers);
  }

  Progress progress() const {
    const double seconds = speed_.value();
    Progress p{
        .now = now_, .smoothed_loss = loss_.value(), .validation = validation_, .steps = c_.steps};
    p.now.images_per_second = seconds > 0 ? static_cast<double>(c_.batch) / seconds : 0;
    if (c_.steps > 0) p.seconds_left = static_cast<double>(c_.steps - state_.step) * seconds;
    if (c_.minutes > 0) {
      const double left = std::max(0.0, c_.minutes * 60 - seconds_since(start_));
      p.seconds_left = c_.steps > 0 ? std::min(p.seconds_left, left) : left;
    }
    p.plan_bytes = plan_.arena_bytes() + plan_.source_bytes();
    return p;
  }

  void save(int64_t keep) {
    fetch_state(plan_, state_);
    if (const std::string spoilt = first_not_finite(state_); !spoilt.empty()) {
      diverged_ = true;
      fail("train: weights must be finite (step ", state_.step, ": ", spoilt,
           ")  this step is not saved; a lower --lr may help  ", c_.out);
    }
    write(keep);
  }

  // The state as it was fetched.
  void write(int64_t keep) {
    const std::string path = save_checkpoint(c_.out, state_, job_.info, keep);
    saved_ = state_.step;
    say("saved " + path);
  }

  TrainJob job_;
  TrainConfig& c_;
  Context context_;
  StepOptions options_;
  Plan plan_;
  TrainState state_;
  RunLock lock_;
  std::unique_ptr<MetricsLog> metrics_;
  NextBatch next_;
  std::unique_ptr<Validator> validator_;
  Progress::Measured validation_;  // since the last progress line
  StepMetrics now_;
  Smoothed loss_{0.99}, speed_{0.9};  // speed: seconds a step
  Clock::time_point start_ = Clock::now(), said_ = start_;
  int64_t first_ = 0, saved_ = -1;      // steps: where this process began; of the last checkpoint
  bool diverged_ = false;               // the same again, if resumed without a change
  std::optional<StopSignals> signals_;  // from where there is something to save
};

}  // namespace

TrainResult train(TrainJob job, const Context& context) {
  check(job.config);
  check_run_folder(job.config.out, job.config.resume, job.config.overwrite);
  // Compiling and measuring kernels may take long and cannot be polled.
  std::optional<EndOnSignal> preparing(
      std::in_place, "train: interrupted before the first step; nothing was written");
  Run run(std::move(job), context);
  preparing.reset();
  return run.run();
}

std::function<NextBatch(int64_t)> dataset_batches(const Dataset& data, const TrainConfig& c) {
  LoaderOptions options{.batch = c.batch / c.accumulation,
                        .seed = c.seed,
                        .flip = c.flip,
                        .augment = {.p = c.augment},
                        .threads = c.threads};
  return [&data, options](int64_t first) -> NextBatch {
    const auto loader = std::make_shared<BatchLoader>(data, options, first);
    return [loader]() -> NamedTensors {
      Batch b = loader->next();
      NamedTensors out{
          {"images", b.images}, {std::string(nn::class_id), b.labels}, {"image", b.index}};
      if (b.augment.defined()) out[std::string(nn::augment_labels)] = b.augment;
      return out;
    };
  };
}

}  // namespace ebb::train
