// Control networks of files, and the models that they fit.
#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/fields.h"
#include "base/names.h"
#include "models/config_fields.h"
#include "models/family.h"
#include "pipeline/adapter_regions.h"
#include "pipeline/component.h"
#include "pipeline/control.h"
#include "pipeline/control_lora.h"
#include "pipeline/control_names.h"
#include "pipeline/file_purpose.h"

namespace ebb {
namespace {

LoadedModel with(LoadedModel denoiser, const Component& network) {
  denoiser.controls.push_back(network);
  return denoiser;
}

// Why keys and values of an image adapter are of another U-Net's layers than the denoiser's; "":
// they are not.
std::string other_layers(const LoadedModel& denoiser, const Component& adapter) {
  const int64_t layers = input_of(adapter, nn::control_strength).shape[0],
                context = number_in(adapter.config, "context"),
                its_layers = std::ssize(adapter_blocks(denoiser)),
                its_context = text_channels(denoiser.config);
  if (layers == its_layers && context == its_context) return "";
  return str("it is made for ", layers, " layers that attend to text of ", context,
             " channels, and the denoiser has ", its_layers, " that attend to ", its_context);
}

// Why the network does not take what the denoiser takes, or does not make what goes to all of its
// features; "": it fits.
std::string misfit(const LoadedModel& denoiser, const Component& c) {
  const auto known = denoiser.model->conditions(denoiser.config);
  for (const nn::Condition& in : entry_of(c).inputs(c.config)) {
    if (in.name == "noise" || nn::own_control_input(in.name)) continue;
    if (in.name == "x") {
      if (in.shape[2] != denoiser.config.common().in_channels)
        return str("channels of the noisy image (", in.shape[2], " and ",
                   denoiser.config.common().in_channels, ")");
      continue;
    }
    const auto same = std::ranges::find(known, in.name, &nn::Condition::name);
    if (same == known.end()) return str("the denoiser takes no ", in.name);
    if (same->shape != in.shape)
      return str("channels of ", in.name, " (", in.shape[-1], " and ", same->shape[-1], ")");
  }
  if (reads_features(c))
    if (std::string why = other_layers(denoiser, c); !why.empty()) return why;
  try {
    constexpr int64_t side = 32;
    network_graph(with(denoiser, c), {denoiser.controls.size()}, {side, side});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// What people call the models that it fits.
std::string fits_of(const Component& c) {
  std::string out;
  for (const Family* f : all_families())
    for (const auto& [preset, title] : f->variants) {
      const NamedModel m = find_model(preset);
      const LoadedModel denoiser{.model = m.model, .config = m.config, .diffusion = {}};
      if (misfit(denoiser, c).empty()) out += str(out.empty() ? "" : ", ", title);
    }
  return out;
}

// Throws Error unless it fits.
void check_fit(const LoadedModel& denoiser, const LoadedComponent& network) {
  const Component& c = network.component;
  const std::string why = misfit(denoiser, c);
  if (why.empty()) return;
  const std::string fits = fits_of(c);
  const Family* family = find_family(denoiser.config);
  fail("control: network ", denoiser.controls.size() + 1, ", ", name_of(*c.model, c.config),
       fits.empty() ? "" : str(" of ", fits), ", does not fit the denoiser ",
       name_of(*denoiser.model, denoiser.config), family ? str(" (", family->name, ")") : "", ": ",
       why, network.path.empty() ? "" : "  ", network.path);
}

// The network for shuffled images has no mark but its name, which other programs go by, too.
bool shuffled(const std::string& file) {
  return small_letters(std::filesystem::path(file).stem().string()).find("shuffle") !=
         std::string::npos;
}
LoadedComponent pooled(LoadedComponent network) {
  for (const Field& f : network.component.config.fields())
    if (f.name == "pooled") set_field(f, "true");
  return network;
}
}  // namespace

std::string name_of(const Model& model, const ModelConfig& config) {
  for (const Preset& p : model.presets)
    if (p.config == config) return p.name;
  return model.name;
}

nn::Condition input_of(const Component& network, std::string_view name) {
  for (nn::Condition& c : entry_of(network).inputs(network.config))
    if (c.name == name) return c;
  fail("control: the network ", network.model->name, " has no input ", name);
}

bool reads_features(const Component& network) {
  return input_of(network, nn::hint_image).shape.rank() == 2;
}

LoadedComponent load_control_network(const std::string& file, const LoadedModel& denoiser) {
  const auto open = std::make_shared<const io::TensorFile>(io::TensorFile::open(file));
  const Component c =
      component_in(*open, file, ModelKind::control_network, "generate: --control-model");
  if (is_control_lora(c)) return open_control_lora(*open, file, c, denoiser);
  const LoadedComponent loaded{c, open_component(open, file, c), file};
  return shuffled(file) ? pooled(loaded) : loaded;
}

LoadedModel with_controls(LoadedModel denoiser, const std::vector<LoadedComponent>& networks) {
  if (networks.empty()) return denoiser;
  require(denoiser.weights != nullptr, "control: the denoiser has no weights");
  WeightStore::Weights all = denoiser.weights->weights();
  for (const LoadedComponent& n : networks) {
    const size_t k = denoiser.controls.size();
    check_fit(denoiser, n);
    for (const auto& [name, weight] : n.weights->weights())
      all.emplace(str(prefix_of(k), '.', name), weight);
    denoiser.controls.push_back(n.component);
  }
  denoiser.weights = std::make_shared<WeightStore>(std::move(all));
  return denoiser;
}

}  // namespace ebb
