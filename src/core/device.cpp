#include "core/device.h"

#include <chrono>

#include "base/error.h"
#include "core/chunks.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

// For a device that has finished its work when a call returns.
class HostEvent final : public Event {
 public:
  double seconds_since(const Event& earlier) const override {
    return std::chrono::duration<double>(at_ - static_cast<const HostEvent&>(earlier).at_).count();
  }

 private:
  Clock::time_point at_ = Clock::now();
};

}  // namespace

void Device::fetch(std::span<const Copied> results) {
  for (const Copied& r : results) copy(r.from, r.to);
}

// For memory that the host can write to.
void Device::fill(const Tensor& to, const ReadBytes& read) {
  constexpr int64_t chunk = int64_t{1} << 20;
  auto* const data = static_cast<uint8_t*>(to.raw());
  in_chunks(to.bytes(), chunk, [&](int64_t at, int64_t count) {
    read(at, {data + at, static_cast<size_t>(count)});
  });
}

void Device::join(RankGroup&) {
  fail("device: a ", backend(), " device cannot compute together with others");
}

std::unique_ptr<Event> Device::record_event() { return std::make_unique<HostEvent>(); }

namespace {

class DescribedRanks final : public Communicator {
 public:
  explicit DescribedRanks(int64_t ranks) : ranks_(ranks) {}
  int64_t rank() const override { return 0; }
  int64_t ranks() const override { return ranks_; }
  std::string description() const override { return "no link"; }
  void all_reduce(std::span<const Operand>) override { refuse(); }
  void reduce_scatter(std::span<const Operand>) override { refuse(); }
  void all_gather(std::span<const Operand>) override { refuse(); }
  void broadcast(std::span<const Operand>) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { fail("ranks: they are only described, nothing can run"); }
  int64_t ranks_;
};

}  // namespace

void Device::describe_ranks(int64_t ranks) {
  communicator_ = std::make_shared<DescribedRanks>(ranks);
}

}  // namespace ebb
