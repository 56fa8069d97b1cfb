#include "backend/cuda/device/connect.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backend/cuda/device/error.h"
#include "backend/cuda/nccl/communicator.h"
#include "backend/cuda/peers/link.h"

namespace ebb::cuda {
namespace {

// What all ranks ask for.
std::string asked_for(RankGroup& group) {
  const char* const set = std::getenv("EBB_COLLECTIVES");
  const std::vector<std::string> all = group.gather(set ? set : "");
  for (size_t r = 0; r < all.size(); ++r)
    require(all[r] == all[0], "ranks: EBB_COLLECTIVES must be the same on all ranks (\"", all[0],
            "\" on rank 0, \"", all[r], "\" on rank ", r, ")");
  const std::string& asked = all[0];
  require(asked.empty() || asked == "copies" || asked == "nccl",
          "ranks: EBB_COLLECTIVES must be \"copies\" or \"nccl\", not \"", asked, "\"");
  return asked;
}

// What this rank gets of a collective of numbers that differ by rank. It also connects what NCCL
// connects at its first use, which no graph can record.
struct Trial {
  // `elements` of an operand, of which each rank takes as many of every other.
  Trial(CudaDevice& d, Communicator& c, int64_t elements)
      : device(d),
        communicator(c),
        ranks(c.ranks()),
        count(elements),
        memory(d.allocate(2 * ranks * count * static_cast<int64_t>(sizeof(float)))) {}

  // Runs `collective` on operands of `in` times `count` elements that are i mod 1000 + rank.
  std::vector<float> run(void (Communicator::*collective)(std::span<const Communicator::Operand>),
                         int64_t in, int64_t out) {
    std::vector<float> host(static_cast<size_t>(in * count));
    for (size_t i = 0; i < host.size(); ++i)
      host[i] = static_cast<float>(i % 1000) + static_cast<float>(communicator.rank());
    auto* const from = static_cast<float*>(memory->data());
    float* const to = from + ranks * count;
    check(cudaMemcpyAsync(from, host.data(), host.size() * sizeof(float), cudaMemcpyDefault,
                          device.stream()),
          "trying a collective");
    const Communicator::Operand operand{.in = from, .out = to, .count = count};
    (communicator.*collective)({&operand, 1});
    host.resize(static_cast<size_t>(out * count));
    check(cudaMemcpyAsync(host.data(), to, host.size() * sizeof(float), cudaMemcpyDefault,
                          device.stream()),
          "trying a collective");
    device.synchronize();
    return host;
  }

  // The first collective that is wrong, and how; "": none. All are run on every rank.
  std::string wrong() {
    const auto own = [](int64_t i, int64_t rank) {
      return static_cast<float>(i % 1000) + static_cast<float>(rank);
    };
    const auto summed = [&](int64_t i) {
      const auto n = static_cast<float>(ranks);
      return n * own(i, 0) + n * (n - 1) / 2;
    };
    std::string out;
    const auto compare = [&](const char* name, const std::vector<float>& got, const auto& is) {
      for (size_t i = 0; out.empty() && i < got.size(); ++i)
        if (const float want = is(static_cast<int64_t>(i)); got[i] != want)
          out = str(name, " gives ", got[i], " for ", want, " as element ", i);
    };
    const int64_t rank = communicator.rank();
    compare("all_reduce", run(&Communicator::all_reduce, 1, 1), summed);
    compare("reduce_scatter", run(&Communicator::reduce_scatter, ranks, 1),
            [&](int64_t i) { return summed(rank * count + i); });
    compare("all_gather", run(&Communicator::all_gather, 1, ranks),
            [&](int64_t i) { return own(i % count, i / count); });
    compare("broadcast", run(&Communicator::broadcast, 1, 1), [&](int64_t i) { return own(i, 0); });
    return out;
  }

  CudaDevice& device;
  Communicator& communicator;
  int64_t ranks, count;
  std::shared_ptr<Buffer> memory;
};

// The words of the first rank that got a wrong result.
std::string fault_of(RankGroup& group, CudaDevice& device, Communicator& c, int64_t elements) {
  const std::string wrong = Trial(device, c, elements).wrong();
  const std::vector<std::string> all = group.gather(wrong);
  for (size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty()) return str(c.description(), ": ", all[r], " on rank ", r);
  return "";
}

// Of an operand that a rank gives: of three ranks and more, several rounds of copies. NCCL's ranks
// may be a thousand, and each takes memory for all.
constexpr int64_t elements_of_copies = int64_t{3} << 20;
int64_t elements_of_nccl(int64_t ranks) { return std::max<int64_t>(1, elements_of_copies / ranks); }

const nccl::Library& library(const std::string& obstacle) {
  try {
    return nccl::library();
  } catch (const Error& e) {
    fail(e.what(), obstacle.empty() ? "" : str("; nor do GPUs exchange by copies: ", obstacle));
  }
}

}  // namespace

std::shared_ptr<Communicator> connect(RankGroup& group, CudaDevice& device,
                                      const std::string& bus_id) {
  const std::string asked = asked_for(group);
  std::string obstacle;
  if (asked != "nccl") {
    auto linked = peers::link(group, device, bus_id);
    obstacle = linked.obstacle;
    if (linked.link) {
      auto copies = peers::communicator(std::move(linked.link));
      obstacle = fault_of(group, device, *copies, elements_of_copies);
      if (obstacle.empty()) return copies;
    }
    require(asked != "copies", "ranks: GPUs cannot exchange by copies, as EBB_COLLECTIVES asks (",
            obstacle, ")");
  }
  std::shared_ptr<Communicator> nccl =
      nccl::communicator(library(obstacle), group, [&device] { return device.stream(); });
  const std::string fault = fault_of(group, device, *nccl, elements_of_nccl(group.ranks()));
  require(fault.empty(), "ranks: ", fault);
  return nccl;
}

}  // namespace ebb::cuda
