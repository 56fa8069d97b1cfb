#include <algorithm>
#include <array>

#include "base/names.h"
#include "models/model.h"

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

NamedModel find_model(std::string_view name) {
  struct Entry {
    std::string name;
    const Model* model;
    const Preset* preset;
  };
  std::vector<Entry> all;
  for (const Model* m : all_models()) {
    all.push_back({m->name, m, &m->presets.front()});
    for (const Preset& p : m->presets)
      if (p.name != m->name) all.push_back({p.name, m, &p});
  }
  const Entry& e = find_known("model: unknown name", name, all, &Entry::name);
  return {e.model, e.preset->name, e.preset->config, e.name};
}

RecognisedModel recognise_model(const nn::FileShapes& tensors) {
  // Containers put the network under a prefix.
  constexpr std::array<std::string_view, 5> prefixes = {"", "model.", "module.", "net.",
                                                        "model.diffusion_model."};
  for (const std::string_view prefix : prefixes) {
    const nn::FileShapes inner = nn::without_prefix(tensors, prefix);
    if (inner.empty()) continue;
    for (const Model* m : all_models())
      if (auto config = m->recognise(inner)) return {m, std::move(*config), std::string(prefix)};
  }
  std::string names;
  for (const auto& [name, shape] : tensors) {
    if (names.size() > 200) break;
    names += "  " + name + str(shape);
  }
  fail("model: no known network has these tensors (", tensors.size(), ")", names);
}

// ---- sizes ---------------------------------------------------------------------------------

namespace {

constexpr int64_t most_pixels = 16384, most_classes = 1'000'000, most = 65536;
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
    const int64_t high = field == "image_size" ? most_pixels
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

nn::NetworkInputs network_inputs(Graph& g, const Model& model, const ModelConfig& config,
                                 int64_t batch) {
  const CommonConfig& c = config.common();
  nn::NetworkInputs in;
  in.x = g.input("x", {DType::f32, {batch, c.image_size, c.image_size, c.in_channels}});
  in.noise = g.input("noise", {DType::f32, {batch}});
  for (const nn::Condition& condition : model.conditions(config))
    in.conditions[condition.name] = g.input(condition.name, condition.type(batch));
  return in;
}

}  // namespace ebb
