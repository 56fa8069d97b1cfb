// The C API of the samplers: include/ebb/samplers.h over diffusion/solver. Settings of a sampler
// are in settings.cpp, starts, networks and guidance in start.cpp, network.cpp and guidance.cpp.
#include <algorithm>
#include <cmath>

#include "capi/handle.h"
#include "diffusion/guidance/guidance.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/defaults.h"
#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/sampler.h"

namespace ebb::capi {

namespace {

std::string& error_text() {
  thread_local std::string text;
  return text;
}

}  // namespace

const char* last_error() noexcept { return error_text().c_str(); }

void set_error(const char* text) noexcept {
  try {
    error_text() = text;
  } catch (...) {  // short texts need no memory
    error_text() = "out of memory";
  }
}

std::string& thread_text() {
  thread_local std::string text;
  return text;
}

std::string lines(const std::vector<Option>& options) {
  std::string out;
  for (const Option& o : options) out += o.name + "=" + o.value + "  " + o.help + "\n";
  return out;
}

void require_level(const char* subject, double sigma, Space space) {
  if (space == Space::flow)
    require(sigma >= 0 && sigma <= 1, subject, ": sigma of a flow model must lie in [0, 1] (",
            sigma, ")");
  require(std::isfinite(sigma) && sigma >= 0, subject, ": sigma must be finite and not negative (",
          sigma, ")");
}

Batch::Batch(size_t n, size_t e, const char* subject) : images(n), elements(e) {
  require(n > 0 && e > 0, subject, ": needs at least one number (", n, " images of ", e, ")");
  require(n <= largest_buffer / e, subject, ": no buffer holds ", n, " images of ", e);
}

std::shared_ptr<const ResolvedRun> resolved(const ebb_sampler& s) {
  if (!s.known) s.known = std::make_shared<const ResolvedRun>(resolve(s.choice));
  return s.known;
}

namespace {

// ---- noise ---------------------------------------------------------------------------------

NoiseCall noise_call(const ebb_sampler& s, const Batch& batch) {
  const NoiseChoice& n = s.noise;
  require(n.seeds.empty() || n.seeds.size() == batch.images, "sampler: has ", n.seeds.size(),
          " seeds for ", batch.images, " images");
  NoiseCall call{.seed = n.seed, .images = {}, .seeds = n.seeds, .shape = n.shape};
  for (size_t i = 0; i < batch.images; ++i)
    call.images.push_back(n.first_image + static_cast<int64_t>(i));
  if (call.shape.empty()) call.shape = {static_cast<int64_t>(batch.elements)};
  require(call.elements() == static_cast<int64_t>(batch.elements), "sampler: an image has ",
          batch.elements, " numbers, its shape ", call.elements());
  call.sigmas = resolved(s)->call.sigmas;
  return call;
}

// [N,H,W,C] to [N,C,H,W].
void to_channels_first(std::span<double> z, const NoiseCall& call) {
  const auto pixels = static_cast<size_t>(call.shape[0] * call.shape[1]);
  const auto channels = static_cast<size_t>(call.shape[2]);
  const std::vector<double> from(z.begin(), z.end());
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t image = i / (pixels * channels), within = i % (pixels * channels);
    const size_t channel = within / pixels, pixel = within % pixels;
    z[i] = from[(image * pixels + pixel) * channels + channel];
  }
}

Noise channels_first(Noise noise, const NoiseCall& call) {
  return {[call, start = std::move(noise.start)](std::span<double> out) {
            start(out);
            to_channels_first(out, call);
          },
          [call, step = std::move(noise.step)](std::span<double> out, const NoiseDraw& draw) {
            step(out, draw);
            to_channels_first(out, call);
          }};
}

void call_noise(const NoiseChoice& n, std::span<double> out, const NoiseDraw& draw) {
  std::vector<float> z(out.size());
  mark_unwritten<float>(z);
  if (n.callback(n.user, draw.index, draw.from, draw.to, z.data(), z.size()) != 0)
    throw Cancelled("sample: stopped by the source of noise");
  const auto missing = first_unwritten<float>(z);
  require(!missing, "sample: the source of noise did not write number ", missing.value_or(0),
          " of ", z.size(), " of draw ", draw.index);
  std::copy(z.begin(), z.end(), out.begin());
}

// ---- a run ---------------------------------------------------------------------------------

struct Running {
  explicit Running(ebb_sampler& sampler) : s(sampler) {
    require_idle(s);
    s.runs = true;
  }
  ~Running() { s.runs = false; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ebb_sampler& s;
};

struct Denoise {
  ebb_denoise function;
  void* user;
};

void run(const ebb_sampler& s, std::span<float> x, const Batch& batch, const Denoise& denoise) {
  const Noise noise = noise_of(s, batch);
  const HostDenoise<float> asked = [=](std::span<const float> in, double sigma,
                                       std::span<float> out, std::span<float> uncond) {
    float* none = uncond.empty() ? nullptr : uncond.data();
    if (denoise.function(denoise.user, in.data(), sigma, out.data(), none) != 0)
      throw Cancelled("sample: stopped by the denoiser");
  };
  HostLatents<float> latents(batch.size(), inpainted(s, batch, asked), noise.step);
  const auto known = resolved(s);
  SampleCall call = known->call;
  std::vector<float> seen(s.progress ? batch.size() : 0);
  if (s.progress)
    call.progress = [&](const Progress& p) {
      latents.read(p.x, seen);
      return s.progress(s.progress_user, p.step, p.steps, p.sigma, seen.data()) == 0;
    };
  Latent first = latents.put(x);
  std::vector<float> end(batch.size());
  latents.read(sample(s.choice.sampler, latents, std::move(first), call), end);
  put_known_back(s, end);
  std::copy(end.begin(), end.end(), x.begin());
}

// The requested source, or the dialect's for this sampler.
DefaultNoise source_of(const ebb_sampler& s) {
  if (!s.noise.source.empty()) return {.source = s.noise.source};
  return default_noise(s.choice.dialect, s.choice.sampler);
}

}  // namespace

void check_noise(const ebb_sampler& s) {
  if (s.noise.callback || s.noise.options.empty()) return;
  const NoiseCall call{.shape = {2, 2, 2}, .sigmas = {1, 0.5}};
  open_default_noise(source_of(s), call, s.noise.options);
}

Noise noise_of(const ebb_sampler& s, const Batch& batch) {
  const NoiseChoice& n = s.noise;
  const NoiseCall call = noise_call(s, batch);
  if (n.callback) {
    const double first = call.sigmas.empty() ? 0 : call.sigmas[0];
    return {[n, first](std::span<double> out) {
              call_noise(n, out, {.index = -1, .from = first, .to = first});
            },
            [n](std::span<double> out, const NoiseDraw& draw) { call_noise(n, out, draw); }};
  }
  Noise noise = open_default_noise(source_of(s), call, n.options);
  return n.channels_first && call.shape.size() == 3 ? channels_first(std::move(noise), call)
                                                    : noise;
}

}  // namespace ebb::capi

using ebb::capi::guarded;
using ebb::capi::name_at;
using ebb::capi::require_given;
using ebb::capi::resolved;
using ebb::capi::thread_text;

const char* ebb_last_error(void) { return ebb::capi::last_error(); }

ebb_status ebb_sampler_create(const char* name, ebb_sampler** out) {
  return guarded([&] {
    require_given(out, "out");
    *out = nullptr;
    require_given(name, "name");
    ebb::find_sampler(name);
    *out = new ebb_sampler{.choice = {.sampler = name}};
  });
}

void ebb_sampler_destroy(ebb_sampler* sampler) {
  guarded([&] {
    ebb::require(!sampler || !sampler->runs, "sampler: cannot be destroyed while it runs");
    delete sampler;
  });
}

ebb_status ebb_sampler_count(const ebb_sampler* sampler, int64_t* evaluations, int64_t* draws) {
  return guarded([&] {
    require_given(sampler, "sampler");
    ebb::capi::check_noise(*sampler);
    const auto known = resolved(*sampler);
    const ebb::SampleCounts counts = ebb::count(sampler->choice.sampler, known->call);
    if (evaluations) *evaluations = counts.evaluations;
    if (draws) *draws = counts.draws;
  });
}

ebb_status ebb_sampler_sigmas(const ebb_sampler* sampler, double* sigmas, size_t room,
                              size_t* count) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(count, "count");
    if (room > 0) require_given(sigmas, "sigmas");
    const auto known = resolved(*sampler);
    const std::vector<double>& all = known->call.sigmas;
    std::copy_n(all.begin(), std::min(room, all.size()), sigmas);
    *count = all.size();
  });
}

ebb_status ebb_sampler_run(ebb_sampler* sampler, float* x, size_t images, size_t elements,
                           ebb_denoise denoise, void* user) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(x, "x");
    ebb::require(denoise != nullptr, "sampler: denoise must not be NULL");
    const ebb::capi::Batch batch(images, elements, "sampler");
    const ebb::capi::Running running(*sampler);
    ebb::capi::run(*sampler, {x, batch.size()}, batch, {denoise, user});
  });
}

// ---- what there is -------------------------------------------------------------------------

const char* ebb_sampler_name(size_t index) { return name_at(ebb::all_samplers, index); }
const char* ebb_schedule_name(size_t index) { return name_at(ebb::all_schedules, index); }
const char* ebb_noise_name(size_t index) { return name_at(ebb::all_noise_sources, index); }
const char* ebb_dialect_name(size_t index) { return name_at(ebb::all_dialects, index); }
const char* ebb_guidance_name(size_t index) { return name_at(ebb::all_guidance_rules, index); }

namespace {

template <class Find>
const char* described(const char* name, const Find& find) {
  const ebb_status status = guarded([&] {
    require_given(name, "name");
    thread_text() = ebb::capi::lines(find(name));
  });
  return status == EBB_OK ? thread_text().c_str() : nullptr;
}

}  // namespace

const char* ebb_sampler_describe(const char* name) {
  return described(name, [](const char* n) {
    const ebb::FoundSampler found = ebb::find_sampler(n);
    return ebb::with_defaults(found.sampler->options(), found.options);
  });
}

const char* ebb_schedule_describe(const char* name) {
  return described(name, [](const char* n) {
    const ebb::FoundSchedule found = ebb::find_schedule(n);
    std::vector<ebb::Option> all = ebb::with_defaults(found.schedule->options(), found.options);
    const auto list = ebb::describe<ebb::capi::ListOptions>();
    all.insert(all.end(), list.begin(), list.end());
    return all;
  });
}

const char* ebb_noise_describe(const char* name) {
  return described(name, [](const char* n) { return ebb::find_noise_source(n).options(); });
}

const char* ebb_guidance_describe(const char* name) {
  return described(name, [](const char* n) { return ebb::find_guidance_rule(n).options(); });
}

const char* ebb_levels_describe(void) {
  return described("levels", [](const char*) { return ebb::describe<ebb::NetworkOptions>(); });
}
