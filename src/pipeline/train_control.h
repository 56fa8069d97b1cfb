// A control network as what is trained, beside a denoiser that stays as it is (ControlNet, Zhang et
// al. 2023, arXiv:2302.05543): what it begins as, the images that it sees, its file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pipeline/checkpoint_training.h"

namespace ebb {

// That of a file, or if that is "" a new one: the denoiser's encoder and middle with their weights,
// layers of the hint that are drawn by `seed`, and residuals of 0, so that at first the denoiser
// predicts what it does alone (section 3.1). Throws Error where the file has none that can be
// trained, or where a file could not say all of the new one.
LoadedComponent control_to_train(const LoadedModel& denoiser, const std::string& file,
                                 uint64_t seed);

// Throws Error where the settings of a run name no control images, or not one for each picture: by
// names alone, before a checkpoint is read.
void check_control_images(const FinetuneRequest& request);
// Of each of the pictures the one of --control-images that has its key. Throws Error, naming the
// picture or the image, where there is none or several, one cannot be read, or its shape is
// another.
std::vector<train::CaptionedPicture> read_control_images(FinetuneRequest& request,
                                                         const train::Captioned& pictures,
                                                         const std::string& cache);

// What a batch of pictures of this size brings beside their other conditions: the images f32
// [N,H,W,3] in [0,1], and a factor of 1 for each residual. None without control networks.
std::vector<nn::Condition> control_conditions(const LoadedModel& model, train::PictureSize size);
// An image as its picture is resized, cropped and mirrored: f32 [H,W,3] in [0,1]. Throws Error.
Tensor control_pixels(const train::CaptionedPicture& image, const train::Fit& fit, bool mirrored);

// The file, in the original's layout; `tensors`: the weights under the names that they have in a
// loss graph (prefix_of()), behind `prefix`. Throws Error for numbers that the dtype does not hold.
struct ControlFile {
  std::string path;
  DType dtype = DType::f16;
  std::map<std::string, std::string> metadata;
};
void write_control_network(const ControlFile& file, const Component& network,
                           const NamedTensors& tensors, const std::string& prefix);

}  // namespace ebb
