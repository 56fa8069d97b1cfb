#include "pipeline/run_memory.h"

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <sstream>

#include "core/out_of_memory.h"

namespace ebb {
namespace {

// Small runs are told in MB.
std::string size_text(int64_t bytes) {
  std::ostringstream out;
  const bool large = bytes >= 1'000'000'000;
  out << std::fixed << std::setprecision(2) << static_cast<double>(bytes) / (large ? 1e9 : 1e6)
      << (large ? " GB" : " MB");
  return out.str();
}

// What is needed, rounded up: it is enough where it is given as --memory.
std::string need_text(int64_t bytes) {
  const int64_t digit = bytes >= 1'000'000'000 ? 10'000'000 : 10'000;
  return size_text((bytes + digit - 1) / digit * digit);
}

std::string stages_text(const std::vector<StageMemory>& stages) {
  std::string out;
  for (const StageMemory& s : stages)
    out += str(out.empty() ? "" : ", ", s.name, ' ', need_text(s.bytes));
  return out;
}

std::string policy_text(const MemoryPolicy& p) {
  std::string out;
  const auto add = [&](const std::string& what) { out += str(out.empty() ? "" : ", ", what); };
  if (p.one_by_one)
    add("one component at a time");
  else if (p.encoders_leave)
    add(p.denoiser_leaves ? "text encoders and denoiser leave after use"
                          : "text encoders leave after use");
  if (!p.together) add("guidance one branch after the other");
  if (p.decoder_tile > 0) add(str("decoded in tiles of ", p.decoder_tile, " latents"));
  if (p.upscaler_tile > 0) add(str("enlarged in tiles of ", p.upscaler_tile, " pixels"));
  return out;
}

// The first of the largest ones.
StageMemory largest(const std::vector<StageMemory>& stages) {
  StageMemory out;
  for (const StageMemory& s : stages)
    if (s.bytes > out.bytes) out = s;
  return out;
}

// "bf16 (then 1.20 GB) or f16 (then 1.20 GB)": those in which it takes less.
std::string smaller_dtypes(const MemoryChoice& c, int64_t bytes, int64_t limit) {
  std::string out;
  if (!c.dtypes) return out;
  for (const auto& [name, taken] : c.dtypes(limit))
    if (taken < bytes)
      out += str(out.empty() ? "--dtype " : " or ", name, " (then ", need_text(taken), ")");
  return out;
}

// "--batch 1 (then 3.10 GB) or --size 384x384 (then 2.90 GB)".
std::string fitting_flags(const MemoryChoice& c, int64_t limit) {
  std::string out;
  for (const auto& [flag, taken] : c.fitting(limit))
    out += str(out.empty() ? "" : " or ", flag, " (then ", need_text(taken), ")");
  return out;
}

// What takes less in the largest stage.
std::string advice(const MemoryChoice& c, const StageMemory& most, int64_t limit) {
  std::string flags;
  if (most.name != "text" && most.weights < limit) {
    if (c.fitting)
      flags = fitting_flags(c, limit);
    else
      flags = most.name == "sampling" && c.batch > 1 ? "a smaller --size or --batch"
                                                     : "a smaller --size";
  }
  if (const std::string dtypes = smaller_dtypes(c, most.bytes, limit); !dtypes.empty())
    flags += str(flags.empty() ? "" : ", or by ", dtypes);
  return str(
      "most is for ", most.name, ", of which ", need_text(most.weights), " for weights; ",
      flags.empty() ? "no flag makes that less, but a smaller model does" : "less by " + flags);
}

// Whether a stage is smaller in `b` that is too large in `a`.
bool helps(const std::vector<StageMemory>& a, const std::vector<StageMemory>& b, int64_t limit) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].bytes > limit && b[i].bytes < a[i].bytes) return true;
  return false;
}

// One policy after the other, each with a measure more.
std::vector<std::function<void(MemoryPolicy&)>> measures_of(const MemoryChoice& c) {
  std::vector<std::function<void(MemoryPolicy&)>> out;
  if (!c.first.encoders_leave) out.emplace_back([](MemoryPolicy& p) { p.encoders_leave = true; });
  out.emplace_back([](MemoryPolicy& p) { p.encoders_leave = p.one_by_one = true; });
  if (c.guided) out.emplace_back([](MemoryPolicy& p) { p.together = false; });
  for (const int64_t side : c.decoder_tiles)
    out.emplace_back([side](MemoryPolicy& p) { p.decoder_tile = side; });
  for (const int64_t side : c.upscaler_tiles)
    out.emplace_back([side](MemoryPolicy& p) { p.upscaler_tile = side; });
  return out;
}

}  // namespace

int64_t RunMemory::peak() const { return largest(stages).bytes; }

std::string text_of(const RunMemory& memory) {
  const std::string measures = policy_text(memory.policy);
  return str(need_text(memory.peak()), ": ", stages_text(memory.stages),
             measures.empty() ? "" : " (" + measures + ")");
}

void DeviceModel::begin(std::string_view stage) {
  const auto known = std::ranges::find(stages_, stage, &StageMemory::name);
  StageMemory now{std::string(stage), now_, weight_bytes_};
  if (known != stages_.end()) {
    if (known->bytes > now.bytes) now = *known;
    stages_.erase(known);
  }
  stages_.push_back(std::move(now));
}

void DeviceModel::reach(int64_t bytes) {
  StageMemory& stage = stages_.back();
  if (bytes > stage.bytes) stage.bytes = bytes, stage.weights = weight_bytes_;
}

void DeviceModel::add_weight(int64_t bytes) { now_ += bytes, weight_bytes_ += bytes; }

void DeviceModel::take(const PlanNeeds& plan) {
  now_ += plan.own;
  bool prepares = false;
  for (const auto& [key, bytes] : plan.weights.values) {
    Weight& w = weights_[{plan.weights.store, key}];
    if (w.plans++ > 0) continue;
    w.bytes = bytes;
    add_weight(bytes);
    prepares = true;
  }
  if (prepares) reach(now_ + plan.weights.working);
  now_ += plan.arena;
  reach(now_);
}

void DeviceModel::leave(const PlanNeeds& plan) {
  now_ -= plan.own + plan.arena;
  for (const auto& [key, bytes] : plan.weights.values) {
    const auto w = weights_.find({plan.weights.store, key});
    if (w == weights_.end() || --w->second.plans > 0) continue;
    add_weight(-w->second.bytes);
    weights_.erase(w);
  }
}

int64_t equal_batch(int64_t pictures, int64_t most) {
  const int64_t batches = (pictures + most - 1) / most;
  return (pictures + batches - 1) / batches;
}

int64_t largest_batch(int64_t too_many, int64_t limit,
                      const std::function<int64_t(int64_t pictures)>& bytes) {
  int64_t fits = 1, exceeds = too_many;
  if (exceeds - fits <= 1) return fits;
  auto low = static_cast<double>(bytes(fits)), high = static_cast<double>(bytes(exceeds));
  int same = 0;  // how often the same end has moved: > 0 the lower one, < 0 the upper one
  bool straight = high > low;
  while (exceeds - fits > 1) {
    // A straight line misses a peak with a bend from one side only: then the middle.
    straight = straight && std::abs(same) < 2;
    const double share = straight ? (static_cast<double>(limit) - low) / (high - low) : 0.5;
    const auto guess = fits + static_cast<int64_t>(share * static_cast<double>(exceeds - fits));
    const int64_t next = std::clamp(guess, fits + 1, exceeds - 1), taken = bytes(next);
    if (taken <= limit)
      fits = next, low = static_cast<double>(taken), same = std::max(same, 0) + 1;
    else
      exceeds = next, high = static_cast<double>(taken), same = std::min(same, 0) - 1;
  }
  return fits;
}

RunMemory smallest_memory(const MemoryChoice& c, int64_t limit) {
  RunMemory best{.policy = c.first, .stages = c.stages(c.first)};
  for (const auto& measure : measures_of(c)) {
    if (best.peak() <= limit) break;
    RunMemory next{.policy = best.policy, .stages = {}};
    measure(next.policy);
    next.stages = c.stages(next.policy);
    if (helps(best.stages, next.stages, limit)) best = std::move(next);
  }
  return best;
}

RunMemory choose_memory(const MemoryChoice& c, int64_t limit, std::string_view whose) {
  RunMemory best = smallest_memory(c, limit);
  if (best.peak() <= limit) return best;
  throw OutOfMemory(str("generate: out of memory: the run takes ", text_of(best), ", and ", whose,
                        " is ", size_text(limit), ": ", advice(c, largest(best.stages), limit)));
}

}  // namespace ebb
