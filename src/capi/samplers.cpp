// The C API of the samplers: include/ebb/samplers.h over diffusion/solver.
#include <ebb/samplers.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "diffusion/noise/noise.h"
#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/sampler.h"

struct ebb_sampler {
  std::string name;
  ebb::SampleCall call;
  uint64_t seed = 0;
  ebb_noise noise = nullptr;
  void* noise_user = nullptr;
  ebb_progress progress = nullptr;
  void* progress_user = nullptr;
};

namespace {

using ebb::require;

thread_local std::string last_error;
thread_local std::string answer;  // of functions that return a text

// Runs `work`; what it throws becomes a status.
template <class Work>
ebb_status guarded(const Work& work) noexcept {
  try {
    last_error.clear();
    work();
    return EBB_OK;
  } catch (const ebb::Cancelled& e) {
    last_error = e.what();
    return EBB_CANCELLED;
  } catch (const std::exception& e) {
    last_error = e.what();
  } catch (...) {
    last_error = "unknown failure";
  }
  return EBB_ERROR;
}

void require_given(const void* pointer, const char* what) {
  require(pointer != nullptr, "sampler: ", what, " must not be NULL");
}

struct Batch {
  size_t images, elements;
  size_t size() const { return images * elements; }
};

void call_noise(const ebb_sampler& s, std::span<double> out, const ebb::NoiseDraw& draw) {
  std::vector<float> z(out.size());
  if (s.noise(s.noise_user, draw.index, draw.from, draw.to, z.data(), z.size()) != 0)
    throw ebb::Cancelled("sample: stopped by the source of noise");
  std::copy(z.begin(), z.end(), out.begin());
}

ebb::ImageKeys keys_of(const ebb_sampler& s, const Batch& batch) {
  ebb::ImageKeys keys{
      .seed = s.seed, .images = {}, .elements = static_cast<int64_t>(batch.elements)};
  for (size_t i = 0; i < batch.images; ++i) keys.images.push_back(static_cast<int64_t>(i));
  return keys;
}

ebb::NoiseFill noise_of(const ebb_sampler& s, const Batch& batch) {
  if (s.noise == nullptr) return ebb::keyed_noise(keys_of(s, batch));
  return [&s](std::span<double> out, const ebb::NoiseDraw& draw) { call_noise(s, out, draw); };
}

void run(ebb_sampler& s, std::span<float> x, const Batch& batch, ebb_denoise denoise, void* user) {
  ebb::HostLatents<float> latents(
      batch.size(),
      [=](std::span<const float> in, double sigma, std::span<float> out, std::span<float> uncond) {
        float* none = uncond.empty() ? nullptr : uncond.data();
        if (denoise(user, in.data(), sigma, out.data(), none) != 0)
          throw ebb::Cancelled("sample: stopped by the denoiser");
      },
      noise_of(s, batch));
  ebb::SampleCall call = s.call;
  std::vector<float> seen(s.progress ? batch.size() : 0);
  if (s.progress)
    call.progress = [&](const ebb::Progress& p) {
      latents.read(p.x, seen);
      return s.progress(s.progress_user, p.step, p.steps, p.sigma, seen.data()) == 0;
    };
  ebb::Latent start = latents.put(x);
  std::vector<float> end(batch.size());
  latents.read(ebb::sample(s.name, latents, std::move(start), call), end);
  std::copy(end.begin(), end.end(), x.begin());
}

void start(const ebb_sampler& s, const float* latent, const Batch& batch, float* x) {
  require(!s.call.sigmas.empty(), "sampler: needs noise levels");
  const double sigma = s.call.sigmas[0];
  std::vector<double> z(batch.size());
  if (s.noise)
    call_noise(s, z, {.index = -1, .from = sigma, .to = sigma});
  else
    z = ebb::initial_noise(keys_of(s, batch));
  const double alpha = ebb::alpha_of(s.call.space, sigma);
  for (size_t i = 0; i < z.size(); ++i) {
    const double data = latent ? static_cast<double>(latent[i]) : 0;
    x[i] = static_cast<float>(alpha * data + sigma * z[i]);
  }
}

void configure(ebb_sampler& s, const std::string& key, const std::string& value) {
  if (key == "space") {
    require(value == "ve" || value == "flow", "sampler: space must be ve or flow (got '", value,
            "')");
    s.call.space = value == "ve" ? ebb::Space::ve : ebb::Space::flow;
  } else if (key == "dialect") {
    s.call.dialect = ebb::find_dialect(value).name;
  } else if (key == "seed") {
    s.seed = static_cast<uint64_t>(ebb::parse_integer(value, "seed"));
  } else {
    ebb::fail("sampler: unknown key '", key, "' (known: space, dialect, seed)");
  }
}

}  // namespace

const char* ebb_last_error(void) { return last_error.c_str(); }

ebb_status ebb_sampler_create(const char* name, ebb_sampler** out) {
  return guarded([&] {
    require_given(name, "name");
    require_given(out, "out");
    *out = nullptr;
    ebb::find_sampler(name);
    *out = new ebb_sampler{.name = name};
  });
}

void ebb_sampler_destroy(ebb_sampler* sampler) { delete sampler; }

ebb_status ebb_sampler_set(ebb_sampler* sampler, const char* option, const char* value) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(option, "option");
    require_given(value, "value");
    ebb::OptionTexts options = sampler->call.options;
    options.emplace_back(option, value);
    ebb::check_options(sampler->name, options);
    sampler->call.options = std::move(options);
  });
}

ebb_status ebb_sampler_configure(ebb_sampler* sampler, const char* key, const char* value) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(key, "key");
    require_given(value, "value");
    configure(*sampler, key, value);
  });
}

ebb_status ebb_sampler_set_sigmas(ebb_sampler* sampler, const double* sigmas, size_t count) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(sigmas, "sigmas");
    sampler->call.sigmas.assign(sigmas, sigmas + count);
  });
}

ebb_status ebb_sampler_count(const ebb_sampler* sampler, int64_t* evaluations, int64_t* draws) {
  return guarded([&] {
    require_given(sampler, "sampler");
    const ebb::SampleCounts counts = ebb::count(sampler->name, sampler->call);
    if (evaluations) *evaluations = counts.evaluations;
    if (draws) *draws = counts.draws;
  });
}

ebb_status ebb_sampler_run(ebb_sampler* sampler, float* x, size_t images, size_t elements,
                           ebb_denoise denoise, void* user) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(x, "x");
    require(denoise != nullptr, "sampler: denoise must not be NULL");
    const Batch batch{images, elements};
    run(*sampler, {x, batch.size()}, batch, denoise, user);
  });
}

ebb_status ebb_sampler_start(const ebb_sampler* sampler, const float* latent, size_t images,
                             size_t elements, float* x) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(x, "x");
    start(*sampler, latent, {images, elements}, x);
  });
}

ebb_status ebb_sampler_set_progress(ebb_sampler* sampler, ebb_progress progress, void* user) {
  return guarded([&] {
    require_given(sampler, "sampler");
    sampler->progress = progress;
    sampler->progress_user = user;
  });
}

ebb_status ebb_sampler_set_noise(ebb_sampler* sampler, ebb_noise noise, void* user) {
  return guarded([&] {
    require_given(sampler, "sampler");
    sampler->noise = noise;
    sampler->noise_user = user;
  });
}

const char* ebb_sampler_name(size_t index) {
  const auto& all = ebb::all_samplers();
  return index < all.size() ? all[index]->name.c_str() : nullptr;
}

const char* ebb_dialect_name(size_t index) {
  const auto& all = ebb::all_dialects();
  return index < all.size() ? all[index].name.c_str() : nullptr;
}

const char* ebb_sampler_describe(const char* name) {
  const ebb_status status = guarded([&] {
    require_given(name, "name");
    answer.clear();
    for (const ebb::Option& o : ebb::find_sampler(name).sampler->options())
      answer += o.name + "=" + o.value + "  " + o.help + "\n";
  });
  return status == EBB_OK ? answer.c_str() : nullptr;
}
