// RunInputs: what the sampler gets beside a request: conditions, an image to start from, known
// regions.
#pragma once

#include <functional>
#include <optional>

#include "core/tensor.h"
#include "diffusion/start/inpaint.h"
#include "pipeline/run_conditions.h"

namespace ebb {

// Regions that are restored at every evaluation, for networks that were not trained to inpaint.
struct KnownRegion {
  Tensor mask;         // f32 [1,h,w,1]: 1: generated, 0: known, as the run's `data` has it
  KnownRegions where;  // by dialect
};

// A step that a batch has made.
struct StepView {
  int64_t step = 0, steps = 0;       // `step` of `steps` are done
  std::function<Tensor()> denoised;  // the latest prediction, f32 [n,h,w,c]; copied when called
};

struct RunInputs {
  RunConditions conditions = {};
  // Latents f32 [1,h,w,c] that all images start from, or one for each of the batch; not defined:
  // noise alone.
  Tensor data = {};
  // Of a posterior that `data` is the mean of: the standard deviation. Its noise is the first that
  // the source draws, as in diffusers. Not defined: the mean is taken.
  Tensor deviation = {};
  // Those before belong to the run that it goes on from: steps and evaluations, as prompts and
  // conditions count them, and draws of noise in steps.
  int64_t first_step = 0, first_evaluation = 0, first_draw = 0;
  bool noised = true;  // noise of the first level is added to `data`
  std::optional<KnownRegion> known = {};
  // What is decided by the memory that there is (pipeline/run_memory.h): the branches of guidance
  // are one batch, and what is computed once a run leaves the device before the first evaluation.
  bool together = true, hoisted_leaves = false;
  // f32 [1,h,w,1]: where it is 1, `data` is the noise that the run starts from.
  Tensor noise_instead = {};
  std::function<void(const StepView&)> watch = {};  // after every step
};

}  // namespace ebb
