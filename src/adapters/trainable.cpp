#include "adapters/trainable.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "adapters/decomposed.h"
#include "base/error.h"
#include "base/names.h"
#include "io/safetensors.h"
#include "nn/ops.h"
#include "nn/storage.h"
#include "ops/prim/literal/op.h"
#include "ops/stop_gradient/op.h"
#include "passes/contractions/distribute_products.h"
#include "train/model_weights.h"

namespace ebb::adapters {
namespace {

// The name of low-rank adapters that are decomposed.
constexpr const char* dora = "dora";

TrainableOptions resolved(TrainableOptions o) {
  if (small_letters(o.kind) == dora) o.kind = "lora", o.decomposed = true;
  return o;
}

const AdapterKind& kind_of(const std::string& name) {
  for (const AdapterKind* k : all_kinds())
    if (k->factors && small_letters(k->name) == small_letters(name)) return *k;
  fail_unknown("adapter: unknown kind", name, trainable_kinds());
}

// What the kind divides alpha by for these factors; checks that they go together.
int64_t rank_of(const AdapterKind& kind, const std::string& layer,
                const std::vector<Factor>& factors, const WeightSize& size) {
  Module m(layer, "a new adapter");
  for (const Factor& f : factors) m.add(f.role, {str(layer, '.', f.role), f.shape});
  return kind.rank(m, size);
}

std::string suffix_of(const AdapterKind& kind, const std::string& role, FileNames names) {
  for (const auto* roles : {&kind.roles, &magnitude_roles()})
    for (const AdapterKind::Role& r : *roles)
      if (r.role == role && r.names == names) return r.suffix;
  fail("adapter: ", kind.name, " has no ",
       names == FileNames::kohya ? "names of kohya's" : "names of PEFT's", " (", role, ")");
}

}  // namespace

std::vector<std::string> trainable_kinds() {
  std::vector<std::string> out;
  for (const AdapterKind* k : all_kinds())
    if (k->factors) out.push_back(small_letters(k->name));
  out.emplace_back(dora);
  return out;
}

void check(const TrainableOptions& given) {
  constexpr int64_t largest = 4096;
  const TrainableOptions o = resolved(given);
  const AdapterKind& kind = kind_of(o.kind);
  require(o.sizes.factor == -1 || kind.has_factor, "factor: is not of adapters of the kind ",
          small_letters(kind.name), ", on which it has no effect (", o.sizes.factor, ")");
  require(o.sizes.factor == -1 || o.sizes.factor >= 1, "factor: must be at least 1, or -1 (",
          o.sizes.factor, ")");
  require(o.sizes.rank >= 1 && o.sizes.rank <= largest, "rank: must be from 1 to ", largest, " (",
          o.sizes.rank, ")");
  const auto written = static_cast<float>(o.alpha);  // as files have it
  require(written > 0 && std::isfinite(written), "alpha: must be above 0 and finite in f32 (",
          o.alpha, ")");
  for (const Factor& f : kind.factors(o.sizes, {o.sizes.rank, o.sizes.rank}))
    suffix_of(kind, f.role, o.names);
}

TrainableAdapter::TrainableAdapter(std::vector<AdaptedNetwork> networks,
                                   const TrainableOptions& options)
    : networks_(std::move(networks)), options_(resolved(options)), kind_(&kind_of(options_.kind)) {
  check(options_);
  for (size_t i = 0; i < networks_.size(); ++i)
    if (!networks_[i].targets.empty()) add_layers(i);
}

TrainableAdapter::TrainableAdapter(const Network& network, const TrainableOptions& options,
                                   std::vector<std::string> targets)
    : TrainableAdapter({AdaptedNetwork{.network = network,
                                       .targets = std::move(targets),
                                       .weights = weights_of(*network.model, network.config)}},
                       options) {}

void TrainableAdapter::add_layers(size_t network) {
  const AdaptedNetwork& of = networks_[network];
  const LayerNames names(of.network);
  std::vector<size_t> fits(of.targets.size(), 0);
  std::vector<std::string> known;
  for (const nn::Weight& w : of.weights) {
    constexpr std::string_view ending = ".weight";
    if (!w.name.ends_with(ending) || w.shape.rank() < 2) continue;
    const std::string layer = w.name.substr(0, w.name.size() - ending.size());
    known.push_back(names.diffusers(layer));
    bool wanted = false;
    for (size_t i = 0; i < fits.size(); ++i) {
      const std::string& part = of.targets[i];
      if (layer.find(part) == std::string::npos && known.back().find(part) == std::string::npos)
        continue;
      ++fits[i];
      wanted = true;
    }
    if (wanted) add_layer(network, w, layer);
  }
  for (size_t i = 0; i < fits.size(); ++i)
    require(fits[i] > 0, "targets: no layer of ",
            Network::name_of(of.network.part, of.network.number), " has '", of.targets[i],
            "' in its name (the first of ", known.size(), " is '",
            known.empty() ? "" : known.front(), "')");
}

void TrainableAdapter::add_layer(size_t network, const nn::Weight& w, const std::string& layer) {
  Layer& l = layers_.emplace_back(Layer{network, w, layer, 1, {}});
  const Shape shape = nn::file_shape(w);
  const std::vector<Factor> factors = kind_->factors(options_.sizes, shape);
  const int64_t rank = rank_of(*kind_, layer, factors, weight_size(shape));
  if (rank > 0) l.scale = options_.alpha / static_cast<double>(rank);
  for (const Factor& f : factors)
    l.factors.emplace_back(
        f.role, nn::Weight{.name = str("adapter.", networks_[network].prefix, layer, '.', f.role),
                           .shape = f.shape,
                           .spec = {.init = f.init, .scale = f.init_scale, .decay = true},
                           .trained = true});
  if (!options_.decomposed) return;
  // decay would pull to weights of zeros, not to the network's
  const auto of_rows = [&](const char* what, bool trained) {
    return nn::Weight{.name = str("adapter.", networks_[network].prefix, layer, '.', what),
                      .shape = {w.shape[0]},
                      .spec = {.qkv_interleave = w.spec.qkv_interleave, .decay = false},
                      .trained = trained};
  };
  l.magnitude = of_rows("magnitude", true);
  l.length = of_rows("length", false);
  const auto role = std::ranges::find(magnitude_roles(), options_.names, &AdapterKind::Role::names);
  l.factors.emplace_back(role->role, l.magnitude);
}

int64_t TrainableAdapter::elements() const {
  int64_t out = 0;
  for (const Layer& l : layers_)
    for (const auto& [role, w] : l.factors) out += w.shape.numel();
  return out;
}

nn::Weights TrainableAdapter::weights() const {
  nn::Weights out;
  for (const AdaptedNetwork& n : networks_)
    for (nn::Weight w : n.weights) {
      w.name = n.prefix + w.name;
      w.trained = false;
      out.push_back(std::move(w));
    }
  for (const Layer& l : layers_)
    for (const auto& [role, w] : l.factors) out.push_back(w);
  for (const Layer& l : layers_)
    if (options_.decomposed) out.push_back(l.length);
  return out;
}

NamedTensors TrainableAdapter::given(const NamedTensors& weights) const {
  if (!options_.decomposed) return {};
  NamedTensors out;
  for (const Layer& l : layers_) {
    const Tensor lengths = row_lengths(weights.at(networks_[l.network].prefix + l.weight.name));
    out[l.length.name] = lengths;
    out[l.magnitude.name] = lengths.clone();  // is trained
  }
  return out;
}

std::vector<std::string> TrainableAdapter::factors_of(Network::Part part) const {
  std::vector<std::string> out;
  for (const Layer& l : layers_)
    for (const auto& [role, w] : l.factors)
      if (networks_[l.network].network.part == part) out.push_back(w.name);
  return out;
}

// The weight as the network has it, with the change.
Value TrainableAdapter::changed(Value weight, const Layer& l) const {
  Graph& g = *weight.graph;
  std::map<std::string, Value, std::less<>> factors;
  for (const auto& [role, w] : l.factors)
    factors[role] = g.source(Source::Kind::param, w.name, {DType::f32, w.shape});
  const Shape file = nn::file_shape(l.weight);
  const WeightSize size = weight_size(file);
  const DeltaInputs in{.size = size,
                       .scale = ops::literal(g, std::vector<double>{l.scale}, {1}),
                       .weight = {},
                       .tensor = [&](std::string_view role) {
                         const auto it = factors.find(role);
                         return it == factors.end() ? Value() : it->second;
                       }};
  const Value change = nn::decode(l.weight, ops::reshape(kind_->delta(in), file));
  if (!options_.decomposed) return weight + change;
  std::vector<int64_t> rows(static_cast<size_t>(weight.shape().rank()), 1);
  rows[0] = weight.shape()[0];
  const auto of_rows = [&](Source::Kind kind, const nn::Weight& w) {
    return ops::reshape(g.source(kind, w.name, {DType::f32, w.shape}), Shape(rows));
  };
  // the lengths are constants of the gradient (Liu et al. 2024, section 4.3)
  const Value lengths =
      ops::stop_gradient(changed_lengths(weight, change, of_rows(Source::Kind::state, l.length)));
  const Value magnitude = ops::reshape(factors.at(l.factors.back().first), Shape(rows));
  return (weight + change) * magnitude_scale(magnitude, lengths);
}

Graph TrainableAdapter::adapted(const Graph& loss) const {
  Rewriter rw(loss);
  std::map<std::string, const Layer*, std::less<>> by_weight;
  for (const Layer& l : layers_) by_weight[networks_[l.network].prefix + l.weight.name] = &l;
  for (const Source& s : loss.sources()) {
    const auto kind = s.kind == Source::Kind::param ? Source::Kind::state : s.kind;
    Value v = rw.to().source(kind, s.name, loss.type(s.value));
    if (const auto it = by_weight.find(s.name); it != by_weight.end()) {
      const AtScope at(rw.to(),
                       networks_[it->second->network].prefix + it->second->layer + ".adapter");
      v = changed(v, *it->second);
    }
    rw.set(s.value, v);
  }
  for (const Node& n : loss.nodes()) {
    const AtScope at(rw.to(), n.at);
    rw.copy(n);
  }
  rw.copy_ends();
  verify(rw.to(), "adapted");
  return distribute_products(rw.take());
}

// As diffusers reads it: of each network its rank, alpha and layers.
std::string TrainableAdapter::peft_facts(const std::vector<LayerNames>& names) const {
  nlohmann::json out;
  for (const Layer& l : layers_) {
    const std::string peft = names[l.network].peft_prefix();
    out[peft + "r"] = options_.sizes.rank;
    out[peft + "lora_alpha"] = options_.alpha;
    out[peft + "target_modules"].push_back(names[l.network].diffusers(l.layer));
    if (options_.decomposed) out[peft + "use_dora"] = true;
  }
  return out.dump();
}

void TrainableAdapter::write(const std::string& path, const NamedTensors& tensors,
                             const std::string& prefix, const WritingOptions& how) const {
  std::vector<io::NamedTensor> out;
  std::map<std::string, std::string> metadata = how.metadata;
  const bool has_alphas = options_.names == FileNames::kohya;
  const auto texts = std::ranges::count_if(
      networks_, [](const AdaptedNetwork& n) { return n.network.part == Network::Part::text; });
  std::vector<LayerNames> names;
  for (const AdaptedNetwork& n : networks_) names.emplace_back(n.network, texts > 1);
  for (const Layer& l : layers_) {
    const std::string stem = names[l.network].written(l.layer, options_.names);
    for (const auto& [role, w] : l.factors) {
      const std::string name = stem + suffix_of(*kind_, role, options_.names);
      Tensor t = tensors.at(prefix + w.name);
      if (w.name == l.magnitude.name)
        t = nn::to_file(w, t).reshape(magnitude_shape(nn::file_shape(l.weight), options_.names));
      out.push_back({name, train::rounded(name, t, how.dtype, "save_dtype")});
    }
    // a large one does not fit into f16
    if (has_alphas)
      out.push_back({stem + ".alpha", scalar_tensor(static_cast<float>(options_.alpha))});
  }
  if (!has_alphas) metadata["lora_adapter_metadata"] = peft_facts(names);
  io::write_safetensors(path, out, metadata);
}

}  // namespace ebb::adapters
