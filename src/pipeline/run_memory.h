// RunMemory: how much of the device's memory a run of TextToImage takes at most, and what it does
// to keep within a limit. It is decided once, before anything runs: docs/text-to-image.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/plan.h"

namespace ebb {

// In the order in which they are taken, each only where it makes a stage smaller that is too large.
struct MemoryPolicy {
  bool encoders_leave = false;   // after use
  bool denoiser_leaves = false;  // before the last batch is decoded
  bool one_by_one = false;       // one component is on the device at a time
  bool together = true;       // the branches of guidance are one batch; false: one after the other
  int64_t decoder_tile = 0;   // side in latents; 0: whole images
  int64_t upscaler_tile = 0;  // side in pixels; 0: the largest
};

struct StageMemory {
  std::string name;
  int64_t bytes = 0;    // on the device at once, at most
  int64_t weights = 0;  // of these those of weights
};

struct RunMemory {
  MemoryPolicy policy;
  std::vector<StageMemory> stages;

  int64_t peak() const;
};
// "6.9 GB: driver 0.5, text 1.7, sampling 5.6, decoding 6.9 (text encoders leave after use)".
std::string text_of(const RunMemory& memory);

// What lies on the device while plans come and go.
class DeviceModel {
 public:
  // `held`: bytes that are there, and stay.
  explicit DeviceModel(int64_t held) : now_(held) {}

  void begin(std::string_view stage);
  void take(const PlanNeeds& plan);
  // Takes back what take() took, but weights that another plan has.
  void leave(const PlanNeeds& plan);
  std::vector<StageMemory> stages() && { return std::move(stages_); }

 private:
  void reach(int64_t bytes);
  void add_weight(int64_t bytes);

  struct Weight {
    int64_t bytes = 0, plans = 0;
  };
  int64_t now_ = 0, weight_bytes_ = 0;  // of these those of weights
  std::map<std::pair<const void*, std::string>, Weight> weights_;
  std::vector<StageMemory> stages_;
};

// The measures that a run may take: the next one beyond a policy, and those after it. It is asked
// for what the stages take with it.
struct MemoryChoice {
  MemoryPolicy first;                   // what the caller wants in any case
  bool guided = false;                  // there are branches
  int64_t batch = 1;                    // pictures at a time
  std::vector<int64_t> decoder_tiles;   // sides of tiles smaller than the image, the largest first
  std::vector<int64_t> upscaler_tiles;  // likewise
  std::function<std::vector<StageMemory>(const MemoryPolicy&)> stages;
  // Other dtypes that could be chosen, and what a run takes at most in each; may be none. Asked for
  // where nothing else keeps within the limit.
  std::function<std::vector<std::pair<std::string, int64_t>>(int64_t limit)> dtypes = {};
  // "--batch 2", "--size 384x384": those within the limit, and what a run takes at most then; may
  // be none. Asked likewise, where the largest stage is not its weights alone.
  std::function<std::vector<std::pair<std::string, int64_t>>(int64_t limit)> fitting = {};
};
// The first policy within `limit` bytes, or the smallest that there is.
RunMemory smallest_memory(const MemoryChoice& choice, int64_t limit);
// The same. Throws OutOfMemory where none is, with the numbers and
// what would make the largest stage smaller; `whose`: "--memory", or what else the limit is.
RunMemory choose_memory(const MemoryChoice& choice, int64_t limit, std::string_view whose);

// So many at a time that batches of at most `most` are as equal as can be.
int64_t equal_batch(int64_t pictures, int64_t most);

// The most pictures at a time, fewer than `too_many`, of which `bytes` lie within the limit; those
// of one do. What a plan takes is nearly a straight line, so few numbers are tried.
int64_t largest_batch(int64_t too_many, int64_t limit,
                      const std::function<int64_t(int64_t pictures)>& bytes);

}  // namespace ebb
