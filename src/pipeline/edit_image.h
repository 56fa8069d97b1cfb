// Editing by instructions (InstructPix2Pix, Brooks et al. 2022, arXiv:2211.09800): a network that
// sees the latents of a picture beside the noisy ones, with a scale of guidance each for the text
// and for the picture.
#pragma once

#include <memory>

#include "core/tensor.h"
#include "pipeline/load_model.h"
#include "pipeline/run_mode.h"

namespace ebb {

inline constexpr double default_image_guidance = 1.5;

// Whether the network takes as many channels beside its latents as these have.
bool edits_images(const LoadedModel& model);

// The request of a run by such a network: a prediction has three branches, of text and picture, of
// the picture and the negative prompt, and of neither picture nor text, and guidance is
// u + scale (c - p) + image_guidance (p - u). Options that name rules keep them. Throws Error.
ResolvedRequest resolve_edit(const LoadedModel& model, GenerateRequest request,
                             const GenerateOptions& options, double image_guidance);
// `picture`: u8 [H,W,3] of the run's size. The latents that the network sees are the mean of the
// autoencoder's posterior, without the scale that its own latents have.
std::shared_ptr<const RunMode> edit_mode(const Tensor& picture, const LoadedModel& model,
                                         const ResolvedRequest& request);

}  // namespace ebb
