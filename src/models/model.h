// Model: one family of networks. src/models/<m>.cpp defines `const Model& ebb::models::<m>()`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "nn/network.h"
#include "nn/params.h"
#include "nn/weights.h"

namespace ebb {

// Pixels, or numbers of latents.
struct ImageSize {
  int64_t height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

// What a network works on that does not work on pixels. A denoiser's number is
// (autoencoder's number - shift) * scale.
struct LatentSpace {
  int64_t factor = 1;  // pixels to a latent, along each side
  std::string of;      // whose latents
  double scale = 1, shift = 0;
  bool scaled = false;  // an autoencoder that reads and writes the denoiser's numbers
};

// What a model is for. A checkpoint may hold components of several kinds.
enum class ModelKind : uint8_t {
  denoiser,         // F(noisy image, noise level, conditions)
  text_encoder,     // tokens to states
  autoencoder,      // pixels to latents and back
  control_network,  // an image to residuals, or to keys and values, of a denoiser
  upscaler,         // pixels to more pixels
  adapter,          // changes to the weights of another component
  image_encoder,    // pixels to states, which adapters read
};
std::string_view name_of(ModelKind kind);  // "text encoder"

struct Preset {
  std::string name;  // unique among the presets and names of all models
  std::string help;
  ModelConfig config;
};

// The class, of networks whose config has classes.
std::vector<nn::Condition> class_conditions(const ModelConfig& config);

// What a component computes that is no denoiser: an autoencoder's encode and decode, for example.
// docs/pipeline.md says why.
struct EntryPoint {
  std::string name, help;
  // All that it is given, declared as conditions are: values of a batch are [N,shape...].
  std::vector<nn::Condition> (*inputs)(const ModelConfig&) = nullptr;
  // All that it can compute of them, by name. Who wants some of it makes outputs of that; the rest
  // is dead code.
  nn::ValuesByName (*build)(const nn::Params& p, const ModelConfig&,
                            const nn::ValuesByName& inputs) = nullptr;
  // Published weights make activations above 65504, the largest number of f16: evaluate in bf16 or
  // f32 (compute_dtype() in pipeline/component.h).
  bool overflows_f16 = false;
};

// What a file says of a network beside the shapes of its tensors.
struct FileFacts {
  nn::FileShapes shapes;                        // of all tensors, with their prefixes: markers
  std::map<std::string, std::string> metadata;  // of the file
  // A weight by the network's name, as the file has it; undefined where it has none.
  std::function<Tensor(const std::string& weight)> load;
};

struct Model {
  std::string name;
  std::string help;
  ModelKind kind = ModelKind::denoiser;
  std::vector<Preset> presets;  // the first one is what the model's own name means
  // Throws Error if no network can be built of the config, whose sizes are checked.
  void (*check)(const ModelConfig&) = nullptr;
  // A denoiser's network under `p`: F [N,H,W,C'] (twice the channels if it learns the variance).
  Value (*build)(const nn::Params& p, const ModelConfig&, const nn::NetworkInputs&) = nullptr;
  // What components of other kinds compute instead.
  std::vector<EntryPoint> entries;
  // Heights and widths must be multiples of this; 0: both must be the config's image_size, which a
  // table of positions or the like is made for. Of an autoencoder: in pixels.
  int64_t (*size_multiple)(const ModelConfig&) = +[](const ModelConfig&) { return int64_t{0}; };
  // None: it works on pixels, if its channels are 1 or 3. Of an autoencoder: what it makes, with
  // the scale and shift that are done already.
  std::optional<LatentSpace> (*latents)(const ModelConfig&) = +[](const ModelConfig&) {
    return std::optional<LatentSpace>();
  };
  // The network's inputs other than the image and its noise level: all that build() may request.
  std::vector<nn::Condition> (*conditions)(const ModelConfig&) = class_conditions;
  // The config of the network with these tensors; none: of another model. What tensors do not
  // determine (heads, the order of q, k and v, ...) is taken from the preset with the same shapes,
  // or the defaults stated in the model's file.
  std::optional<ModelConfig> (*recognise)(const nn::FileShapes&) = nullptr;
  // Completes such a config by the other facts of its file. Throws Error for what is known to be
  // another kind of network.
  void (*examine)(ModelConfig&, const FileFacts&) = +[](ModelConfig&, const FileFacts&) {};
  // Where files with these tensors keep the weights, if they name or pack them in another way than
  // the network does; an empty function if not.
  nn::FilePlaces (*places)(const ModelConfig&, const nn::FileShapes&) = +[](const ModelConfig&,
                                                                            const nn::FileShapes&) {
    return nn::FilePlaces();
  };
  // What recognise() had to guess of this config, if no preset decides it: "heads 4"; "" if
  // nothing.
  std::string (*guessed)(const ModelConfig&) = +[](const ModelConfig&) { return std::string(); };
  // The diffusion of the published networks: fields of DiffusionConfig that differ from its
  // defaults, as text, "{precond=eps betas=cosine}".
  std::string (*diffusion)(const ModelConfig&) = +[](const ModelConfig&) { return std::string(); };
  // True for unused tensors of published files.
  bool (*ignored)(std::string_view name) = +[](std::string_view) { return false; };
};

// Throws Error for absurd sizes: describing such a network would take unbounded time and memory.
void check_sizes(const Model& model, const ModelConfig& config);
// Throws Error for a config that cannot be built: for such sizes, and for what the model rejects.
void check(const Model& model, const ModelConfig& config);

// Checks the config and gives the network with its parameters under `prefix`.
nn::Network network_of(const Model& model, ModelConfig config, std::string prefix = "");
// What the network says of its parameters, in the order in which it makes them. Throws Error for a
// config of which none can be built.
nn::Weights weights_of(const Model& model, const ModelConfig& config, std::string prefix = "");
// {H,W,C} of what the denoiser makes for images of `size` pixels; {}: of the config's own size.
// Throws Error, which names the nearest size, for one that the network does not take.
Shape sample_shape(const Model& model, const ModelConfig& config, ImageSize size);
// "any multiple of 8", "256x256": sizes of images, pixels.
std::string sizes_text(const Model& model, const ModelConfig& config);
// A graph of an entry point.
struct EntryCall {
  std::string entry;
  std::map<std::string, Shape> inputs;  // [N,...] of each, of one batch
  std::vector<std::string> outputs;     // which of those that it can compute
};
const EntryPoint& find_entry(const Model& model, std::string_view name);  // throws Error
// Inputs and outputs have their own names. Throws Error.
Graph entry_graph(const Model& model, const ModelConfig& config, const EntryCall& call,
                  std::string prefix = "");
// Sources x, noise and, under their own names, all conditions that are not rare, of their usual
// sizes, for `batch` images of `size` (pixels or latents), or of the config's.
nn::NetworkInputs network_inputs(Graph& g, const Model& model, const ModelConfig& config,
                                 int64_t batch, ImageSize size = {});

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Model*>& all_models();

struct NamedModel {
  const Model* model = nullptr;
  std::string preset;
  ModelConfig config;
  std::string name;  // the preset's or the model's, in its own case
};
// A denoiser by the name of a preset or model, ignoring case. Throws Error, suggests the nearest.
NamedModel find_model(std::string_view name);
// The same of a component of any kind.
NamedModel find_component(std::string_view name);

// A network in a checkpoint.
struct Component {
  const Model* model = nullptr;  // and with it the kind
  ModelConfig config;
  std::string prefix;  // of the tensors' names in the file, e.g. "model."
};
// The networks whose tensors a file has, at most one of a kind under a prefix, denoisers first.
std::vector<Component> recognise_components(const nn::FileShapes& tensors,
                                            const std::vector<const Model*>& models = all_models());
// Of tensors of which nothing is recognised, behind "the file", for errors: how many there are, the
// first names, and what to do.
std::string unknown_tensors(const nn::FileShapes& tensors);
// The first denoiser. Throws Error that shows what there is instead.
Component recognise_model(const nn::FileShapes& tensors);

}  // namespace ebb
