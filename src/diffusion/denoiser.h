// Denoiser: D(x, sigma) of a network at one batch size, with conditions and classifier-free
// guidance, as a compiled graph that also holds a sampler's vectors: a linear combination of them,
// and of new noise, is evaluated where the network reads it, and results are stored where D is
// computed. An evaluation is one run of one plan. Guidance rules that are not linear, and samplers
// with an error estimate, copy what they need to the host.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "diffusion/guidance/guide.h"
#include "diffusion/precond.h"
#include "diffusion/solver/latents.h"
#include "nn/network.h"
#include "passes/contractions/circular_padding.h"
#include "passes/schedule/hoist.h"
#include "runtime/plan.h"

namespace ebb {

using State = std::vector<double>;  // images [N,H,W,C], row-major

// Known regions of the images of a batch, which evaluations restore (diffusion/start/inpaint.h).
struct KnownImages {
  State mask;   // 1: generated, 0: known; between them a mixture
  State data;   // the known images
  State noise;  // standard normal, of the known input: alpha data + sigma noise; empty: 0
  Space space = Space::ve;
};

struct DenoiserOptions {
  int64_t batch = 1;
  Shape image;  // {H,W,C}
  // The conditions that it is given, of known sizes; others of the network are null.
  std::vector<nn::Condition> conditions = {};
  // The predictions of an evaluation: of the condition first, of the negative one second, then
  // others. A branch that is there several times has the parts of a prompt (Denoiser::weigh).
  std::vector<Branch> branches = {Branch::cond};
  CircularAxes tiling = {};  // of the network's convolutions (circular_padding.h)
  bool together = true;      // branches are one batch; else one after the other, in less memory
  DType dtype = DType::f32;  // of matmuls and convolutions in the network
  int64_t vectors = 3;       // live at the same time: SampleCounts::vectors
  bool draws = false;        // noise is drawn in the plan, see draw_by()
  bool restores_input = false, restores_output = false;  // known regions, see restore()
  // The input's known part has no noise, see Inpaint::clean_input.
  bool clean_input = false;
  // c_noise is rounded to a timestep of every so many (Discretisation::c_noise_of); 0: it is not.
  int64_t timesteps_apart = 0;
  std::shared_ptr<WeightStore> weights = nullptr;  // of the network; null: each is bound
  bool operator==(const DenoiserOptions&) const = default;
  bool guided() const { return branches.size() > 1; }
};
// Of guidance with one condition.
inline const std::vector<Branch> both_branches = {Branch::cond, Branch::uncond};

class Denoiser : public Latents {
 public:
  // Throws Error if the network's output does not fit. Weights are bound afterwards.
  Denoiser(const DiffusionConfig& config, const nn::Network& network,
           const DenoiserOptions& options, const Context& context);

  void bind(std::string_view name, const Tensor& tensor);
  // The value of a condition, [N,...], for the first of DenoiserOptions::branches, and those for
  // the others: the null value if none are given, or `value` where guidance does not concern the
  // condition (Condition::guided). Without a call all are null. The same values again cost
  // nothing, also in another run. Throws Error.
  void condition(std::string_view name, const Tensor& value,
                 const std::vector<Tensor>& others = {});
  // D of the condition becomes D_uncond + sum_k w_k (D_k - D_uncond) over the predictions whose
  // branch is `cond`, a weight each (prompts joined by AND). Without a call the weights are 1.
  void weigh(std::vector<double> weights);
  // D = D_neg + scale (D_cond - D_neg) (Ho and Salimans 2022, arXiv:2207.12598). A scale other than
  // 1 needs DenoiserOptions::guided(). Throws Error.
  void guidance(double scale);
  // Guidance rules that combine the branches' predictions; they replace guidance(). Linear ones are
  // part of the plan, others run on the host. Throws Error for rules that may need branches that
  // are not there, and for those that guide unless DenoiserOptions::guided().
  void guide(const std::vector<RuleCall>& rules, GuidanceCall call);
  // Known regions are restored in every evaluation, in the plan: in the network's input, in the
  // predictions, or both, as DenoiserOptions say. Rules that run on the host see what is restored
  // already. Throws Error for other sizes.
  void restore(const KnownImages& known);
  // The source of noise(). Without a call it throws Error.
  void noise_from(NoiseFill fill);
  // In the plan instead: the values of keyed_noise(), up to rounding. Needs DenoiserOptions::draws.
  void draw_by(uint64_t seed, std::vector<int64_t> images);

  Latent put(std::span<const double> values);  // throws Error for a wrong number of values
  Denoised denoise(Latent& x, double sigma, bool with_uncond) override;
  Latent noise(const NoiseDraw& draw, double clip) override;
  State values(const Latent& x) override;  // throws Error if they are not finite
  double distance(const Latent& a, const Latent& b, const Latent& before, Tolerance t) override;

  State operator()(const State& x, double sigma);
  bool restores() const { return options_.restores_input || options_.restores_output; }
  int64_t evaluations() const { return evaluations_; }  // calls until now

  const Precond& precond() const { return precond_; }
  const DenoiserOptions& options() const { return options_; }
  const Plan& plan() const { return plan_; }  // of an evaluation
  // What an evaluation needs, and what is computed once for all of them; null: nothing is.
  PlanNeeds needs() const { return plan_.needs(); }
  std::optional<PlanNeeds> hoisted_needs() const {
    return hoisted_ ? std::optional(hoisted_->needs()) : std::nullopt;
  }
  // Plan::refresh() of all: before needs() where weights may have changed.
  void refresh();
  // Lets go of the memory of plans and weights until the next run.
  void release();
  // What is computed once lets go of its memory when it was.
  void leave_hoisted(bool leaves) { hoisted_leaves_ = leaves; }
  // Plan::missing_bytes() and check_memory() of all that runs take: also of what is computed once
  // for all evaluations.
  int64_t missing_bytes() const { return plan_.missing_bytes() + hoisted_bytes(); }
  void check_memory() const {
    plan_.check_memory(hoisted_leaves_ ? 0 : hoisted_bytes());
    if (hoisted_leaves_ && hoisted_) hoisted_->check_memory();
  }
  // Plan::watch() of the evaluations' runs.
  void watch(std::function<void(double)> watch) { plan_.watch(std::move(watch)); }

 private:
  Denoiser(const DiffusionConfig& config, const DenoiserOptions& options, const Context& context,
           const HoistedGraph& graphs);
  void keep(std::string_view input, const Tensor& value);
  std::vector<double> row_weights(const Factors& factors) const;
  int64_t hoisted_bytes() const { return hoisted_ ? hoisted_->missing_bytes() : 0; }

  struct Slots;
  struct Slot;
  // Noise that the next run draws.
  struct Draw {
    size_t slot = 0;
    int64_t index = 0;
  };
  Latent take_slot();
  static size_t slot_of(const StoredLatent& vector);
  static size_t slot_of(const Latent& stored) { return slot_of(*stored.alone()); }
  void store(size_t slot, std::span<const double> values);
  void draw_now();  // pending noise
  // Writes the inputs of the next run: x = linear combination of vectors, the level, the weights of
  // predictions. Roles are 0.
  void write_inputs(const Latent& x, double sigma, const Factors& weights);
  void set(std::string_view input, double value);
  // `others`: the predictions of the kinds of branches but cond.
  void apply_rules(const Latent& guided, const std::vector<Latent>& others, const Latent& x,
                   const StepContext& context);

  Precond precond_;
  DenoiserOptions options_;
  Context context_;
  Plan plan_;
  // What depends on conditions that are sequences or images, and not on the state: the keys and
  // values of cross-attention. Null where nothing does.
  std::unique_ptr<Plan> hoisted_;
  NamedTensors hoisted_of_;       // its inputs, as they are given last
  bool stale_ = false;            // they have changed, or what is bound
  uint64_t hoisted_version_ = 0;  // of the weights that it ran with
  bool hoisted_leaves_ = false;
  std::shared_ptr<Slots> slots_;  // which vectors are free
  NoiseFill fill_;
  NamedTensors inputs_;  // of the next run
  Space known_space_ = Space::ve;
  ImageKeys keys_;             // of draws in the plan; `elements` is 0 if noise is drawn outside
  std::optional<Draw> waits_;  // at most one
  std::vector<double> parts_;  // weigh()
  std::unique_ptr<Guide> guide_;
  GuidanceCall call_;
  int64_t evaluations_ = 0;
};

// States latent.<k> f32[N,H,W,C], `vectors` of them, and inputs by name, all f32[] but for these:
//   <condition>     the values of all B branches, [B N,...]
//   seed, images, draw   i64[], i64[N], i64[]; with `draws`: the keys of new noise z
//   c_skip, c_out, c_in, c_noise   see Precond
//   weight.<b>      of the branches' predictions, if there are several
//   known.mask, known.data, known.noise   f32[N,H,W,C], where known regions are restored
//   known.scale, known.level   the known input is scale data + level noise
//   fresh, mix.<k>  x = fresh z + sum_k mix.<k> latent.<k>; fresh only with `draws`
//   role.<k>        what latent.<k> becomes: 0 itself, 1 x, 2 D, 3 and on: D of the kinds of
//                   branches other than cond, in their order; then z
Graph denoiser_graph(const DiffusionConfig& config, const nn::Network& network,
                     const DenoiserOptions& options);

}  // namespace ebb
