#include "adapters/trainable.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/names.h"
#include "io/safetensors.h"
#include "nn/ops.h"
#include "nn/storage.h"
#include "ops/prim/literal/op.h"
#include "train/model_weights.h"

namespace ebb::adapters {
namespace {

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
  for (const AdapterKind::Role& r : kind.roles)
    if (r.role == role && r.names == names) return r.suffix;
  fail("adapter: ", kind.name, " has no ",
       names == FileNames::kohya ? "names of kohya's" : "names of PEFT's", " (", role, ")");
}

}  // namespace

std::vector<std::string> trainable_kinds() {
  std::vector<std::string> out;
  for (const AdapterKind* k : all_kinds())
    if (k->factors) out.push_back(small_letters(k->name));
  return out;
}

void check(const TrainableOptions& o) {
  constexpr int64_t largest = 4096;
  const AdapterKind& kind = kind_of(o.kind);
  require(o.sizes.factor == -1 || o.sizes.factor >= 1, "factor: must be at least 1, or -1 (",
          o.sizes.factor, ")");
  require(o.sizes.rank >= 1 && o.sizes.rank <= largest, "rank: must be from 1 to ", largest, " (",
          o.sizes.rank, ")");
  const auto written = static_cast<float>(o.alpha);  // as files have it
  require(written > 0 && std::isfinite(written), "alpha: must be above 0 and finite in f32 (",
          o.alpha, ")");
  require(!o.targets.empty(), "targets: must name a part of layers");
  for (const Factor& f : kind.factors(o.sizes, {o.sizes.rank, o.sizes.rank}))
    suffix_of(kind, f.role, o.names);
}

TrainableAdapter::TrainableAdapter(const Network& network, const TrainableOptions& options)
    : network_(network), options_(options), kind_(&kind_of(options.kind)) {
  check(options_);
  base_ = weights_of(*network_.model, network_.config);
  const LayerNames names(network_);
  std::vector<size_t> fits(options_.targets.size(), 0);
  std::vector<std::string> known;
  for (const nn::Weight& w : base_) {
    constexpr std::string_view ending = ".weight";
    if (!w.name.ends_with(ending) || w.shape.rank() < 2) continue;
    const std::string layer = w.name.substr(0, w.name.size() - ending.size());
    known.push_back(names.diffusers(layer));
    bool wanted = false;
    for (size_t i = 0; i < fits.size(); ++i) {
      const std::string& part = options_.targets[i];
      if (layer.find(part) == std::string::npos && known.back().find(part) == std::string::npos)
        continue;
      ++fits[i];
      wanted = true;
    }
    if (!wanted) continue;
    Layer& l = layers_.emplace_back(Layer{w, layer, 1, {}});
    const Shape shape = nn::file_shape(w);
    const std::vector<Factor> factors = kind_->factors(options_.sizes, shape);
    const int64_t rank = rank_of(*kind_, layer, factors, weight_size(shape));
    if (rank > 0) l.scale = options_.alpha / static_cast<double>(rank);
    for (const Factor& f : factors)
      l.factors.emplace_back(
          f.role, nn::Weight{.name = str("adapter.", layer, '.', f.role),
                             .shape = f.shape,
                             .spec = {.init = f.init, .scale = f.init_scale, .decay = true},
                             .trained = true});
  }
  for (size_t i = 0; i < fits.size(); ++i)
    require(fits[i] > 0, "targets: no layer of ", Network::name_of(network_.part, network_.number),
            " has '", options_.targets[i], "' in its name (the first of ", known.size(), " is '",
            known.empty() ? "" : known.front(), "')");
}

int64_t TrainableAdapter::elements() const {
  int64_t out = 0;
  for (const Layer& l : layers_)
    for (const auto& [role, w] : l.factors) out += w.shape.numel();
  return out;
}

nn::Weights TrainableAdapter::weights() const {
  nn::Weights out = base_;
  for (nn::Weight& w : out) w.trained = false;
  for (const Layer& l : layers_)
    for (const auto& [role, w] : l.factors) out.push_back(w);
  return out;
}

Value TrainableAdapter::change(Graph& g, const Layer& l) const {
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
  return nn::decode(l.weight, ops::reshape(kind_->delta(in), file));
}

Graph TrainableAdapter::adapted(const Graph& loss) const {
  Rewriter rw(loss);
  std::map<std::string, const Layer*, std::less<>> by_weight;
  for (const Layer& l : layers_) by_weight[l.weight.name] = &l;
  for (const Source& s : loss.sources()) {
    const auto kind = s.kind == Source::Kind::param ? Source::Kind::state : s.kind;
    Value v = rw.to().source(kind, s.name, loss.type(s.value));
    if (const auto it = by_weight.find(s.name); it != by_weight.end()) {
      const AtScope at(rw.to(), it->second->layer + ".adapter");
      v = v + change(rw.to(), *it->second);
    }
    rw.set(s.value, v);
  }
  for (const Node& n : loss.nodes()) {
    const AtScope at(rw.to(), n.at);
    rw.copy(n);
  }
  rw.copy_ends();
  verify(rw.to(), "adapted");
  return rw.take();
}

void TrainableAdapter::write(const std::string& path, const NamedTensors& tensors,
                             const std::string& prefix, const WritingOptions& how) const {
  std::vector<io::NamedTensor> out;
  std::map<std::string, std::string> metadata = how.metadata;
  const bool has_alphas = options_.names == FileNames::kohya;
  const LayerNames layer_names(network_);
  std::vector<std::string> targets;
  for (const Layer& l : layers_) {
    const std::string stem = layer_names.written(l.layer, options_.names);
    targets.push_back(layer_names.diffusers(l.layer));
    for (const auto& [role, w] : l.factors) {
      const std::string name = stem + suffix_of(*kind_, role, options_.names);
      out.push_back(
          {name, train::rounded(name, tensors.at(prefix + w.name), how.dtype, "save_dtype")});
    }
    // a large one does not fit into f16
    if (has_alphas)
      out.push_back({stem + ".alpha", scalar_tensor(static_cast<float>(options_.alpha))});
  }
  if (!has_alphas) {
    const std::string peft = layer_names.peft_prefix();
    metadata["lora_adapter_metadata"] = nlohmann::json{
        {peft + "r", options_.sizes.rank},
        {peft + "lora_alpha", options_.alpha},
        {peft + "target_modules", targets}}.dump();
  }
  io::write_safetensors(path, out, metadata);
}

}  // namespace ebb::adapters
