#include "diffusion/solver/sampler.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/names.h"
#include "diffusion/solver/chosen_sampler.h"
#include "diffusion/solver/sampler_names.h"

#define X(name)               \
  namespace ebb::samplers {   \
  const ebb::Sampler& name(); \
  }
#include "ebb/gen/samplers.inc"
#undef X

namespace ebb {
namespace {

// Latents without data, which count what a sampler requests.
class CountedLatents : public Latents {
 public:
  SampleCounts counts() const { return counts_; }

  Latent empty() {
    counts_.vectors = std::max(counts_.vectors, ++*alive_);
    return Latent(std::make_shared<Counted>(alive_));
  }
  Denoised denoise(Latent& x, double sigma, bool with_uncond) override {
    ++counts_.evaluations;
    counts_.highest = std::max(counts_.highest, sigma);
    if (x.alone() == nullptr) {
      x = {};
      x = empty();
    }
    const Latent guided = empty();
    return {guided, with_uncond ? empty() : Latent()};
  }
  Latent noise(const NoiseDraw&, double) override {
    ++counts_.draws;
    return empty();
  }
  double distance(const Latent&, const Latent&, const Latent&, Tolerance) override { return 0; }
  std::vector<double> values(const Latent&) override { fail("count: there are no numbers"); }

 private:
  struct Counted : StoredLatent {
    explicit Counted(std::shared_ptr<int64_t> a) : alive(std::move(a)) {}
    ~Counted() override { --*alive; }
    std::shared_ptr<int64_t> alive;
  };
  std::shared_ptr<int64_t> alive_ = std::make_shared<int64_t>(0);
  SampleCounts counts_;
};

void check_space(const Sampler& s, Space space) {
  if (space == Space::ve || s.flow) return;
  std::string others;
  for (const Sampler* other : all_samplers())
    if (other->flow) others += (others.empty() ? "" : ", ") + other->name;
  fail("sample: ", s.name, " does not support flow models; these do: ", others);
}

// The options that a name implies, then the given ones.
OptionTexts all_options(const FoundSampler& found, const OptionTexts& given) {
  OptionTexts options = found.options;
  options.insert(options.end(), given.begin(), given.end());
  return options;
}

std::optional<FoundSampler> find_by_plain_name(std::string_view plain) {
  for (const Sampler* s : all_samplers()) {
    if (plain_name(s->name) == plain) return FoundSampler{s, {}};
    for (const SamplerAlias& a : s->aliases)
      if (plain_name(a.name) == plain) return FoundSampler{s, a.options};
  }
  return {};
}

}  // namespace

std::string_view name_of(SamplerKind kind) {
  constexpr std::string_view names[] = {"ode", "ancestral", "sde", "distilled"};
  return names[static_cast<int>(kind)];
}

SamplerFacts facts_of(const Sampler& s) { return {s.name, s.help, s.kind, s.order, {}}; }

SamplerFacts facts_of(const Sampler& s, const SamplerAlias& a) {
  return {a.name, a.help.empty() ? s.help : a.help, a.kind.value_or(s.kind),
          a.order.value_or(s.order), a.options};
}

std::vector<SamplerFacts> all_facts_of(const Sampler& s) {
  std::vector<SamplerFacts> out = {facts_of(s)};
  for (const SamplerAlias& a : s.aliases) out.push_back(facts_of(s, a));
  return out;
}

ChosenSampler choose_sampler(std::string_view name, const SampleCall& call) {
  const FoundSampler found = find_sampler(name);
  check_space(*found.sampler, call.space);
  OptionTexts options = default_options(call.dialect, name);
  for (const auto& option : all_options(found, call.options)) options.push_back(option);
  found.sampler->check(options);
  return {found.sampler, std::move(options)};
}

Latent sample(const ChosenSampler& s, Latents& latents, Latent x, const SampleCall& call) {
  Run run(latents, call);
  if (run.steps() > 0) x = s.sampler->run(run, std::move(x), s.options);
  latents.check_end(x);
  return x;
}

Latent sample(std::string_view sampler, Latents& latents, Latent x, const SampleCall& call) {
  return sample(choose_sampler(sampler, call), latents, std::move(x), call);
}

void check_options(std::string_view sampler, const OptionTexts& options) {
  const FoundSampler found = find_sampler(sampler);
  found.sampler->check(all_options(found, options));
}

SampleCounts count(const ChosenSampler& sampler, const SampleCall& call) {
  CountedLatents latents;
  SampleCall silent = call;
  silent.progress = {};
  sample(sampler, latents, latents.empty(), silent);
  return latents.counts();
}

SampleCounts count(std::string_view sampler, const SampleCall& call) {
  return count(choose_sampler(sampler, call), call);
}

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Sampler*>& all_samplers() {
  static const std::vector<const Sampler*> table = {
#define X(name) &samplers::name(),
#include "ebb/gen/samplers.inc"
#undef X
  };
  return table;
}

std::string plain_name(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '+', 'p');
  out = letters_and_digits(out);
  if (name.starts_with("sample_")) out.erase(0, 6);
  for (const std::string_view end : {"scheduler", "discrete"})
    if (out.ends_with(end)) out.resize(out.size() - end.size());
  return out;
}

namespace {

// A suggestion: of the sampler, of the schedule behind it, or that others are no part of its name.
std::string near_name(std::string_view name, const std::vector<std::string>& known) {
  std::vector<std::string> plain;
  for (const std::string& k : known) plain.push_back(plain_name(k));
  const auto same = [&](const std::string& p) {
    return known[static_cast<size_t>(std::find(plain.begin(), plain.end(), p) - plain.begin())];
  };
  for (size_t end = name.rfind(' '); end != name.npos && end > 0; end = name.rfind(' ', end - 1)) {
    const std::string head = plain_name(name.substr(0, end));
    if (std::find(plain.begin(), plain.end(), head) == plain.end()) continue;
    const std::vector<std::string> endings(std::begin(schedule_endings),
                                           std::end(schedule_endings));
    const std::string ending = nearest_name(name.substr(end + 1), endings);
    return !ending.empty() ? str(" (did you mean '", name.substr(0, end), " ", ending, "'?)")
                           : str(" ('", name.substr(0, end), "' is ", same(head),
                                 "; a schedule, such as", name.substr(end), ", is chosen apart)");
  }
  const SplitName asked = split_schedule(plain_name(name));
  const std::string near = nearest_name(asked.sampler, plain);
  if (near.empty()) return suggestion(name, known);
  return str(" (did you mean '", same(near), asked.schedule.empty() ? "" : " ", asked.schedule,
             "'?)");
}

}  // namespace

FoundSampler find_sampler(std::string_view name) {
  const std::string plain = plain_name(name);
  if (const auto found = find_by_plain_name(plain)) return *found;
  if (const auto found = find_by_plain_name(split_schedule(plain).sampler)) return *found;
  std::vector<std::string> known;
  for (const Sampler* s : all_samplers()) {
    known.push_back(s->name);
    for (const SamplerAlias& a : s->aliases) known.push_back(a.name);
  }
  fail("sampler: unknown name '", name, "'", near_name(name, known));
}

}  // namespace ebb
