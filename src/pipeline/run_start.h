// What a batch of a run starts from: noise, data and the state made of both.
#pragma once

#include "diffusion/denoiser.h"
#include "diffusion/noise/noise.h"
#include "diffusion/start/inpaint.h"
#include "pipeline/request.h"
#include "pipeline/run_inputs.h"

namespace ebb {

// The images of a batch from `first` on; it is filled up with images that are thrown away.
NoiseCall noise_keys(const ResolvedRequest& r, int64_t first);

// Whether a picture has the same noise in any batch of its request: not where one generator draws
// for all of a batch. Of a request of two pictures or more.
bool noise_is_by_image(ResolvedRequest r);

// How many steps control networks take part in shares of. The web UI's samplers of timesteps count
// what they start from, and the timestep behind it; UniPC evaluates one step more than it counts.
int64_t counted_steps(const ResolvedRequest& r);

struct Start {
  State data, noise;  // either may be empty
  NoiseFill step;     // the noise of its steps
};

Start start_of(const ResolvedRequest& r, const RunInputs& in, const NoiseCall& keys);
// Of a batch that starts so.
Inpaint<double> inpaint_of(const ResolvedRequest& r, const KnownRegion& known, const Start& start,
                           const NoiseCall& keys);
State first_state(const ResolvedRequest& r, const RunInputs& inputs, const NoiseCall& keys,
                  const Start& start);

}  // namespace ebb
