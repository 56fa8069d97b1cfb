// The refiner of Stable Diffusion XL: another network for the last part of the levels, to which the
// state is handed on as it is.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "pipeline/run_mode.h"

namespace ebb {

struct Refine {
  double share = 0.8;  // of the run that the first network makes, 0 to 1
};
// "FILE" or "FILE:share", as --refiner has it: the file, which stays in `text`. Throws Error.
Refine parse_refiner(std::string& file);

// The refiner's first step, by dialect: diffusers by timesteps (denoising_end), a1111 and kdiff by
// the share of removed noise, others by the number of steps. Throws Error where one of both
// networks would have no step.
int64_t refiner_step(const ResolvedRequest& run, const LoadedModel& model, const Refine& refine);

// In A1111 the refiner takes over within a run; in others it makes a run of its own: none.
std::optional<RunPass::Handover> handover(const ResolvedRequest& whole, const LoadedModel& model,
                                          const Refine& refine);

// Goes on from the pass before, which has made `steps` and has these counts, without new noise.
std::shared_ptr<const RunMode> refine_mode(int64_t steps, const SampleCounts& before);

}  // namespace ebb
