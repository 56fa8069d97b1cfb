// Plan: what it reads of a WeightStore.
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
