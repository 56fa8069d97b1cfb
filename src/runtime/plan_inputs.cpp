#include "runtime/plan_inputs.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/names.h"

namespace ebb {
namespace {

constexpr int64_t alignment = 64;  // of an input in the block

}  // namespace

PlanInputs::PlanInputs(const Graph& g, const Take& take) {
  int64_t bytes = 0;
  for (size_t i = 0; i < g.sources().size(); ++i) {
    const Source& s = g.sources()[i];
    if (s.kind != Source::Kind::input) continue;
    const int64_t size = g.type(s.value).bytes();
    Input input{.name = s.name, .source = i};
    if (is_small_input(g.type(s.value))) {
      input.offset = bytes;
      bytes += (std::max<int64_t>(size, 1) + alignment - 1) / alignment * alignment;
    }
    inputs_.push_back(std::move(input));
  }
  const Type type{DType::u8, {bytes}};
  if (bytes > 0) {
    block_ = Tensor(type, take(bytes));
    host_ = block_.buffer()->on_host() ? block_ : Tensor(type);
  }
  for (Input& input : inputs_) {
    const Type& t = g.type(g.sources()[input.source].value);
    input.memory =
        input.offset < 0 ? Tensor(t, take(t.bytes())) : Tensor(t, block_.buffer(), input.offset);
  }
}

Tensor PlanInputs::at(size_t source) const {
  for (const Input& input : inputs_)
    if (input.source == source) return input.memory;
  return {};
}

bool PlanInputs::keeps() const { return std::ranges::any_of(inputs_, &Input::kept); }

void PlanInputs::keep_those_of(const PlanInputs& other, Device& device) {
  for (const Input& input : other.inputs_)
    if (input.kept) keep(input.name, input.memory, device);
}

void PlanInputs::put(const Input& input, const Tensor& value, Device& device) {
  require(value.type() == input.memory.type(), "run: input '", input.name, "' needs another type (",
          input.memory.type(), ")  got ", value.type());
  if (input.offset < 0) return device.copy(value, input.memory);
  const Tensor to(value.type(), host_.buffer(), input.offset);
  if (!value.buffer()->on_host()) return device.copy(value, to);
  std::memcpy(to.raw(), value.raw(), static_cast<size_t>(value.bytes()));
}

void PlanInputs::load(const NamedTensors& inputs, const Graph& g, Device& device) {
  size_t given = 0;
  for (Input& input : inputs_) {
    const auto it = inputs.find(input.name);
    require(it != inputs.end() || input.kept, "run: input '", input.name, "' is missing  ",
            input.memory.type());
    if (it == inputs.end()) continue;
    put(input, it->second, device);
    input.kept = false;
    ++given;
  }
  for (const auto& [name, tensor] : inputs)
    require(given == inputs.size() || g.find_source(name), "run: the graph has no input '", name,
            "'");
  if (block_.defined() && !block_.buffer()->on_host()) device.copy(host_, block_);
}

void PlanInputs::keep(std::string_view name, const Tensor& value, Device& device) {
  std::vector<std::string> known;
  for (Input& input : inputs_) {
    known.push_back(input.name);
    if (input.name != name) continue;
    put(input, value, device);
    input.kept = true;
    return;
  }
  fail("run: the graph has no input '", name, "'", suggestion(name, known));
}

}  // namespace ebb
