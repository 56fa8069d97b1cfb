#include "runtime/tune_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "core/device_lost.h"
#include "core/out_of_memory.h"

namespace ebb {
namespace {

constexpr int64_t alignment = 256;             // bytes, of every tensor
constexpr int64_t tile = int64_t{1} << 18;     // elements drawn; longer data repeat them
constexpr int64_t flushed = int64_t{1} << 28;  // bytes read and written before a measurement

int64_t aligned(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment;
}

// Adds the seconds of its life.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Never zeros, but for integers: zeros run faster than real data. Drawn once on the host, repeated
// by copies on the device.
Tensor random_data(DType dtype, int64_t bytes, Device& device) {
  const int64_t count = bytes / size_of(dtype);
  Tensor all({dtype, {count}}, device.allocate(bytes));
  if (!is_float(dtype) || count == 0) return all;
  Tensor drawn(DType::f32, {std::min(tile, count)});
  fill_uniform({.seed = 1}, 0, drawn.span<float>());
  for (float& v : drawn.span<float>()) v -= 0.5F;
  const Tensor first = drawn.to(dtype);
  device.copy(first, all.rows(0, first.numel()));
  for (int64_t done = first.numel(); done < count; done *= 2) {
    const int64_t next = std::min(done, count - done);
    device.copy(all.rows(0, next), all.rows(done, done + next));
  }
  return all;
}

// The memory of all contests: inputs lie behind each other in the random data of their dtypes.
class SharedMemory {
 public:
  SharedMemory(std::span<const Contest> contests, Device& device) {
    std::map<DType, int64_t> in;
    int64_t out = 0;
    for (const Contest& c : contests) {
      std::map<DType, int64_t> own;
      for (const Type& t : c.sig.in) own[t.dtype] += aligned(t.bytes());
      for (const auto& [dtype, bytes] : own) in[dtype] = std::max(in[dtype], bytes);
      int64_t results = 0;
      for (const Type& t : c.sig.out) results += aligned(t.bytes());
      out = std::max(out, results);
    }
    for (const auto& [dtype, bytes] : in) in_[dtype] = random_data(dtype, bytes, device);
    out_ = device.allocate(out);
  }

  Call call(const Signature& s) const {
    Call c;
    std::map<DType, int64_t> at;
    for (const Type& t : s.in)
      c.in.push_back(behind(in_.at(t.dtype).raw(), at[t.dtype], t.bytes()));
    int64_t end = 0;
    for (const Type& t : s.out) c.out.push_back(behind(out_->data(), end, t.bytes()));
    return c;
  }

 private:
  static void* behind(void* data, int64_t& at, int64_t bytes) {
    return static_cast<char*>(data) + std::exchange(at, at + aligned(bytes));
  }

  std::map<DType, Tensor> in_;
  std::shared_ptr<Buffer> out_;
};

struct Runner {
  Choice choice;
  Program program;
  double best = 1e30;  // seconds

  void run(const Call& call) const {
    if (program.run) program.run(call);
  }
};

bool faster(const Runner& a, const Runner& b) { return a.best < b.best; }

class Race {
 public:
  Race(std::span<const Contest> contests, Device& device, const RaceOptions& options,
       TuningCosts& costs)
      : contests_(contests),
        device_(device),
        options_(options),
        runners_(contests.size()),
        faults_(contests.size()) {
    {
      const Stopwatch watch(costs.prepare_s);
      for (size_t i = 0; i < contests.size(); ++i) prepare(i);
    }
    const Stopwatch watch(costs.compile_s);
    memory_.emplace(contests, device);
    workspace_ = device.allocate(std::max(workspace_bytes_, alignment));
    if (!device.on_host()) {
      const Type half{DType::u8, {flushed / 2}};
      from_ = Tensor(half, device.allocate(half.bytes()));
      to_ = Tensor(half, device.allocate(half.bytes()));
    }
    for (size_t i = 0; i < contests.size(); ++i) warm_up(i);
    device.synchronize();
  }

  Winner run(size_t contest) {
    poll();
    std::vector<Runner>& all = runners_[contest];
    const Call call = call_of(contest);
    constexpr double far = 1.6, unsure = 3e-6;  // of one run: times and seconds
    if (all.size() > 1) {
      measure(all, call, 1);
      drop(all, far, unsure);
      for (Runner& r : all) r.best = 1e30;
    }
    for (int i = 0; i < options_.rounds && (all.size() > 1 || i == 0); ++i) {
      measure(all, call, device_.on_host() ? 1 : 3);
      drop(all, options_.hopeless, 0);
    }
    const Runner& best = *std::min_element(all.begin(), all.end(), faster);
    return {best.choice, best.best * 1e6};
  }

 private:
  void poll() const {
    if (options_.poll) options_.poll();
  }

  void prepare(size_t contest) {
    poll();
    for (const Choice& c : contests_[contest].candidates) {
      Runner r{c};
      const bool fine = attempt(
          contest, [&] { r.program = c.kernel->prepare(contests_[contest].sig, c.tune, device_); });
      if (!fine) continue;
      workspace_bytes_ = std::max(workspace_bytes_, r.program.workspace);
      runners_[contest].push_back(std::move(r));
    }
  }

  // The first run waits for the compiler and loads code.
  void warm_up(size_t contest) {
    poll();
    const Call call = call_of(contest);
    std::erase_if(runners_[contest],
                  [&](const Runner& r) { return !attempt(contest, [&] { r.run(call); }); });
    require(!runners_[contest].empty(), "tuner: no candidate runs (", faults_[contest], ")  ",
            contests_[contest].sig.text());
  }

  bool attempt(size_t contest, auto&& work) {
    try {
      work();
      return true;
    } catch (const OutOfMemory&) {
      throw;  // no fault of the candidate's
    } catch (const DeviceLost&) {
      throw;  // no other one can be measured
    } catch (const Error& e) {
      if (faults_[contest].empty()) faults_[contest] = e.what();
      return false;
    }
  }

  Call call_of(size_t contest) const {
    Call c = memory_->call(contests_[contest].sig);
    c.workspace = workspace_->data();
    return c;
  }

  // One measurement of each, the first of its `runs` with cold caches. The host waits only for the
  // last: while a device clears its cache, the runs behind that are enqueued.
  void measure(std::vector<Runner>& all, const Call& call, int runs) {
    std::vector<std::pair<std::unique_ptr<Event>, std::unique_ptr<Event>>> events;
    for (const Runner& r : all) {
      if (from_.defined()) device_.copy(from_, to_);
      auto before = device_.record_event();
      for (int i = 0; i < runs; ++i) r.run(call);
      events.emplace_back(std::move(before), device_.record_event());
    }
    for (size_t i = 0; i < all.size(); ++i)
      all[i].best = std::min(all[i].best, events[i].second->seconds_since(*events[i].first) / runs);
  }

  static void drop(std::vector<Runner>& all, double times, double more) {
    const double best = std::min_element(all.begin(), all.end(), faster)->best;
    std::erase_if(all, [&](const Runner& r) { return r.best > times * best + more; });
  }

  std::span<const Contest> contests_;
  Device& device_;
  const RaceOptions& options_;
  std::vector<std::vector<Runner>> runners_;  // by contest
  std::vector<std::string> faults_;           // the first of each
  std::optional<SharedMemory> memory_;
  int64_t workspace_bytes_ = 0;
  std::shared_ptr<Buffer> workspace_;
  Tensor from_, to_;
};

}  // namespace

std::vector<Winner> race(std::span<const Contest> contests, Device& device,
                         const RaceOptions& options, TuningCosts& costs) {
  std::vector<Winner> winners;
  Race all(contests, device, options, costs);
  const Stopwatch watch(costs.measure_s);
  for (size_t i = 0; i < contests.size(); ++i) {
    winners.push_back(all.run(i));
    costs.candidates += static_cast<int64_t>(contests[i].candidates.size());
  }
  costs.contests += static_cast<int64_t>(contests.size());
  return winners;
}

}  // namespace ebb
