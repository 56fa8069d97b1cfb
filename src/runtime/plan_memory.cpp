// Plan: what it takes of the device's memory, and how it lets go of it.
#include <algorithm>

#include "core/out_of_memory.h"
#include "runtime/plan.h"

namespace ebb {

// Preparing weights takes memory that is free again when the arena is taken.
int64_t PlanNeeds::bytes() const {
  return own + weights.bytes() + std::max(arena, weights.working);
}

void Plan::share_arena(Plan& other) {
  if (!other.shared_arena_)
    other.shared_arena_ = std::make_shared<SharedArena>(SharedArena{other.memory_.arena_bytes, {}});
  shared_arena_ = other.shared_arena_;
  shared_arena_->bytes = std::max(shared_arena_->bytes, memory_.arena_bytes);
}

int64_t Plan::arena_to_take() const {
  if (arena_ || (shared_arena_ && shared_arena_->memory.lock())) return 0;
  return shared_arena_ ? shared_arena_->bytes : memory_.arena_bytes;
}

std::shared_ptr<Buffer> Plan::take_arena() const {
  if (!shared_arena_) return take(memory_.arena_bytes);
  std::shared_ptr<Buffer> memory = shared_arena_->memory.lock();
  if (!memory) shared_arena_->memory = memory = take(shared_arena_->bytes);
  return memory;
}

PlanNeeds Plan::needs() const {
  constexpr int64_t alignment = 64;
  PlanNeeds out{.arena = arena_to_take()};
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& s = graph_.sources()[i];
    const auto prepared = std::ranges::find(prepared_.values, s.name, &PreparedValue::source);
    if (sources_[i].defined() || (weights_ && prepared != prepared_.values.end())) continue;
    const int64_t bytes = graph_.type(s.value).bytes();
    out.own +=
        s.kind == Source::Kind::input ? (bytes + alignment - 1) / alignment * alignment : bytes;
  }
  if (weights_ && !prepared_.values.empty() && !bound(prepared_.values[0].source).defined())
    out.weights = weights_->needs(prepared_, *context_.device);
  return out;
}

void Plan::check_memory(int64_t others) const {
  const int64_t bytes = missing_bytes() + others;
  if (bytes == 0) return;  // drivers take their time to tell
  const int64_t free = context_.free_memory();
  if (bytes > free) fail_memory(bytes, free);
}

// `bytes`: what it asks for next.
void Plan::fail_memory(int64_t bytes, int64_t free) const {
  const auto megabytes = [](int64_t n) { return (n + 999999) / 1000000; };
  throw OutOfMemory(
      str("plan: out of memory: a run needs ", megabytes(memory_.arena_bytes), " MB beside ",
          megabytes(source_bytes()), " MB of weights, states and inputs; of the ", megabytes(bytes),
          " MB it asks for next, ", free / 1000000, " MB are free on ",
          context_.device->description(), "; ", advice_on_memory(graph_, recomputed().blocks > 0)));
}

void Plan::release() {
  context_.device->synchronize();  // before the memory goes
  captured_.reset();
  resolved_ = false;
  arena_.reset();
  if (weights_)
    for (const PreparedValue& v : prepared_.values) sources_[index_of(v.source)] = {};
  if (inputs_.keeps()) return;
  inputs_ = {};
  inputs_made_ = false;
  for (size_t i = 0; i < sources_.size(); ++i)
    if (graph_.sources()[i].kind == Source::Kind::input) sources_[i] = {};
}

}  // namespace ebb
