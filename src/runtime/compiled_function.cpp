#include "runtime/compiled_function.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "passes/schedule/graph_cut.h"
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

// By value: whether it is a small result of nodes that read no source.
std::vector<bool> small_constants(const Graph& g) {
  constexpr int64_t kept_bytes = 64 << 10;
  std::vector<bool> constant(static_cast<size_t>(g.values()));
  const auto known = [&](int32_t v) { return constant[static_cast<size_t>(v)]; };
  const auto small = [&](int32_t v) { return g.type(v).bytes() <= kept_bytes; };
  for (const Node& n : g.nodes())
    if (std::ranges::all_of(n.in, known) && std::ranges::all_of(n.out, small))
      for (const int32_t v : n.out) constant[static_cast<size_t>(v)] = true;
  return constant;
}

// Such values become states, in the order of the outputs of `constants`, which computes them.
struct Split {
  Graph rest, constants;
};

Split without_constants(const Graph& g) {
  const std::vector<bool> constant = small_constants(g);
  const GraphCut cut(g, [&](int32_t v) { return constant[static_cast<size_t>(v)]; });
  Rewriter rest(g), constants(g);
  rest.copy_sources();
  for (const Node& n : g.nodes())
    if (constant[static_cast<size_t>(n.out[0])]) constants.copy(n);
  for (int32_t v = 0; v < g.values(); ++v) {
    if (!cut.crosses(v)) continue;
    const std::string name = rest.to().fresh_name("constant");
    rest.set(v, rest.to().source(Source::Kind::state, name, g.type(v)));
    constants.to().output(name, constants.map(v));
  }
  for (const Node& n : g.nodes())
    if (cut.in_step(n)) rest.copy(n);
  rest.copy_ends();
  return {rest.take(), constants.take()};
}

void check_alignment(const CompiledFunction::Memory& memory) {
  for (const void* p : memory.in) require_aligned("function: an input", p, Signature::alignment);
  for (const void* p : memory.out) require_aligned("function: an output", p, Signature::alignment);
  require_aligned("function: the workspace", memory.workspace, 64);
}

// x -> x, as a node that a kernel runs.
Graph copied(const Type& type) {
  Graph g;
  const Scalar x[] = {Scalar::input(0)};
  const ops::Pointwise same{.expr = Expr(1, x), .dtypes = type.dtype};
  g.output("y", g.add1(ops::def::pointwise(), same, {g.input("x", type)}));
  return g;
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
  Graph low = lowered(with_outputs_as_updates(g), lowering);
  if (!inputs_.empty()) {
    Split split = without_constants(low);
    if (!split.constants.outputs().empty()) {
      compute(split.constants, context);
      low = std::move(split.rest);
    }
  }
  std::vector<ChosenKernel> chosen = choose_kernels(low, context);
  size_t next = 0;
  const MemoryPlan plan = plan_memory(low, [&](const Node&) { return chosen[next++].memory(); });
  workspace_bytes_ = plan.arena_bytes;
  const auto place = [&](int32_t value) {
    const Placement& p = plan.values[static_cast<size_t>(value)];
    if (p.source < 0) return Place{.offset = p.offset};
    const auto source = static_cast<size_t>(p.source);
    if (source < inputs_.size()) return Place{Place::Of::input, source, p.offset};
    const size_t after = source - inputs_.size();
    if (after < outputs_.size()) return Place{Place::Of::output, after, p.offset};
    return Place{Place::Of::constant, after - outputs_.size(), p.offset};
  };
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Node& n = low.nodes()[i];
    if (!chosen[i].program.run || plan.in_place_already[i]) continue;
    Step step{std::move(chosen[i].sig), std::move(chosen[i].program), {}, {}, plan.workspace[i]};
    for (const int32_t v : n.in) step.in.push_back(place(v));
    for (const int32_t v : n.out) step.out.push_back(place(v));
    steps_.push_back(std::move(step));
  }
  for (const NamedValue& c : plan.copies) {
    std::vector<ChosenKernel> copy = choose_kernels(copied(low.type(c.value)), context);
    const Place to = place(low.find_source(c.name)->value);
    steps_.push_back(
        {std::move(copy[0].sig), std::move(copy[0].program), {place(c.value)}, {to}, 0});
  }
}

void CompiledFunction::compute(const Graph& constants, const Context& context) {
  const CompiledFunction f(constants, context);
  std::vector<void*> out;
  for (const Type& t : f.outputs()) {
    constants_.push_back(device_->allocate(t.bytes()));
    out.push_back(constants_.back()->data());
  }
  const auto workspace =
      f.workspace_bytes() > 0 ? device_->allocate(f.workspace_bytes()) : std::shared_ptr<Buffer>();
  f.run({{}, out, workspace ? workspace->data() : nullptr});
  device_->synchronize();
}

void* CompiledFunction::address(const Place& place, const Memory& memory) const {
  void* base = memory.workspace;
  if (place.of == Place::Of::input) base = memory.in[place.index];
  if (place.of == Place::Of::output) base = memory.out[place.index];
  if (place.of == Place::Of::constant) base = constants_[place.index]->data();
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
