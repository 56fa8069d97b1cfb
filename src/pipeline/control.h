// Control networks and image adapters of a run: how their images and strengths become conditions of
// the denoiser.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "diffusion/levels/discretisation.h"
#include "pipeline/load_model.h"
#include "pipeline/request.h"
#include "pipeline/run_conditions.h"
#include "pipeline/text_stage.h"

namespace ebb {

enum class ControlMode : uint8_t {
  balanced,  // every residual by the strength, in both branches of guidance
  prompt,    // A1111's "My prompt is more important": finer features count less
  control,   // A1111's "ControlNet is more important": the same, in the branch of the prompt only
  guess,     // diffusers' guess mode: other factors, in the branch of the prompt only
};
// "balanced", "prompt", "control", "guess". Throws Error.
ControlMode control_mode(std::string_view name);

// How its image becomes one of the picture's size.
enum class ControlResize : uint8_t {
  crop,     // the middle
  stretch,  // all of it, in another ratio
  fill,     // all of it, in the middle of the median colour of its edge, as A1111's extension
};
// "crop", "stretch", "fill". Throws Error.
ControlResize control_resize(std::string_view name);

// What one of the control networks is given in a run.
struct ControlInput {
  Tensor image;               // u8 [H,W,3]
  std::string kind = "none";  // what is done to it first, see control_image()
  std::string task = {};      // what it shows then, of networks of several tasks; "": the kind
  double strength = 1;
  double start = 0, end = 1;  // shares of the steps; it has no part in others
  ControlResize resize = ControlResize::crop;
  ControlMode mode = ControlMode::balanced;
  // Of an IP-Adapter: the region u8 [H,W,1] in which it acts, and its strengths by block, as
  // block_strengths() takes them.
  Tensor mask = {};
  std::string blocks = {};
};
// "KIND[/TASK]=IMAGE[:strength[:start[:end]]]". Throws Error.
struct ControlText {
  ControlInput input;  // without the image
  std::string file;
};
ControlText parse_control(const std::string& text);
// The same, with the image. Throws Error.
ControlInput read_control(const std::string& text);

// What can be made of an image: "none", "canny" and so on.
const std::vector<std::string>& control_kinds();
// Negative: the usual ones.
struct ControlThresholds {
  int64_t a = -1;  // of canny, the lower one (100); of threshold, above which it is white (127)
  int64_t b = -1;  // of canny, the upper one (200)
};
// What a kind makes of an image. Kinds that are not among these need networks that ebb does not
// have: the Error says so.
Tensor control_image(std::string_view kind, const Tensor& image,
                     const ControlThresholds& thresholds = {});

// Of a file, which may be a control LoRA on the denoiser. Throws Error that says what the file has
// instead.
LoadedComponent load_control_network(const std::string& file, const LoadedModel& denoiser);
// The denoiser with control networks, whose weights are beside its own. Throws Error where one does
// not fit it.
LoadedModel with_controls(LoadedModel denoiser, const std::vector<LoadedComponent>& networks);

// The conditions of a model with its control networks: number k has hint.<k> and strength.<k>, of
// an IP-Adapter also mask.<k>.
std::vector<nn::Condition> conditions_of(const LoadedModel& model);
// The network of a model with those control networks for which `given` has values.
nn::Network network_of(const LoadedModel& model, const std::vector<nn::Condition>& given);

// The same as a graph, on one image, with those of its control networks that are named by their
// number. Sizes that the image does not say are the usual ones.
Graph network_graph(const LoadedModel& model, const std::set<size_t>& controls, ImageSize size);

// Throws Error for strengths, shares of the steps and blocks that make no sense for the networks.
void check_controls(const LoadedModel& model, const std::vector<ControlInput>& inputs);
// Whether one of the networks reads images by an image encoder (IP-Adapter).
bool needs_image_encoder(const LoadedModel& model);
// Throws Error where that is so, unless `encoder` makes what they read.
void check_image_encoder(const LoadedModel& model, const LoadedComponent* encoder);
// An output of the image encoder for a picture u8 [H,W,3], or for none, where it is not defined.
using EncodeImage = std::function<Tensor(const Tensor& picture, const std::string& output)>;

// What inputs are for. `sample`: {H,W,C} of what the denoiser makes.
struct ControlRun {
  Shape sample;
  int64_t steps = 0;                // as the dialect counts them
  std::vector<double> sigmas = {};  // of the steps
  std::string dialect = "ebb";
  EncodeImage encode = {};  // where needs_image_encoder()
};
ControlRun control_run(const ResolvedRequest& r);
// Whether a step, from 1 on, lies within the shares: of steps, as A1111 or diffusers counts them,
// or of the way of noise levels in ComfyUI. `levels`: those of the denoiser.
bool takes_part(const ControlInput& in, int64_t step, const ControlRun& run,
                const Discretisation& levels);

// A line for each of the inputs that has no effect in any of the runs.
std::vector<std::string> control_warnings(const std::vector<ControlInput>& inputs,
                                          const std::vector<ControlRun>& runs,
                                          const Discretisation& levels);

// Adds to the conditions of a run the inputs of all control networks, one each, in their order.
// Throws Error.
void add_controls(RunConditions& conditions, const LoadedModel& model,
                  const std::vector<ControlInput>& inputs, const ControlRun& run);

}  // namespace ebb
