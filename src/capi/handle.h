// What the handles of the C API hold, and how exceptions become statuses.
#pragma once

#include <ebb/samplers.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "diffusion/levels/discretisation.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/run.h"

namespace ebb::capi {

// How a network was trained.
struct NetworkOptions {
  LevelOptions levels;
  std::string prediction = "usual";
  double sigma_data = 0.5;
  void fields(auto&& f) {
    levels.fields(f);
    f("prediction", prediction,
      "eps, v, x0, edm, edm_v, ve, rflow, flow or dataward; usual: what goes with the levels");
    f("sigma_data", sigma_data, "edm, edm_v: standard deviation of the data");
  }
  void check() const;
};

// Of a list of levels, beside the schedule's own options.
struct ListOptions {
  double sigma_min = 0, sigma_max = 0, strength = 1;
  bool exact_steps = false;
  void fields(auto&& f) {
    f("sigma_min", sigma_min, "smallest level above 0; 0: the usual one");
    f("sigma_max", sigma_max, "first level; 0: the usual one");
    f("strength", strength, "how much of the noise comes back, by the dialect's rule; 1: all");
    f("exact_steps", exact_steps, "a1111: as many steps as asked, whatever the strength");
  }
};

struct ScheduleChoice {
  std::string name;  // "": levels were given
  int64_t steps = 0;
  OptionTexts options = {}, list = {};
};

struct NoiseChoice {
  std::string source;  // "": the dialect's
  OptionTexts options = {};
  uint64_t seed = 0;
  int64_t first_image = 0;
  std::vector<uint64_t> seeds = {};
  std::vector<int64_t> shape = {};  // [H, W, C]; empty: an image is a row of numbers
  bool channels_first = false;      // of the caller's buffers
  ebb_noise callback = nullptr;
  void* user = nullptr;
};

struct Batch {
  size_t images, elements;
  size_t size() const { return images * elements; }
};

// The numbers of a run: of the source, or of the caller's function.
Noise noise_of(const ebb_sampler& s, const Batch& batch);

// ---- errors --------------------------------------------------------------------------------

std::string& last_error();  // of this thread
std::string& answer();      // of this thread, of functions that return a text

// Runs `work`; what it throws becomes a status.
template <class Work>
ebb_status guarded(const Work& work) noexcept {
  try {
    last_error().clear();
    work();
    return EBB_OK;
  } catch (const Cancelled& e) {
    last_error() = e.what();
    return EBB_CANCELLED;
  } catch (const std::exception& e) {
    last_error() = e.what();
  } catch (...) {
    last_error() = "unknown failure";
  }
  return EBB_ERROR;
}

inline void require_given(const void* pointer, const char* what) {
  require(pointer != nullptr, "sampler: ", what, " must not be NULL");
}

// "option=default  what it does", a line each.
std::string lines(const std::vector<Option>& options);

template <class Pointer>
const char* name_at(const std::vector<Pointer>& all, size_t index) {
  return index < all.size() ? all[index]->name.c_str() : nullptr;
}

}  // namespace ebb::capi

struct ebb_sampler {
  std::string name;
  // options and dialect as set; sigmas, space, table and round_sigma by settle().
  ebb::SampleCall call = {};
  std::optional<ebb::Space> space = {};
  ebb::OptionTexts network = {};
  ebb::capi::ScheduleChoice schedule = {};
  ebb::capi::NoiseChoice noise = {};
  ebb_progress progress = nullptr;
  void* progress_user = nullptr;

  // By settle().
  ebb::Discretisation levels = {};
  ebb::Prediction prediction = ebb::Prediction::eps;
  double sigma_data = 0.5;
};

namespace ebb::capi {

// Works out what follows from what was set. Throws Error.
void settle(ebb_sampler& s);

// Changes a sampler; on errors it stays as it was.
template <class Change>
ebb_status changed(ebb_sampler* sampler, const Change& change) noexcept {
  return guarded([&] {
    require_given(sampler, "sampler");
    ebb_sampler next = *sampler;
    change(next);
    settle(next);
    *sampler = std::move(next);
  });
}

}  // namespace ebb::capi
