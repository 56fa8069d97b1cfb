// RunWork: how much the stages of a run are to compute, by the FLOPs of their networks: what shares
// of progress, and the time that is left, go by.
#pragma once

#include <optional>
#include <vector>

#include "pipeline/checkpoint_parts.h"
#include "pipeline/hires.h"
#include "pipeline/run_mode.h"
#include "pipeline/run_progress.h"

namespace ebb {

// For one picture, in evaluations of the denoiser at the first pass's size.
struct RunWork {
  std::vector<double> passes;  // with what is decoded and encoded before each
  double decoding = 0;         // with the upscaler

  double of_passes() const;
  // Of a run of `count` pictures; `encodes`: one starts from a picture.
  StageWork of_run(int64_t count, bool encodes) const;
};

// `hires`: what the second pass is. `pixels` false: latents are all that is wanted.
RunWork run_work(const CheckpointParts& parts, const std::vector<RunPass>& passes,
                 const std::optional<Hires>& hires, bool pixels);

}  // namespace ebb
