// RunMode: what a mode of TextToImage (an image to start from, a mask, a second pass, ...) adds to
// a pass of sampling. Each has its file: a part of the request, a function that checks it and makes
// the mode, and the mode.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/latent_encoder.h"
#include "pipeline/request.h"
#include "pipeline/run_inputs.h"

namespace ebb {

// What modes may use of the checkpoint. All throw Error.
struct RunTools {
  std::function<EncodedImage(const Tensor& pixels)> encode;  // f32 [1,H,W,3] in [-1,1]
  std::function<Tensor(const Tensor& latents)> decode;       // its inverse, of [1,h,w,c]
  // f32 [1,H,W,3] in [-1,1] made so many times as large by CheckpointParts::hires_upscaler.
  std::function<Tensor(const Tensor& pixels, double scale)> upscale = {};
};

class RunMode {
 public:
  virtual ~RunMode() = default;
  // Once a run, when `inputs` has the text: adds to it what all batches have.
  virtual void prepare(const RunTools&, RunInputs&) const {}
  // Before each batch, with the latents f32 [n,h,w,c] that the pass before made; not defined in the
  // first.
  virtual void begin(const RunTools&, const Tensor&, RunInputs&) const {}
  // A picture f32 [H,W,3] in [-1,1] of the last pass, as it is handed out; it may change its size.
  virtual Tensor finish(Tensor pixels) const { return pixels; }
};

// A run of the sampler; the next one goes on from its latents.
struct RunPass {
  ResolvedRequest request;
  bool refined = false;  // by the refiner
  std::vector<std::shared_ptr<const RunMode>> modes = {};
  // Of A1111: the pass behind this one, the refiner's, goes on in the same run of the sampler, from
  // the first evaluation at a level that `at` holds for.
  struct Handover {
    // Of that run, as ResolvedRequest has them.
    std::vector<double> sigmas;
    SampleCounts counts;
    double result_scale;
    std::function<bool(double sigma)> at;
  };
  std::optional<Handover> handover = {};
  ResolvedRequest run() const;  // the sampler's run that it is, or begins
  int64_t steps_before = 0;     // text::Steps::before, of its prompts
};

}  // namespace ebb
