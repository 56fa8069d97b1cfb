#include <algorithm>
#include <array>
#include <functional>

#include "base/names.h"
#include "core/image_limits.h"
#include "models/family.h"
#include "models/model.h"
#include "models/wrappers.h"

#define X(name)             \
  namespace ebb::models {   \
  const ebb::Model& name(); \
  }
#include "ebb/gen/models.inc"
#undef X

namespace ebb {

const std::vector<const Model*>& all_models() {
  static const std::vector<const Model*> models = {
#define X(name) &models::name(),
#include "ebb/gen/models.inc"
#undef X
  };
  return models;
}

namespace {

NamedModel find_among(std::string_view name, const std::function<bool(const Model&)>& wanted) {
  struct Entry {
    std::string name;
    const Model* model;
    const Preset* preset;
  };
  std::vector<Entry> all;
  for (const Model* m : all_models()) {
    if (!wanted(*m)) continue;
    all.push_back({m->name, m, &m->presets.front()});
    for (const Preset& p : m->presets)
      if (p.name != m->name) all.push_back({p.name, m, &p});
  }
  const Entry& e = find_known("model: unknown name", name, all, &Entry::name);
  return {e.model, e.preset->name, e.preset->config, e.name};
}

}  // namespace

NamedModel find_model(std::string_view name) {
  return find_among(name, [](const Model& m) { return m.kind == ModelKind::denoiser; });
}

NamedModel find_component(std::string_view name) {
  return find_among(name, [](const Model&) { return true; });
}

// ---- checkpoints ---------------------------------------------------------------------------

namespace {

constexpr std::array kinds = {ModelKind::denoiser,     ModelKind::text_encoder,
                              ModelKind::autoencoder,  ModelKind::control_network,
                              ModelKind::upscaler,     ModelKind::adapter,
                              ModelKind::image_encoder};

// Where files of all components keep text encoders, by the families that read them; ComfyUI names
// them after the encoder.
std::vector<std::string> text_prefixes() {
  std::vector<std::string> out = {""};
  const auto add = [&](const std::string& prefix) {
    if (std::ranges::find(out, prefix) == out.end()) out.push_back(prefix);
  };
  for (const Family* f : all_families())
    for (const FamilyText& t : f->texts) add(t.original);
  for (const Family* f : all_families())
    for (const FamilyText& t : f->texts) add(str("text_encoders.", t.encoder, ".transformer."));
  return out;
}

std::vector<std::string> denoiser_prefixes() {
  std::vector<std::string> out(wrappers.begin(), wrappers.end());
  out.emplace_back("model.diffusion_model.");
  return out;
}

// Where files keep components of a kind.
const std::vector<std::string>& prefixes_of(ModelKind kind) {
  static const std::vector<std::string> denoiser = denoiser_prefixes(),
                                        text_encoder = text_prefixes(),
                                        autoencoder = {"", "first_stage_model.", "vae."},
                                        control_network = {"", "control_model."},
                                        upscaler = {"", "params_ema.", "params."}, others = {""};
  switch (kind) {
    case ModelKind::denoiser: return denoiser;
    case ModelKind::text_encoder: return text_encoder;
    case ModelKind::autoencoder: return autoencoder;
    case ModelKind::control_network: return control_network;
    case ModelKind::upscaler: return upscaler;
    case ModelKind::adapter:
    case ModelKind::image_encoder: break;
  }
  return others;
}

// The model of this kind whose tensors these are.
std::optional<Component> recognise_one(const nn::FileShapes& inner, ModelKind kind,
                                       const std::vector<const Model*>& models,
                                       const std::string& prefix) {
  for (const Model* m : models)
    if (m->kind == kind)
      if (auto config = m->recognise(inner)) return Component{m, std::move(*config), prefix};
  return {};
}

}  // namespace

std::string_view name_of(ModelKind kind) {
  constexpr std::string_view names[] = {"denoiser",        "text encoder", "autoencoder",
                                        "control network", "upscaler",     "adapter",
                                        "image encoder"};
  return names[static_cast<size_t>(kind)];
}

std::vector<Component> recognise_components(const nn::FileShapes& tensors,
                                            const std::vector<const Model*>& models) {
  std::vector<Component> out;
  for (const ModelKind kind : kinds)
    for (const std::string& prefix : prefixes_of(kind)) {
      const nn::FileShapes inner = nn::without_prefix(tensors, prefix);
      if (inner.empty()) continue;
      if (auto found = recognise_one(inner, kind, models, prefix)) out.push_back(std::move(*found));
    }
  return out;
}

std::string unknown_tensors(const nn::FileShapes& tensors) {
  if (tensors.empty()) return "has no tensors";
  constexpr size_t shown = 3;
  std::string names, known;
  for (size_t i = 0; const auto& [name, shape] : tensors)
    if (++i <= shown) names += str(i > 1 ? ", " : "", name, shape);
  for (const Model* m : all_models())
    if (m->kind == ModelKind::denoiser) known += (known.empty() ? "" : ", ") + m->name;
  return str("has ", tensors.size(), " tensors of no network that ebb knows (", names,
             tensors.size() > shown ? ", ..." : "",
             "); ebb sample --model NAME takes it for one of ", known,
             "; docs/files.md says what else ebb reads");
}

Component recognise_model(const nn::FileShapes& tensors) {
  std::string others;
  for (Component& c : recognise_components(tensors)) {
    if (c.model->kind == ModelKind::denoiser) return std::move(c);
    others += str(others.empty() ? "" : ", ", name_of(c.model->kind), " ", c.model->name);
  }
  require(others.empty(), "model: the file has no denoiser, but ", others);
  fail("model: the file ", unknown_tensors(tensors));
}

// ---- sizes ---------------------------------------------------------------------------------

namespace {

constexpr int64_t most_classes = 1'000'000, most = 65536;
constexpr size_t longest_list = 32;

template <class T>
void check_range(const std::string& what, T value, T low, T high) {
  require(value >= low && value <= high, what, " must lie in [", low, ", ", high, "] (", value,
          ")");
}

struct SizeCheck {
  const Model& model;
  const std::string& field;

  std::string what() const { return str(model.name, ": ", field); }
  void operator()(const int64_t* v) const {
    const bool one = field == "image_size" || field == "in_channels";
    const int64_t high = field == "image_size" ? longest_image_side
                         : field == "classes"  ? most_classes
                                               : most;
    check_range<int64_t>(what(), *v, one ? 1 : 0, high);
  }
  void operator()(const double* v) const {
    if (field == "dropout")
      require(*v >= 0 && *v < 1, what(), " must lie in [0, 1) (", *v, ")");
    else
      check_range<double>(what(), *v, 0, most);
  }
  template <class T>
  void operator()(const std::vector<T>* list) const {
    require(list->size() <= longest_list, what(), " must be a list of at most ", longest_list, " (",
            list->size(), ")");
    // the taps of a filter may be negative
    const T low = std::is_same_v<T, double> ? -most : 0;
    for (const T v : *list) check_range<T>(what(), v, low, most);
  }
  void operator()(const auto*) const {}  // names and switches
};

}  // namespace

void check_sizes(const Model& model, const ModelConfig& config) {
  ModelConfig copy = config;
  for (const Field& f : copy.fields()) std::visit(SizeCheck{model, f.name}, f.ref);
}

void check(const Model& model, const ModelConfig& config) {
  check_sizes(model, config);
  model.check(config);
  if (model.kind != ModelKind::denoiser) return;
  const int64_t size = config.common().image_size, multiple = model.size_multiple(config);
  require(multiple == 0 || size % multiple == 0, model.name, ": image_size (", size,
          ") must be a multiple of ", multiple);
}

std::string sizes_text(const Model& model, const ModelConfig& config) {
  const auto latents = model.latents(config);
  const int64_t factor = latents ? latents->factor : 1, multiple = model.size_multiple(config);
  if (multiple > 0) return str("any multiple of ", multiple * factor);
  const int64_t side = config.common().image_size * factor;
  return str(side, "x", side);
}

Shape sample_shape(const Model& model, const ModelConfig& config, ImageSize size) {
  const CommonConfig& c = config.common();
  if (size == ImageSize{}) return {c.image_size, c.image_size, c.in_channels};
  const auto latents = model.latents(config);
  const int64_t factor = latents ? latents->factor : 1;
  const int64_t multiple = model.size_multiple(config) * factor;
  const auto text = [](int64_t height, int64_t width) { return str(width, "x", height); };
  if (multiple == 0) {
    const int64_t side = c.image_size * factor;
    require(size == ImageSize{side, side}, "--size: ", model.name, " makes images of ",
            text(side, side), " pixels only, which its table of positions is made for (",
            text(size.height, size.width), ")");
  } else {
    const auto nearest = [&](int64_t n) {
      return std::max<int64_t>((n + multiple / 2) / multiple, 1) * multiple;
    };
    const auto fits = [&](int64_t n) {
      return n > 0 && n <= longest_image_side && n % multiple == 0;
    };
    require(fits(size.height) && fits(size.width), "--size: ", model.name,
            " makes images whose sides are multiples of ", multiple, " up to ", longest_image_side,
            " pixels (", text(size.height, size.width), "; the nearest is ",
            text(std::min(nearest(size.height), longest_image_side),
                 std::min(nearest(size.width), longest_image_side)),
            ")");
    require(size.height * size.width < most_image_pixels, "--size: ", model.name,
            " makes images of less than ", most_image_pixels, " pixels (",
            text(size.height, size.width), " has ", size.height * size.width, ")");
  }
  return {size.height / factor, size.width / factor, c.in_channels};
}

// ---- networks ------------------------------------------------------------------------------

nn::Network network_of(const Model& model, ModelConfig config, std::string prefix) {
  check(model, config);
  return [&model, config = std::move(config), prefix = std::move(prefix)](
             Graph& g, const nn::NetworkInputs& in) {
    return model.build(nn::Params(g, prefix), config, in);
  };
}

std::vector<nn::Condition> class_conditions(const ModelConfig& config) {
  const int64_t classes = config.common().classes;
  if (classes == 0) return {};
  return {nn::class_condition(classes)};
}

// Of one sample, of the smallest sizes where values bring their own.
static nn::ValuesByName smallest_inputs(Graph& g, const EntryPoint& entry, const Model& model,
                                        const ModelConfig& config) {
  nn::ValuesByName out;
  for (nn::Condition c : entry.inputs(config)) {
    std::vector<int64_t> sizes = c.shape.sizes();
    for (int64_t& n : sizes)
      if (n == nn::Condition::any) n = std::max<int64_t>(model.size_multiple(config), 1);
    c.shape = Shape(sizes);
    out[c.name] = g.input(entry.name + "." + c.name, c.type(1));
  }
  return out;
}

nn::Weights weights_of(const Model& model, const ModelConfig& config, std::string prefix) {
  check(model, config);
  Graph g;
  nn::Weights out;
  const nn::Params root(g, std::move(prefix), &out);
  if (model.build) model.build(root, config, network_inputs(g, model, config, 1));
  for (const EntryPoint& e : model.entries)
    e.build(root, config, smallest_inputs(g, e, model, config));
  return out;
}

const EntryPoint& find_entry(const Model& model, std::string_view name) {
  return find_known(model.name + ": unknown entry point", name, model.entries, &EntryPoint::name);
}

Graph entry_graph(const Model& model, const ModelConfig& config, const EntryCall& call,
                  std::string prefix) {
  check(model, config);
  const EntryPoint& entry = find_entry(model, call.entry);
  const std::string who = model.name + "." + entry.name;
  Graph g;
  nn::ValuesByName in;
  size_t given = 0;
  int64_t batch = 0;
  for (const nn::Condition& c : entry.inputs(config)) {
    const auto it = call.inputs.find(c.name);
    require(it != call.inputs.end(), who, ": needs '", c.name, "'");
    const int64_t samples = it->second.rank() > 0 ? it->second[0] : 0;
    if (given++ == 0) batch = samples;
    require(samples == batch, who, ": inputs must be of one batch (", batch, ")  ", c.name, ": ",
            it->second);
    c.check_shape(it->second, batch, who);
    in[c.name] = g.input(c.name, {c.dtype, it->second});
  }
  require(given == call.inputs.size(), who, ": takes other inputs (", call.inputs.size(), ", not ",
          given, ")");
  const nn::ValuesByName out = entry.build(nn::Params(g, std::move(prefix)), config, in);
  for (const std::string& name : call.outputs)
    g.output(name, find_known(who + ": unknown output", name, out, [](const auto& o) {
                     return o.first;
                   }).second);
  return g;
}

nn::NetworkInputs network_inputs(Graph& g, const Model& model, const ModelConfig& config,
                                 int64_t batch, ImageSize size) {
  const CommonConfig& c = config.common();
  if (size == ImageSize{}) size = {c.image_size, c.image_size};
  nn::NetworkInputs in;
  in.x = g.input("x", {DType::f32, {batch, size.height, size.width, c.in_channels}});
  in.noise = g.input("noise", {DType::f32, {batch}});
  for (const nn::Condition& condition : model.conditions(config)) {
    if (condition.rare) continue;
    Type type = condition.usual_type(batch);
    if (type.shape.rank() == 4 && c.image_size > 0) {  // an image beside the noisy one
      type.shape[1] = type.shape[1] * size.height / c.image_size;
      type.shape[2] = type.shape[2] * size.width / c.image_size;
    }
    in.conditions[condition.name] = g.input(condition.name, type);
  }
  return in;
}

}  // namespace ebb
