#include "ops/prim/collective.h"

#include <algorithm>

#include "base/error.h"

namespace ebb::ops {

std::vector<Type> infer_collective(const Signature& s, int64_t scale, int64_t share) {
  require(!s.in.empty() && s.as<Collective>().ranks >= 1, s.op->name,
          ": needs an operand and at least one rank (", s.in.size(), " operands, ",
          s.as<Collective>().ranks, " ranks)  at ", s.at);
  std::vector<Type> out = s.in;
  for (Type& t : out) {
    require(scale == share || (t.shape.rank() > 0 && t.shape[0] % share == 0), s.op->name,
            ": needs a leading dim that is a multiple of the ranks (", share, ")  got ", t, "  at ",
            s.at);
    if (scale != share) t.shape[0] = t.shape[0] / share * scale;
  }
  return out;
}

namespace {

std::vector<Example> examples() {
  return {{.label = "one_rank", .attrs = Collective{}, .in = {{DType::f32, {6, 5}}}},
          {.label = "two_operands",
           .attrs = Collective{},
           .in = {{DType::f32, {7}}, {DType::bf16, {4, 3}}}}};
}

}  // namespace

OpDef collective_op(std::string_view name, decltype(OpDef::infer) infer, decltype(OpDef::vjp) vjp,
                    decltype(OpDef::reference) reference) {
  return {.name = name,
          .attrs = +[] { return Attrs(Collective{}); },
          .infer = infer,
          .vjp = vjp,
          .reference = reference,
          .collective = true,
          .sends = 1,
          .examples = examples};
}

bool can_run_collective(const Signature& s, const Device& device) {
  const int64_t ranks = s.as<Collective>().ranks;
  return ranks == 1 || (device.communicator() && device.communicator()->ranks() == ranks);
}

namespace {

// A copy to itself, of another count in `from`, is none.
void copy_operands(const Signature& s, const Call& c, Device& device) {
  struct Place final : Buffer {
    Place(void* data, int64_t bytes, bool on_host) : at(data), size(bytes), host(on_host) {}
    void* data() const override { return at; }
    int64_t bytes() const override { return size; }
    bool on_host() const override { return host; }
    void* at;
    int64_t size;
    bool host;
  };
  const auto tensor = [&](const Type& t, void* at) {
    return Tensor(t, std::make_shared<Place>(at, t.bytes(), device.on_host()), 0);
  };
  for (size_t i = 0; i < s.in.size(); ++i)
    if (c.in[i] != c.out[i]) device.copy(tensor(s.in[i], c.in[i]), tensor(s.out[i], c.out[i]));
}

}  // namespace

Program prepare_collective(const Signature& s, Device& device, CollectiveMethod method) {
  if (s.as<Collective>().ranks == 1)
    return {.run = [s, &device](const Call& c) { copy_operands(s, c, device); }};
  std::vector<Communicator::Operand> operands;
  for (size_t i = 0; i < s.in.size(); ++i)
    operands.push_back(
        {.count = std::min(s.in[i].shape.numel(), s.out[i].shape.numel()), .dtype = s.in[i].dtype});
  return {.run = [operands, method, &device](const Call& c) mutable {
    for (size_t i = 0; i < operands.size(); ++i) {
      operands[i].in = c.in[i];
      operands[i].out = c.out[i];
    }
    (device.communicator()->*method)(operands);
  }};
}

}  // namespace ebb::ops
