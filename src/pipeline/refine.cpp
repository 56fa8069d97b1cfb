#include "pipeline/refine.h"

#include "base/error.h"
#include "base/file_and_numbers.h"
#include "diffusion/precond.h"
#include "diffusion/start/refiner.h"
#include "pipeline/picture_dialect.h"

namespace ebb {
namespace {

class RefineMode : public RunMode {
 public:
  RefineMode(int64_t steps, const SampleCounts& before) : steps_(steps), before_(before) {}
  void begin(const RunTools&, const Tensor& before, RunInputs& inputs) const override {
    inputs.data = before;
    inputs.noised = false;
    inputs.first_step = steps_;
    inputs.first_evaluation = before_.evaluations, inputs.first_draw = before_.draws;
  }

 private:
  int64_t steps_;
  SampleCounts before_;
};

int64_t first_step(const ResolvedRequest& run, const Discretisation& levels, double share) {
  const std::vector<double>& sigmas = run.call.sigmas;
  const RefinerStart start = picture_dialect(run.options.dialect).refiner;
  const auto steps = static_cast<int64_t>(sigmas.size()) - 1;
  if (levels.c_noise != CNoise::table || start == RefinerStart::by_steps)
    return switch_by_steps(steps, share);
  if (start == RefinerStart::by_level) return switch_by_level(sigmas, levels.sigmas, share);
  std::vector<double> timesteps;
  for (int64_t i = 0; i < steps; ++i)
    timesteps.push_back(levels.c_noise_of(sigmas[static_cast<size_t>(i)]));
  return switch_below(timesteps,
                      timestep_cutoff(share, static_cast<int64_t>(levels.sigmas.size())));
}

}  // namespace

Refine parse_refiner(std::string& file) {
  Refine out;
  const FileAndNumbers said = file_and_numbers(file, 1, "generate: --refiner", "share");
  out.share = said.number(0, out.share);
  require(out.share >= 0 && out.share <= 1,
          "generate: --refiner must be FILE or FILE:share, with a share from 0 to 1 (got '", file,
          "')");
  file = said.file;
  return out;
}

int64_t refiner_step(const ResolvedRequest& run, const LoadedModel& model, const Refine& refine) {
  const auto steps = static_cast<int64_t>(run.call.sigmas.size()) - 1;
  const int64_t step = first_step(run, Precond(model.diffusion).levels(), refine.share);
  require(step > 0 && step<steps, "generate: --refiner: at a share of ", refine.share,
                           " it takes over at step ", step + 1, " of ", steps, step> 0
              ? ": it has nothing to do"
              : ": nothing is left to the first network");
  return step;
}

std::optional<RunPass::Handover> handover(const ResolvedRequest& whole, const LoadedModel& model,
                                          const Refine& refine) {
  const Precond precond(model.diffusion);
  const Discretisation& levels = precond.levels();
  if (!picture_dialect(whole.options.dialect).hands_over || levels.c_noise != CNoise::table ||
      !whole.rules.empty())
    return {};
  return RunPass::Handover{.sigmas = whole.call.sigmas,
                           .counts = whole.counts,
                           .result_scale = whole.result_scale,
                           .at = [table = levels.sigmas, share = refine.share](double sigma) {
                             return share_removed(sigma, table) >= share;
                           }};
}

ResolvedRequest RunPass::run() const {
  ResolvedRequest out = request;
  if (!handover) return out;
  out.call.sigmas = handover->sigmas;
  out.counts = handover->counts;
  out.result_scale = handover->result_scale;
  return out;
}

std::shared_ptr<const RunMode> refine_mode(int64_t steps, const SampleCounts& before) {
  return std::make_shared<RefineMode>(steps, before);
}

}  // namespace ebb
