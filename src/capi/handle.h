// The handles of the C API, and the conversion of exceptions to statuses.
#pragma once

#include <ebb/samplers.h>

#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "capi/resolve.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/host_latents.h"
#include "diffusion/start/inpaint.h"

namespace ebb::capi {

struct NoiseChoice {
  std::string source;  // "": the dialect's
  OptionTexts options = {};
  uint64_t seed = 0;
  int64_t first_image = 0;
  std::vector<uint64_t> seeds = {};
  std::vector<int64_t> shape = {};  // [H, W, C]; empty: an image is a vector
  bool channels_first = false;      // of the caller's buffers
  ebb_noise callback = nullptr;
  void* user = nullptr;
};

struct InpaintChoice {
  std::vector<float> data, mask, noise;
  KnownRegions parts = {};
  bool by_dialect = false;  // the dialect decides where known regions are restored
  bool differential = false;
};

// Of doubles, in bytes.
inline constexpr size_t largest_buffer =
    std::numeric_limits<std::ptrdiff_t>::max() / sizeof(double);

struct Batch {
  // Throws Error unless the size is positive and fits a buffer.
  Batch(size_t images, size_t elements, const char* subject);
  size_t images, elements;
  size_t size() const { return images * elements; }
};

// The noise of a run: of the source, or of the caller's function.
Noise noise_of(const ebb_sampler& s, const Batch& batch);
// `denoise`, with known regions restored if the sampler inpaints.
HostDenoise<float> inpainted(const ebb_sampler& s, const Batch& batch, HostDenoise<float> denoise);
// Restores them in the result of a run.
void put_known_back(const ebb_sampler& s, std::span<float> x);
// Throws Error unless the source has the options and accepts their values.
void check_noise(const ebb_sampler& s);

// ---- errors --------------------------------------------------------------------------------

// The text of this thread's last error.
const char* last_error() noexcept;
void set_error(const char* text) noexcept;
std::string& thread_text();  // per thread, for functions that return a text

// Runs `work` and converts exceptions to a status. Success clears the error, whatever calls its
// callbacks made.
template <class Work>
ebb_status guarded(const Work& work) noexcept {
  try {
    set_error("");
    work();
    set_error("");
    return EBB_OK;
  } catch (const Cancelled& e) {
    set_error(e.what());
    return EBB_CANCELLED;
  } catch (const std::exception& e) {
    set_error(e.what());
  } catch (...) {
    set_error("unknown failure");
  }
  return EBB_ERROR;
}

inline void require_given(const void* pointer, const char* what) {
  require(pointer != nullptr, "sampler: ", what, " must not be NULL");
}

// Throws Error unless it is a noise level of such networks.
void require_level(const char* subject, double sigma, Space space);

// "option=default  description", one per line.
std::string lines(const std::vector<Option>& options);

// The `index`-th name of the list `all`; NULL past the last.
template <class All>
const char* name_at(const All& all, size_t index) noexcept {
  const char* name = nullptr;
  guarded([&] {
    const auto& list = all();
    if (index >= list.size()) return;
    if constexpr (requires { list[index]->name; })
      name = list[index]->name.c_str();
    else
      name = list[index].name.c_str();
  });
  return name;
}

}  // namespace ebb::capi

struct ebb_sampler {
  ebb::capi::RunChoice choice = {};
  ebb::capi::NoiseChoice noise = {};
  std::shared_ptr<const ebb::capi::InpaintChoice> inpaint = {};
  ebb_progress progress = nullptr;
  void* progress_user = nullptr;
  // The resolved run, once it was needed.
  mutable std::shared_ptr<const ebb::capi::ResolvedRun> known = {};
  bool runs = false;  // its callbacks may query it, but not change it
};

namespace ebb::capi {

// The resolved run. Throws Error for inconsistent settings.
std::shared_ptr<const ResolvedRun> resolved(const ebb_sampler& s);

// Throws Error while the sampler runs.
inline void require_idle(const ebb_sampler& s) {
  require(!s.runs, "sampler: cannot be changed or run again while it runs");
}

// Changes a sampler; on errors it stays as it was.
template <class Change>
ebb_status changed(ebb_sampler* sampler, const Change& change) noexcept {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_idle(*sampler);
    ebb_sampler next = *sampler;
    next.known.reset();
    change(next);
    *sampler = std::move(next);
  });
}

}  // namespace ebb::capi
