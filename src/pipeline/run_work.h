// RunWork: how much the stages of a run are to compute, by the FLOPs of their networks: what shares
// of progress, and the time that is left, go by.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pipeline/checkpoint_parts.h"
#include "pipeline/run_progress.h"

namespace ebb {

struct ResolvedTextToImage;

// For one picture, in evaluations of the denoiser at the first pass's size.
struct PassWork {
  std::vector<double> steps;  // each, as control networks take part in some of them
  // Of the picture that the pass before made: a second pass at a larger size starts from it.
  double decoding = 0, enlarging = 0, encoding = 0;

  double before_steps() const { return decoding + enlarging + encoding; }
  // Of the first ones, by the share of their number.
  double of_steps(double share = 1) const;
  double all() const { return before_steps() + of_steps(); }
};
struct RunWork {
  std::vector<PassWork> passes;
  double decoding = 0;  // with the upscaler

  double of_passes() const;
  // Of a run of `count` pictures; `encodes`: one starts from a picture.
  StageWork of_run(int64_t count, bool encodes) const;
};

// The networks' FLOPs, by network and size. They are counted in graphs of these, which takes a
// while to make: several milliseconds a run.
using KnownFlops = std::map<std::string, double>;

// `known`: what was counted before for these parts.
RunWork run_work(const CheckpointParts& parts, const ResolvedTextToImage& r, KnownFlops& known);

}  // namespace ebb
