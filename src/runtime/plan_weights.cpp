// Plan: what it reads of a WeightStore.
#include <algorithm>
#include <utility>

#include "core/out_of_memory.h"
#include "runtime/plan.h"
#include "runtime/weight_store.h"

namespace ebb {

std::vector<Tensor> Plan::prepared_weights() {
  try {
    return weights_->get(prepared_, context_);
  } catch (const OutOfMemory&) {
    const WeightNeeds needs = weights_->needs(prepared_, *context_.device);
    const int64_t bytes = needs.bytes() + needs.working;
    const int64_t free = context_.free_memory();
    if (bytes <= free) throw;
    fail_memory(bytes, free);
  }
}

void Plan::refresh() {
  if (!origin_) return;
  const uint64_t version = weights_->version();
  if (origin_->version == version) return;
  const auto differs = [&](const auto& asked) {
    return weights_->is_changed(asked.first) != asked.second;
  };
  if (std::ranges::none_of(origin_->changed, differs)) {
    origin_->version = version;
    return;
  }
  release();
  Plan other(origin_->graph, context_, origin_->options);
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& s = graph_.sources()[i];
    if (s.kind != Source::Kind::input && sources_[i].defined()) other.bind(s.name, sources_[i]);
  }
  if (inputs_.keeps()) {
    other.make_inputs();
    other.inputs_.keep_those_of(inputs_, *context_.device);
  }
  other.watch_ = std::move(watch_);
  other.observer_ = std::move(observer_);
  *this = std::move(other);
  weights_->drop_unused(*context_.device);  // what only the plan before read
}

// Weights that were changed are in the memory that they had, but for those in place.
void Plan::bind_weights() {
  if (!weights_ || prepared_.values.empty()) return;
  const uint64_t version = weights_->version();
  if (bound(prepared_.values[0].source).defined() && weights_version_ == version) return;
  const std::vector<Tensor> tensors = prepared_weights();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t k = index_of(prepared_.values[i].source);
    if (sources_[k].defined() && sources_[k].raw() == tensors[i].raw()) continue;
    sources_[k] = tensors[i].reshape(graph_.type(graph_.sources()[k].value).shape);
    resolved_ = false;
  }
  weights_version_ = version;
}

}  // namespace ebb
