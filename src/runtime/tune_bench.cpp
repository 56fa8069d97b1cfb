#include "runtime/tune_bench.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/random.h"

namespace ebb {
namespace {

constexpr int64_t tile = int64_t{1} << 18;     // elements drawn; larger tensors repeat them
constexpr int64_t flushed = int64_t{1} << 28;  // bytes written between rounds

// Never zeros: they run faster than real data.
Tensor random_tensor(const Type& type, uint64_t seed, Device& device) {
  Tensor t(type, device.allocate(std::max<int64_t>(type.bytes(), 1)));
  if (!is_float(type.dtype) || type.shape.numel() == 0) return t;
  Tensor drawn(DType::f32, {std::min(tile, type.shape.numel())});
  fill_uniform({.seed = seed}, 0, drawn.span<float>());
  for (float& v : drawn.span<float>()) v -= 0.5F;
  drawn = drawn.to(type.dtype);
  for (int64_t at = 0; at < t.numel(); at += tile) {
    const int64_t count = std::min(tile, t.numel() - at);
    device.copy(drawn.rows(0, count),
                Tensor({type.dtype, {count}}, t.buffer(), at * size_of(type.dtype)));
  }
  return t;
}

struct Runner {
  Choice choice;
  Program program;
  Call call;
  Tensor workspace;
  std::unique_ptr<CapturedGraph> captured;
  double best = 1e30;  // seconds
};

constexpr int runs = 3;  // per captured graph: the first with cold caches

// Empty, or why it does not run here.
std::string start(Runner& r, const Signature& sig, const Call& call, Device& device) {
  try {
    r.program = r.choice.kernel->prepare(sig, r.choice.tune, device);
    const int64_t bytes = std::max<int64_t>(r.program.workspace, 1);
    r.workspace = Tensor({DType::u8, {bytes}}, device.allocate(bytes));
    r.call = call;
    r.call.workspace = r.workspace.raw();
    if (!r.program.run) return "";
    r.program.run(r.call);  // loads code and memory
    device.synchronize();
    r.captured = device.capture([&] {
      for (int i = 0; i < runs; ++i) r.program.run(r.call);
    });
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

double time_once(const Runner& r, Device& device, const Tensor& from, const Tensor& to) {
  if (!r.program.run) return 0;
  if (from.defined()) device.copy(from, to);
  const auto before = device.record_event();
  if (r.captured)
    r.captured->run();
  else
    r.program.run(r.call);
  return device.record_event()->seconds_since(*before) / (r.captured ? runs : 1);
}

}  // namespace

Winner race(const std::vector<Choice>& candidates, const Signature& sig, Device& device,
            const RaceOptions& options) {
  std::vector<Tensor> memory;
  Call call;
  for (size_t i = 0; i < sig.in.size(); ++i)
    call.in.push_back(memory.emplace_back(random_tensor(sig.in[i], i + 1, device)).raw());
  for (const Type& t : sig.out)
    call.out.push_back(memory.emplace_back(t, device.allocate(t.bytes())).raw());
  std::vector<Runner> runners;
  std::string first_fault;
  for (const Choice& c : candidates) {
    Runner r{.choice = c};
    const std::string fault = start(r, sig, call, device);
    if (fault.empty())
      runners.push_back(std::move(r));
    else if (first_fault.empty())
      first_fault = fault;
  }
  require(!runners.empty(), "tuner: no candidate runs (", first_fault, ")  ", sig.text());
  Tensor from, to;
  if (!device.on_host()) {
    const Type half{DType::u8, {flushed / 2}};
    from = Tensor(half, device.allocate(half.bytes()));
    to = Tensor(half, device.allocate(half.bytes()));
  }
  const auto faster = [](const Runner& a, const Runner& b) { return a.best < b.best; };
  for (int i = 0; i < options.rounds && runners.size() > 1; ++i) {
    for (Runner& r : runners) r.best = std::min(r.best, time_once(r, device, from, to));
    const double best = std::min_element(runners.begin(), runners.end(), faster)->best;
    std::erase_if(runners, [&](const Runner& r) { return r.best > options.hopeless * best; });
  }
  const Runner& winner = *std::min_element(runners.begin(), runners.end(), faster);
  return {winner.choice, winner.best * 1e6};
}

}  // namespace ebb
