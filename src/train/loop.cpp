#include "train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "core/out_of_memory.h"
#include "nn/network.h"
#include "train/batches_ahead.h"
#include "train/diagnose.h"
#include "train/job_facts.h"
#include "train/pace.h"
#include "train/run_files.h"
#include "train/run_folder.h"
#include "train/step_plans.h"
#include "train/stop.h"
#include "train/stop_code.h"
#include "train/team.h"

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
  o.rates = job.rates;
  o.split = split_of(job.config, job.ranks);
  return o;
}

// With the same kernels on all ranks.
StepPlans plans_of(const TrainJob& job, const Team& team, const StepOptions& options,
                   const BatchesAhead& ahead, const Context& context) {
  CompileOptions how{.recompute = parse_recompute(job.config.recompute),
                     .gather_again = options.split.shard == Shard::weights};
  how.recompute.beside = ahead.device_bytes();
  const auto compile = [&] {
    return StepPlans({job.loss, job.other_losses}, options, context, how);
  };
  std::optional<StepPlans> plans = compile();
  if (!team.share_choices(context)) return std::move(*plans);
  plans.reset();
  return compile();
}

class Run {
  using Stop = TrainResult::Stop;

 public:
  Run(TrainJob job, const Context& context)
      : job_(std::move(job)),
        c_(job_.config),
        team_(job_.ranks),
        context_(context),
        options_(options_of(job_, context)),
        ahead_(batches_ahead_of(job_, *context.device)),
        plans_(plans_of(job_, team_, options_, ahead_, context)) {
    TrainConfig recorded = c_;
    recorded.resume = recorded.overwrite = false;  // of this start, not of the run
    recorded.gpus.clear();
    job_.info.train_config = to_json(recorded);
    plan().check_memory(ahead_.device_bytes());
    const Optimizer& optimizer = find_optimizer(c_.optimizer);
    team_.check_host_memory(training_bytes(job_.weights, optimizer) +
                            (context.device->on_host() ? plans_.arena_bytes() : 0));
    state_ = c_.resume ? load_state(c_.out, job_.weights, job_.given, optimizer)
                       : initial_state(job_.weights, c_.seed, job_.given, optimizer);
    job_.given.clear();
    bind_state(plan(), state_, options_.split);
    plans_.connect();
    plans_.check_memory(ahead_.device_bytes());
    team_.check_collectives(plans_.all());
    if (!leads() && !context_.device->on_host()) drop_tensors(state_);
    first_ = state_.step;
    saved_ = c_.resume ? state_.step : -1;
    next_ = batches_ahead(job_.batches(state_.step * c_.accumulation), context_, ahead_);
  }

  TrainResult run() {
    signals_.emplace(
        leads() ? "stopping after this step, with a checkpoint; again, after a second, to end now"
                : "");
    if (leads()) begin_folder();
    announce();
    make_missing_sample();
    if (is_done())
      say(str("nothing to do: the run has ", state_.step, " steps (--steps ", c_.steps,
              "); a larger --steps goes on",
              c_.minutes > 0 ? ", or --steps 0 until --minutes are over" : ""));
    TrainResult result;
    try {
      for (bool go = !is_done(); go;) {
        step();
        const auto why = reason_to_end();
        result.why = why.value_or(result.why);
        go = !why;
        between_steps(why);
      }
    } catch (const Error& e) {
      if (saved_ > 0 && !diverged_)
        say(str("saved up to step ", saved_, "; go on with --resume --out ", c_.out));
      // Before memory goes that a collective may still use, which waits for the other ranks.
      team_.fail(e);
      throw;
    }
    result.step = state_.step;
    if (metrics_) result.loss = metrics_->recent_loss().mean();
    result.checkpoint = model_file(c_.out, state_.step);
    end_of_signal(result);
    return result;
  }

 private:
  Plan& plan() { return plans_.first(); }
  const Plan& plan() const { return plans_.first(); }
  int64_t plan_bytes() const {
    return plans_.arena_bytes() + plan().source_bytes() + ahead_.device_bytes();
  }
  int64_t driver_bytes() const { return context_.device->driver_memory().now; }
  bool leads() const { return team_.leads(); }
  bool alone() const { return team_.alone(); }
  void report(ranks::Phase phase) const { team_.report(state_.step, phase); }
  void say(std::string_view text) const {
    if (job_.hooks.log && leads()) job_.hooks.log(text);
  }

  void begin_folder() {
    lock_ = begin_run_folder(c_.out, c_.overwrite, job_.hooks.log);
    if (is_done()) return;  // the folder stays as it is
    if (const auto gap = missing_room(c_.out, state_.weights, *state_.optimizer); !gap.empty())
      say("warning: " + gap);
    metrics_ = std::make_unique<MetricsLog>(c_.out, state_.step, c_.tensorboard);
    if (!metrics_->warning().empty()) say(metrics_->warning());
    write_run_files(c_.out, job_.info,
                    {.device = devices(),
                     .dtype = options_.dtype,
                     .parameters = nn::count_elements(state_.weights),
                     .trained = trained_elements(state_.weights),
                     .data = job_.data,
                     .images = job_.images});
  }

  bool is_done() const { return c_.steps > 0 && state_.step >= c_.steps; }

  void end_of_signal(TrainResult& result) const {
    const int signal = alone() ? signals_->requested() : signal_of(wish_);
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
    say(str("trains ", trained_text(state_.weights), " weights with ", options_.dtype,
            " matrix work on ", devices(), kept_in_parts(), "; a step needs ",
            (plan_bytes() + driver_bytes()) / 1000000, " MB",
            driver_bytes() > 0 ? str(" (driver ", driver_bytes() / 1000000, " MB)") : "",
            c_.recompute == "off"
                ? std::string()
                : str(" with ", plan().recomputed().pointwise, " pointwise nodes and ",
                      plan().recomputed().blocks, " blocks computed twice")));
  }

  std::string devices() const {
    std::string one = context_.device->description();
    if (alone()) return one;
    return str(options_.split.ranks, " ranks, each with ", one, ", by ",
               context_.device->communicator()->description());
  }

  std::string kept_in_parts() const {
    if (options_.split.shard == Shard::none) return "";
    int64_t parts = 0;
    for (const nn::Weight& w : state_.weights)
      if (w.trained && is_split({DType::f32, w.shape}, options_.split)) parts += w.shape.numel();
    return str(", ", parts, " of the weights in parts");
  }

  NamedTensors inputs_of(const Plan& of, const StepInputs& in) {
    NamedTensors all = step_inputs(in, options_);
    for (auto& [name, t] : batch_) all[name] = t;
    for (const auto& [name, v] :
         {std::pair{"seed", static_cast<int64_t>(uint64_t{c_.seed})}, {"step", state_.step}})
      all[name] = scalar_tensor(v);
    std::erase_if(all, [&](const auto& one) {
      const Source* s = of.graph().find_source(one.first);
      return !s || s->kind != Source::Kind::input;
    });
    return all;
  }

  StepInputs first_micro_batch() const {
    return {.step = state_.step,
            .lr = rate_at(rate_schedule(c_), state_.step),
            .ema_decay = ema_decay_at(ema_schedule(c_), state_.step, c_.batch),
            .micro_batches = c_.accumulation};
  }

  // One optimiser step.
  void step() {
    const auto start = Clock::now();
    StepInputs in = first_micro_batch();
    now_ = {.step = state_.step + 1, .lr = in.lr};
    suspect_.reset();
    for (; in.micro_batch < in.micro_batches; ++in.micro_batch) micro_batch(in);
    ++state_.step;
    const double seconds = seconds_since(start);
    pace_.step(seconds);
    if (!metrics_) return;
    now_.images_per_second = static_cast<double>(c_.batch) / seconds;
    now_.seconds = metrics_->seconds_before() + seconds_since(start_);
    metrics_->add(now_);
  }

  void micro_batch(StepInputs& in) {
    const bool last = in.micro_batch + 1 == in.micro_batches;
    const auto start = Clock::now();
    report(ranks::Phase::batch);
    batch_.clear();  // the batch behind the next is copied into its memory
    batch_ = next_();
    in.report.preparing += seconds_since(start);
    if (last && !alone()) {
      const int signal = signals_->requested();
      in.report.wish = code_of(wish_to_end(signal), signal);
    }
    Plan& used = plans_.of(batch_, last);
    const NamedTensors inputs = inputs_of(used, in);
    report(ranks::Phase::step);
    const NamedTensors out = used.run(inputs);
    const bool finite = number(out, "finite") == 1;
    if (!last) {
      in.earlier += double{number(out, "loss")};
      if (!finite && !suspect_) suspect_ = in.micro_batch;  // the step's last shows it to all
      return;
    }
    late_ = read_reports(out);
    wish_ = late_.wish;
    now_.loss = late_.loss;
    now_.grad_norm = number(out, "grad_norm");
    now_.told = told_numbers(out, job_.loss, options_);
    if (!finite) not_finite(out, {&used, inputs});
  }

  // A plan, and what it was given.
  struct Ran {
    Plan* plan = nullptr;
    NamedTensors inputs;
  };

  [[noreturn]] void not_finite(const NamedTensors& out, const Ran& last) {
    diverged_ = true;
    report(ranks::Phase::step);
    const std::string found = place_of_fault(last);
    // Nothing was changed by this step: the state is the one before it.
    // The older checkpoints stay: what led here may have spoilt the newest weights already.
    fetch_state(plan(), state_, context_);
    const std::string before = team_.of_rank_0(leads() ? save_before() : "");
    fail("train: loss and gradients must be finite (step ", now_.step, ": loss ",
         shown(static_cast<float>(read_reports(out).loss)), ", gradient norm ",
         shown(number(out, "grad_norm")), ")  first: ", found.empty() ? "unknown" : found,
         what_is_left(before));
  }

  // Saves the state before a step that diverged, unless it is spoilt: then what in it is.
  std::string save_before() {
    report(ranks::Phase::alone);
    std::string spoilt = first_not_finite(state_);
    if (state_.step != saved_ && state_.step > 0 && spoilt.empty()) write(0);
    metrics_->flush();
    return spoilt;
  }

  // The first tensor that is not finite, in the first micro-batch that has one; of several ranks
  // the first rank's. All run the same ones: plans exchange tensors.
  std::string place_of_fault(const Ran& last) {
    const auto source = [](const Ran& r) { return first_source_not_finite(*r.plan, r.inputs); };
    const auto result = [](const Ran& r) { return first_result_not_finite(*r.plan, r.inputs); };
    const std::string suspect = team_.of_first(suspect_ ? str(*suspect_) : "");
    const Ran first = suspect.empty() ? last : made_again(std::stoll(suspect));
    std::string found = team_.of_all(source(first));
    if (found.empty() && !suspect.empty()) found = team_.of_all(result(first));
    return found.empty() ? team_.of_all(result(last)) : found;
  }

  // A micro-batch of this step but the last.
  Ran made_again(int64_t micro_batch) {
    StepInputs in = first_micro_batch();
    in.micro_batch = micro_batch;
    batch_ = job_.batches(state_.step * c_.accumulation + micro_batch)();
    Plan& used = plans_.of(batch_, false);
    return {&used, inputs_of(used, in)};
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

  // None: the run goes on. Of several ranks, all say the same.
  std::optional<Stop> reason_to_end() const {
    if (is_done()) return Stop::steps;  // done, signal or not
    return alone() ? wish_to_end(signals_->requested()) : stop_of(wish_);
  }

  // What this process wants.
  std::optional<Stop> wish_to_end(int signal) const {
    if (signal != 0) return Stop::signal;
    if (c_.minutes > 0 && seconds_since(start_) >= c_.minutes * 60) return Stop::minutes;
    if (job_.hooks.stop && job_.hooks.stop()) return Stop::hook;
    return {};
  }

  bool due(int64_t every) const { return every > 0 && state_.step % every == 0; }

  // A run that was killed behind a checkpoint may lack the picture of its step.
  void make_missing_sample() {
    const bool wanted = due(c_.sample_every) || (c_.sample_every > 0 && state_.step == c_.steps);
    if (!c_.resume || !wanted || !job_.hooks.sample || !leads() ||
        std::filesystem::exists(sample_file(c_.out, state_.step)))
      return;
    report(ranks::Phase::alone);
    job_.hooks.sample(state_, *signals_);
  }

  // Who stops a run wants the end soon: it has its checkpoint, but no picture that is not due.
  void between_steps(const std::optional<Stop>& why) {
    const bool last = why.has_value(), finished = last && *why != Stop::signal;
    const bool first = state_.step == first_ + 1;
    report(ranks::Phase::step);
    if (job_.validation && (last || first || due(job_.validation->every)))
      pace_.timed("validation", job_.validation->every, [&] { validate(); });
    if (last || first || (due(c_.log_every) && seconds_since(said_) >= between_lines)) {
      said_ = Clock::now();
      if (metrics_) metrics_->flush();
      say(progress_line(progress()) + late_text());
      validation_ = {};
    }
    const bool sample =
        job_.hooks.sample && c_.sample_every > 0 && (finished || due(c_.sample_every));
    const bool saves = last || due(c_.checkpoint_every);
    if (saves || sample) fetch_state(plan(), state_, context_);  // with all ranks
    if (!leads()) return;
    if (saves || sample) report(ranks::Phase::alone);
    if (saves)
      pace_.timed("checkpoint", c_.checkpoint_every, [&] {
        metrics_->flush();  // a run that goes on from the checkpoint has the lines before it
        save(c_.keep);
        if (job_.hooks.evaluate) job_.hooks.evaluate(state_, *metrics_);
        metrics_->flush();
      });
    if (sample)
      pace_.timed("sample", c_.sample_every, [&] { job_.hooks.sample(state_, *signals_); });
  }

  // Which rank the others wait for, where that takes more than a tenth of the time.
  std::string late_text() const {
    const double share = late_.waiting / std::max(pace_.seconds_a_step(), 1e-9);
    if (alone() || share < 0.1) return "";
    return str("  waits for rank ", late_.slowest, "'s images, ",
               static_cast<int>(std::min(share, 1.0) * 100), " % of the time");
  }

  // Made behind the first step, which it does not delay; training has its memory by then.
  void validate() {
    if (!validator_ && !begin_validation()) return;
    const double loss = validator_->loss([this] { report(ranks::Phase::step); });
    validation_ = {.loss = loss, .step = state_.step};
    if (!metrics_) return;
    const NamedNumber numbers[] = {{"validation/loss", validation_.loss}};
    metrics_->add(state_.step, numbers);
  }

  // False, with a word on why: no rank validates.
  bool begin_validation() {
    std::string wrong;
    try {
      validator_ = std::make_unique<Validator>(*job_.validation, c_, options_, context_, plan());
    } catch (const OutOfMemory& e) {
      wrong = e.what();
    }
    const std::string why = team_.of_all(wrong);
    if (why.empty()) return true;
    say(str("validation: none, ", why));
    validator_.reset();
    job_.validation.reset();
    return false;
  }

  Progress progress() const {
    const double seconds = pace_.seconds_a_step();
    Progress p{.now = now_, .validation = validation_, .steps = c_.steps};
    if (metrics_) p.loss = metrics_->recent_loss();
    p.now.images_per_second = seconds > 0 ? static_cast<double>(c_.batch) / seconds : 0;
    if (c_.steps > 0) p.seconds_left = pace_.left(state_.step, c_.steps);
    if (c_.minutes > 0) {
      const double left = std::max(0.0, c_.minutes * 60 - seconds_since(start_));
      p.seconds_left = c_.steps > 0 ? std::min(p.seconds_left, left) : left;
    }
    p.plan_bytes = plan_bytes();
    p.driver_bytes = driver_bytes();
    if (!context_.device->on_host()) p.device_bytes = context_.memory->peak() + p.driver_bytes;
    return p;
  }

  void save(int64_t keep) {
    if (const std::string spoilt = first_not_finite(state_); !spoilt.empty()) {
      diverged_ = true;
      fail("train: weights must be finite (step ", state_.step, ": ", spoilt,
           ")  this step is not saved; a lower --lr may help  ", c_.out);
    }
    write(keep);
  }

  // The state as it was fetched.
  void write(int64_t keep) {
    const std::string path = save_checkpoint(
        c_.out, state_, {.info = job_.info, .keep = keep, .write_model = job_.write_model});
    saved_ = state_.step;
    say("saved " + path);
  }

  TrainJob job_;
  TrainConfig& c_;
  Team team_;
  Context context_;
  StepOptions options_;
  BatchesAhead ahead_;
  StepPlans plans_;
  TrainState state_;
  RunLock lock_;
  std::unique_ptr<MetricsLog> metrics_;
  NextBatch next_;
  NamedTensors batch_;
  std::optional<int64_t> suspect_;  // the step's first micro-batch that was not finite here
  double wish_ = 0;                 // why the ranks end, see code_of()
  Reports late_;                    // of the last step
  std::unique_ptr<Validator> validator_;
  Progress::Measured validation_;  // since the last progress line
  StepMetrics now_;
  Pace pace_;
  Clock::time_point start_ = Clock::now(), said_ = start_;
  int64_t first_ = 0, saved_ = -1;      // steps: where this process began; of the last checkpoint
  bool diverged_ = false;               // the same again, if resumed without a change
  std::optional<StopSignals> signals_;  // from where there is something to save
};

}  // namespace

TrainResult train(TrainJob job, const Context& context) {
  const Team team(job.ranks);
  check(job.config, split_of(job.config, job.ranks).ranks);
  // The other ranks' folder is rank 0's, which may have begun.
  if (team.leads()) check_run_folder(job.config.out, job.config.resume, job.config.overwrite);
  team.check_equal(facts_of(job, context));
  if (team.alone() && job.hooks.log) {
    if (job.config.shard != "auto" && job.config.shard != "none")
      job.hooks.log("shard: there is one device, which keeps all");
    if (job.config.reduce_dtype != "f32")
      job.hooks.log("reduce_dtype: there is one device, which sends no gradients");
  }
  // Compiling and measuring kernels may take long and cannot be polled.
  std::optional<EndOnSignal> preparing(
      std::in_place,
      team.leads() ? "train: interrupted before the first step; nothing was written" : "",
      job.hooks.json && team.leads());
  Run run(std::move(job), context);
  preparing.reset();
  return run.run();
}

}  // namespace ebb::train
