#include "runtime/plan.h"

#include <array>

#include "base/error.h"
#include "base/names.h"
#include "core/out_of_memory.h"
#include "runtime/run_step.h"
#include "runtime/weight_store.h"

namespace ebb {

// The kernels of a graph say how much memory it needs, so each way is lowered and its kernels are
// chosen before it is known whether it fits.
Plan::Plan(const Graph& g, Context context, const CompileOptions& options)
    : context_(std::move(context)), weights_(options.weights) {
  const uint64_t version = weights_ ? weights_->version() : 0;
  for (const LoweringMode mode : lowering_modes(options.recompute)) {
    Lowering lowering{*context_.device, options, mode};
    graph_ = lowered(g, lowering);
    prepared_ = std::move(lowering.prepared);
    if (!lowering.changed.empty())
      origin_ = std::make_unique<Origin>(Origin{g, options, std::move(lowering.changed), version});
    std::vector<ChosenKernel> nodes = choose_kernels(graph_, context_);
    std::optional<Fitted> found = fitted(nodes, options.recompute, mode);
    if (!found) continue;
    adopt(nodes, std::move(*found));
    make_steps(std::move(nodes));
    return;
  }
}

namespace {

std::vector<NodeMemory> memory_of(const std::vector<ChosenKernel>& nodes) {
  std::vector<NodeMemory> facts;
  for (const ChosenKernel& c : nodes) facts.push_back(c.memory());
  return facts;
}

// What of the device's memory is neither the arena nor the numbers of sources. The same each time,
// so that a run that goes on has the same plan.
int64_t beside_plan(const Graph& g, const Device& device) {
  int64_t out = device.driver_memory().first;
  for (const Source& s : g.sources()) {
    const int64_t bytes = g.type(s.value).bytes();
    if (s.kind != Source::Kind::input) out += device.rounded(bytes) - bytes;
  }
  return out;
}

}  // namespace

std::optional<Fitted> Plan::fitted(const std::vector<ChosenKernel>& nodes, const Recompute& r,
                                   LoweringMode mode) {
  std::vector<NodeMemory> facts = memory_of(nodes);
  const std::vector<std::optional<SideStream>> side_stream =
      take_side_streams(graph_, facts, *context_.device, mode);
  std::optional<Fitted> out =
      fit(graph_, facts, r, mode, context_.free_memory(), beside_plan(graph_, *context_.device));
  if (!out) return out;
  for (const size_t i : out->nodes.origin) side_stream_.push_back(side_stream[i]);
  return out;
}

// Recomputed nodes use the same programs.
void Plan::adopt(std::vector<ChosenKernel>& nodes, Fitted fitted) {
  std::vector<ChosenKernel> all;
  for (const size_t i : fitted.nodes.origin) all.push_back(nodes[i]);
  nodes = std::move(all);
  graph_ = std::move(fitted.nodes.graph);
  memory_ = std::move(fitted.memory);
  recomputed_ = fitted.count;
}

void Plan::make_steps(std::vector<ChosenKernel> nodes) {
  for (ChosenKernel& n : nodes)
    steps_.push_back({n.choice.kernel, std::move(n.sig), std::move(n.program), {}});
  for (size_t i = 0; i < side_stream_.size(); ++i) steps_[i].side_stream = side_stream_[i];
  for (size_t i = 0; i < steps_.size(); ++i)
    if (memory_.in_place_already[i]) steps_[i].program.run = nullptr;
  log_notes();
  sources_.resize(graph_.sources().size());
}

size_t Plan::index_of(std::string_view name) const {
  const Source* s = graph_.find_source(name);
  require(s != nullptr, "plan: no source '", name, "'");
  return static_cast<size_t>(s - graph_.sources().data());
}

void Plan::bind(std::string_view name, const Tensor& tensor) {
  const Source* s = graph_.find_source(name);
  if (!s || s->kind == Source::Kind::input) {
    std::vector<std::string> known;
    for (const Source& other : graph_.sources())
      if (other.kind != Source::Kind::input) known.push_back(other.name);
    fail("bind: no parameter or state '", name, "'", suggestion(name, known));
  }
  require(tensor.defined() && tensor.type() == graph_.type(s->value), "bind: '", name,
          "' needs another type (", graph_.type(s->value), ")  got ", tensor.type());
  Tensor& place = sources_[index_of(name)];
  place = tensor;
  if (tensor.buffer()->on_host() && !context_.device->on_host()) {
    place = Tensor(tensor.type(), take(tensor.bytes()));
    context_.device->copy(tensor, place);
  }
  resolved_ = false;
}

void Plan::bind_as(const Plan& other) {
  for (const Source& s : graph_.sources())
    if (s.kind != Source::Kind::input) bind(s.name, other.bound(s.name));
}

void Plan::bind_missing() {
  refresh();
  make_inputs();
  bind_weights();
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Type& t = graph_.type(graph_.sources()[i].value);
    if (!sources_[i].defined()) sources_[i] = Tensor(t, take(t.bytes()));
  }
  resolved_ = false;
}

const Tensor& Plan::bound(std::string_view name) const { return sources_[index_of(name)]; }

Tensor Plan::fetch(std::string_view name) const {
  const Tensor& t = bound(name);
  if (t.buffer()->on_host()) return t;
  Tensor host(t.type());
  context_.device->copy(t, host);
  return host;
}

void* Plan::address(int32_t value) const {
  const Placement& p = memory_.values[static_cast<size_t>(value)];
  void* const base = p.source < 0 ? arena_->data() : sources_[static_cast<size_t>(p.source)].raw();
  return static_cast<char*>(base) + p.offset;
}

Tensor Plan::placed(int32_t value) const {
  const Placement& p = memory_.values[static_cast<size_t>(value)];
  const Type& t = graph_.type(value);
  if (p.source >= 0) return sources_[static_cast<size_t>(p.source)].at(t, p.offset);
  return Tensor(t, arena_, p.offset);
}

// Memory of the device. Where there is too little, the Error says what the plan needs.
std::shared_ptr<Buffer> Plan::take(int64_t bytes) const {
  try {
    return context_.allocate(bytes);
  } catch (const OutOfMemory&) {
    const int64_t free = context_.free_memory();
    if (bytes <= free) throw;
    fail_memory(bytes, free);
  }
}

void Plan::make_inputs() {
  if (inputs_made_) return;
  inputs_ = PlanInputs(graph_, [this](int64_t bytes) { return take(bytes); });
  inputs_made_ = true;
  for (size_t i = 0; i < sources_.size(); ++i)
    if (graph_.sources()[i].kind == Source::Kind::input) sources_[i] = inputs_.at(i);
}

void Plan::keep(std::string_view input, const Tensor& value) {
  make_inputs();
  inputs_.keep(input, value, *context_.device);
}

void Plan::resolve() {
  make_inputs();
  bind_weights();  // before the arena: preparing them takes memory that is free again then
  if (!arena_) arena_ = take_arena();
  for (size_t i = 0; i < sources_.size(); ++i) {
    const std::string& name = graph_.sources()[i].name;
    require(sources_[i].defined(), "plan: '", name, "' is not bound");
    // In the arena and the block of inputs all offsets are multiples of more.
    if (!sources_[i].buffer()->on_host())
      require_aligned(str("plan: '", name, "'"), sources_[i].raw(), Signature::alignment,
                      str("  ", sources_[i].type()));
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Node& n = graph_.nodes()[i];
    Call& c = steps_[i].call;
    c = {};
    for (const int32_t v : n.in) c.in.push_back(address(v));
    for (const int32_t v : n.out) c.out.push_back(address(v));
    c.workspace = static_cast<char*>(arena_->data()) + memory_.workspace[i];
  }
  waits_ = side_stream_waits(touched());
  resolved_ = true;
  captured_.reset();
}

std::vector<Touched> Plan::touched() const {
  const auto range = [](void* at, int64_t bytes) {
    const auto* begin = static_cast<const char*>(at);
    return Touched::Range{begin, begin + bytes};
  };
  const Communicator* const c = device().communicator();
  const bool occupied = c && c->occupies_device();  // while collectives run
  std::vector<Touched> all(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    if (!s.program.run) continue;
    const Node& n = graph_.nodes()[i];
    for (size_t k = 0; k < n.in.size(); ++k)
      all[i].reads.push_back(range(s.call.in[k], graph_.type(n.in[k]).bytes()));
    for (size_t k = 0; k < n.out.size(); ++k)
      all[i].writes.push_back(range(s.call.out[k], graph_.type(n.out[k]).bytes()));
    all[i].writes.push_back(range(s.call.workspace, s.program.workspace));
    all[i].side_stream = s.side_stream;
    all[i].alone = s.kernel->cooperative && occupied;
  }
  return all;
}

void Plan::run_steps() {
  Device& device = *context_.device;
  std::vector<std::unique_ptr<Event>> ends(steps_.size());
  std::array<const Event*, side_streams> last = {};
  const auto run = [&](size_t i) {
    for (const int32_t w : waits_[i]) device.wait(*ends[static_cast<size_t>(w)]);
    run_step(steps_[i]);
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (const auto side = steps_[i].side_stream) {
      ends[i] = device.on_side_stream(*side, [&run, i] { run(i); });
      last[static_cast<size_t>(*side)] = ends[i].get();
    } else {
      run(i);
    }
    if (watch_ && device.on_host())
      watch_(static_cast<double>(i + 1) / static_cast<double>(steps_.size()));
  }
  for (const Event* e : last)
    if (e) device.wait(*e);
}

void Plan::run_observed() {
  std::vector<std::unique_ptr<Event>> events;
  for (size_t i = 0; i <= steps_.size(); ++i) {
    events.push_back(context_.device->record_event());
    if (i < steps_.size()) run_step(steps_[i]);
  }
  for (size_t i = 0; i < steps_.size(); ++i) observer_(i, events[i + 1]->seconds_since(*events[i]));
}

void Plan::load(const NamedTensors& inputs) {
  refresh();
  bind_weights();
  if (!resolved_) resolve();
  inputs_.load(inputs, graph_, *context_.device);
}

void Plan::enqueue() {
  require(resolved_, "plan: nothing was loaded");
  run_steps();
  for (const NamedValue& c : memory_.copies) context_.device->copy(placed(c.value), bound(c.name));
}

NamedTensors Plan::results() {
  Device& device = *context_.device;
  NamedTensors out;
  std::vector<Device::Copied> copied;
  for (const NamedValue& o : graph_.outputs()) {
    copied.push_back({placed(o.value), Tensor(graph_.type(o.value))});
    out[o.name] = copied.back().to;
  }
  device.fetch(copied);  // before the copies: an output may be a source as it was
  for (const NamedValue& c : memory_.copies) device.copy(placed(c.value), bound(c.name));
  return out;
}

NamedTensors Plan::run(const NamedTensors& inputs) {
  load(inputs);
  if (!observer_ && !captured_) captured_ = context_.device->capture([this] { run_steps(); });
  if (observer_)
    run_observed();
  else if (captured_)
    captured_->run();
  else
    run_steps();
  return results();
}

void Plan::inspect(const NamedTensors& inputs, const Look& look) {
  load(inputs);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (!steps_[i].program.run) continue;
    run_step(steps_[i]);
    std::vector<Tensor> outputs;
    for (const int32_t v : graph_.nodes()[i].out) {
      outputs.emplace_back(graph_.type(v));
      context_.device->copy(placed(v), outputs.back());
    }
    look(i, outputs);
  }
  results();
}

}  // namespace ebb
