#include "runtime/compiled_function.h"

#include <algorithm>

#include "base/error.h"
#include "runtime/chosen_kernel.h"
#include "runtime/lowering.h"
#include "runtime/run_step.h"

namespace ebb {
namespace {

// An update lands in its source's own memory, so outputs become updates of sources that nothing
// reads.
Graph with_outputs_as_updates(const Graph& g) {
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes()) rw.copy(n);
  for (const NamedValue& o : g.outputs()) {
    const std::string name = rw.to().fresh_name(o.name);
    rw.to().source(Source::Kind::state, name, g.type(o.value));
    rw.to().update(name, rw.map(o.value));
  }
  return rw.take();
}

void check_alignment(const CompiledFunction::Memory& memory) {
  for (const void* p : memory.in) require_aligned("function: an input", p, Signature::alignment);
  for (const void* p : memory.out) require_aligned("function: an output", p, Signature::alignment);
  require_aligned("function: the workspace", memory.workspace, 64);
}

}  // namespace

CompiledFunction::CompiledFunction(const Graph& g, const Context& context)
    : device_(context.device) {
  for (const Source& s : g.sources()) {
    require(s.kind == Source::Kind::input, "function: '", s.name,
            "' is a parameter or a state, and functions have inputs alone");
    inputs_.push_back(g.type(s.value));
  }
  for (const NamedValue& o : g.outputs()) outputs_.push_back(g.type(o.value));
  const CompileOptions options;
  Lowering lowering{*device_, options};
  const Graph low = lowered(with_outputs_as_updates(g), lowering);
  std::vector<ChosenKernel> chosen = choose_kernels(low, context);
  size_t next = 0;
  const MemoryPlan plan = plan_memory(low, [&](const Node&) { return chosen[next++].memory(); });
  require(plan.copies.empty(), "function: output '", plan.copies.empty() ? "" : plan.copies[0].name,
          "' is the same value as another one");
  workspace_bytes_ = plan.arena_bytes;
  const auto place = [&](int32_t value) {
    const Placement& p = plan.values[static_cast<size_t>(value)];
    if (p.source < 0) return Place{.offset = p.offset};
    const auto source = static_cast<size_t>(p.source);
    if (source < inputs_.size()) return Place{Place::Of::input, source, p.offset};
    return Place{Place::Of::output, source - inputs_.size(), p.offset};
  };
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Node& n = low.nodes()[i];
    if (!chosen[i].program.run || plan.in_place_already[i]) continue;
    Step step{std::move(chosen[i].sig), std::move(chosen[i].program), {}, {}, plan.workspace[i]};
    for (const int32_t v : n.in) step.in.push_back(place(v));
    for (const int32_t v : n.out) step.out.push_back(place(v));
    steps_.push_back(std::move(step));
  }
}

void* CompiledFunction::address(const Place& place, const Memory& memory) {
  void* base = memory.workspace;
  if (place.of == Place::Of::input) base = memory.in[place.index];
  if (place.of == Place::Of::output) base = memory.out[place.index];
  return static_cast<char*>(base) + place.offset;
}

void CompiledFunction::run(const Memory& memory) const {
  require(memory.in.size() == inputs_.size() && memory.out.size() == outputs_.size(),
          "function: it has ", inputs_.size(), " inputs and ", outputs_.size(), " outputs (got ",
          memory.in.size(), " and ", memory.out.size(), ")");
  require(memory.workspace != nullptr || workspace_bytes_ == 0,
          "function: it needs a workspace of ", workspace_bytes_, " bytes");
  if (!device_->on_host()) check_alignment(memory);
  Call call;
  for (const Step& s : steps_) {
    call.in.clear();
    call.out.clear();
    for (const Place& p : s.in) call.in.push_back(address(p, memory));
    for (const Place& p : s.out) call.out.push_back(address(p, memory));
    call.workspace = static_cast<char*>(memory.workspace) + s.workspace;
    run_program(s.program, s.sig, call);
  }
}

}  // namespace ebb
