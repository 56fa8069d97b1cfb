#include "pipeline/merged_weights.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/checkpoint_family.h"
#include "pipeline/component.h"

namespace ebb {
namespace {

std::vector<Component> components_of(const std::vector<MergedWeights::Part>& parts) {
  std::vector<Component> out;
  for (const MergedWeights::Part& p : parts) out.push_back(p.component);
  return out;
}

bool changed_by_loras(const Component& c) {
  return c.model->kind == ModelKind::denoiser || c.model->kind == ModelKind::text_encoder;
}

}  // namespace

bool MergedWeights::changes_any(const std::vector<Part>& parts) {
  return std::ranges::any_of(parts, [](const Part& p) { return changed_by_loras(p.component); });
}

MergedWeights::MergedWeights(const std::vector<Part>& parts, const std::vector<LoraChoice>& loras)
    : context_(open_context("cpu")) {
  if (loras.empty()) return;
  using NetworkPart = adapters::Network::Part;
  std::vector<adapters::Network> networks;
  std::vector<Changed*> changed;  // likewise
  const std::vector<Component> components = components_of(parts);
  const auto texts = texts_in(family_in(components), components);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& p = parts[i];
    const Component& c = p.component;
    if (!changed_by_loras(c)) continue;
    const auto store = open_component(p.file, p.path, c);
    changed.push_back(&(networks_[{p.path, c.prefix}] = {store, {}}));
    if (c.model->kind == ModelKind::denoiser) {
      networks.push_back({NetworkPart::denoiser, 1, c.model, c.config, store});
      continue;
    }
    networks.push_back({NetworkPart::text, texts[i]->number, c.model, c.config, store});
  }
  const auto uses = open_loras(loras);
  warnings_ = adapters::check(uses, networks);
  const auto changes = adapters::changes_of(uses, networks, adapters::Targets(networks));
  for (size_t i = 0; i < changes.size(); ++i) {
    for (const auto& [weight, terms] : changes[i])
      if (!terms.empty()) changed[i]->weights.insert(weight);
    changed[i]->store->change(changes[i]);
  }
}

std::function<Tensor()> MergedWeights::of(const std::string& path, const std::string& prefix,
                                          const std::string& weight) const {
  const auto network = networks_.find({path, prefix});
  if (network == networks_.end() || !network->second.weights.contains(weight)) return {};
  return [store = network->second.store, weight, context = context_] {
    return store->changed(weight, context);
  };
}

}  // namespace ebb
