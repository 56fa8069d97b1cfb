// Sampler: a free function on latents over a denoiser D(x, sigma). src/diffusion/samplers/<s>.cpp
// defines `const Sampler& ebb::samplers::<s>()`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "diffusion/solver/run.h"

namespace ebb {

// The kind of a sampler: it follows the probability flow; it steps below the level and adds noise
// back; it follows the stochastic equation; or it adds new noise to each D, for distilled networks.
enum class SamplerKind { ode, ancestral, sde, distilled };
std::string_view name_of(SamplerKind kind);

// An alias of a sampler, with options set.
struct SamplerAlias {
  std::string name;
  OptionTexts options = {};
  // If different from the sampler's.
  std::optional<double> order = {};
  std::optional<SamplerKind> kind = {};
  std::string help = {};
  std::string schedule = {};  // that the name implies
};

struct Sampler {
  std::string name;
  std::string help;
  SamplerKind kind = SamplerKind::ode;
  double order = 1;  // of convergence, on smooth levels, without noise; 0: none
  bool flow = true;  // supports flow models
  bool needs_uncond = false;
  // chooses its own levels: the number of evaluations is not known in advance
  bool adaptive = false;
  std::vector<SamplerAlias> aliases = {};
  // From a state at the first level to one at the last. Throws Error for unknown options.
  std::function<Latent(Run& run, Latent x, const OptionTexts& options)> run = {};
  std::function<std::vector<Option>()> options = {};
  std::function<void(const OptionTexts& options)> check = {};  // throws Error, as run would
};

// A sampler whose options are a struct with fields() and, to refuse values, check().
template <class Options>
Sampler make_sampler(Sampler about, Latent (*run)(Run&, Latent, const Options&));

// The properties of a sampler under one of its names.
struct SamplerFacts {
  std::string name, help;
  SamplerKind kind;
  double order;
  OptionTexts options;  // that the name implies
};
SamplerFacts facts_of(const Sampler& sampler);
SamplerFacts facts_of(const Sampler& sampler, const SamplerAlias& alias);
// Of its name, then of its aliases.
std::vector<SamplerFacts> all_facts_of(const Sampler& sampler);

// Checks the call and runs from `x`, at the first level. Throws Error, Cancelled.
Latent sample(std::string_view sampler, Latents& latents, Latent x, const SampleCall& call);

// Throws Error unless the sampler has these options and accepts their values.
void check_options(std::string_view sampler, const OptionTexts& options);

// The cost of a call, counted by a run without data.
struct SampleCounts {
  int64_t evaluations = 0, draws = 0;  // adaptive samplers: without rejected steps
  int64_t vectors = 0;                 // live at the same time, at most
  double highest = 0;                  // highest level of an evaluation; churn goes above the first
};
SampleCounts count(std::string_view sampler, const SampleCall& call);

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Sampler*>& all_samplers();

struct FoundSampler {
  const Sampler* sampler;
  OptionTexts options;  // that the name stands for
};
// By its name or an alias, normalised by plain_name. Throws Error, suggests the nearest.
FoundSampler find_sampler(std::string_view name);
// Normalised: without what programs write differently: case, spaces, signs (+ is p), "sample_"
// before and "Discrete", "Scheduler" after. "DPM++ 2M SDE" is "dpmpp2msde".
std::string plain_name(std::string_view name);

// ---- details -------------------------------------------------------------------------------

template <class Options>
Sampler make_sampler(Sampler about, Latent (*run)(Run&, Latent, const Options&)) {
  about.run = [run, name = about.name](Run& r, Latent x, const OptionTexts& texts) {
    return run(r, std::move(x), read_options<Options>(texts, name));
  };
  about.check = [name = about.name](const OptionTexts& texts) {
    read_options<Options>(texts, name);
  };
  about.options = [] { return describe<Options>(); };
  return about;
}

}  // namespace ebb
