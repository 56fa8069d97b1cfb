// Starts are the middles of equal shares of the distribution at the first level, so they add no
// error. New noise is spread evenly over the states in their order (array-RQMC: L'Ecuyer, Lecot and
// Tuffin 2008): each state gets standard normal numbers, but neighbours get different ones, so that
// few states show what the distribution is.
#include "pipeline/sampler_errors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "diffusion/levels/spacings.h"
#include "diffusion/solver/host_latents.h"
#include "pipeline/sampler_facts.h"

namespace ebb {
namespace {

// ---- data and starts -----------------------------------------------------------------------

// Where data + sigma noise have this share below it (bisection).
double quantile(const Blobs& data, double share, double sigma) {
  const double spread = std::hypot(data.spread, sigma), reach = 10 * (1 + sigma);
  double low = -reach, high = reach;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    double below = 0;
    for (size_t k = 0; k < data.weights.size(); ++k)
      below +=
          data.weights[k] * 0.5 * std::erfc(-(middle - data.means[k]) / spread / std::sqrt(2.0));
    (below < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

struct Trials {
  Blobs data = line_of_blobs();
  std::vector<double> starts, goal, normals;  // the middles of equal shares

  explicit Trials(int64_t count) {
    const double first = measured_call(2).sigmas[0];
    for (int64_t i = 0; i < count; ++i) {
      const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
      starts.push_back(quantile(data, share, first));
      goal.push_back(quantile(data, share, 0));
      normals.push_back(normal_quantile(share));
    }
  }
};

// ---- one run -------------------------------------------------------------------------------

struct SpreadNoise {
  uint64_t seed;
  const std::vector<double>& normals;
  std::vector<double> states = {};  // the latest

  void fill(std::span<double> out, int64_t draw) const {
    // Parts of square roots, the multiples of which are spread well.
    constexpr std::array turns = {0.6180339887498949, 0.41421356237309515, 0.7320508075688772,
                                  0.6457513110645906};
    std::vector<std::pair<double, size_t>> order;
    for (size_t i = 0; i < states.size(); ++i) order.emplace_back(states[i], i);
    std::sort(order.begin(), order.end());
    const RandomKey key{.seed = seed, .step = static_cast<uint32_t>(draw)};
    double at = uniform_from(random_block(key, 0)[0]);
    for (const auto& [state, i] : order) {
      at += turns[static_cast<size_t>(draw) % turns.size()];
      at -= std::floor(at);
      out[i] = normals[static_cast<size_t>(at * static_cast<double>(normals.size()))];
    }
  }
};

struct Measured {
  double error = 0;
  int64_t evaluations = 0;
};

Measured measure(const Trials& trials, const Sampler& sampler, const SampleCall& call,
                 uint64_t seed) {
  Measured out;
  SpreadNoise noise{.seed = seed, .normals = trials.normals};
  HostLatents<double> latents(
      trials.starts.size(),
      [&](std::span<const double> x, double sigma, std::span<double> d, std::span<double>) {
        trials.data.denoise(x, sigma, d);
        noise.states.assign(x.begin(), x.end());
        ++out.evaluations;
      },
      [&](std::span<double> z, const NoiseDraw& draw) { noise.fill(z, draw.index); });
  Latent first = latents.put(trials.starts);
  std::vector<double> x = latents.values(sample(sampler.name, latents, std::move(first), call));
  std::sort(x.begin(), x.end());
  for (size_t i = 0; i < x.size(); ++i) out.error += std::abs(x[i] - trials.goal[i]);
  out.error /= static_cast<double>(x.size());
  return out;
}

// ---- tables --------------------------------------------------------------------------------

constexpr std::array<int64_t, 5> budgets = {8, 16, 32, 64, 128};
constexpr int64_t few_states = 2000, many_states = 16000, seeds = 2;

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", v);
  return text;
}

bool has_eta(const Sampler& s) {
  const std::vector<Option> all = s.options();
  return std::any_of(all.begin(), all.end(), [](const Option& o) { return o.name == "eta"; });
}

int64_t draws_of(const Sampler& s, const OptionTexts& options) {
  return count(s.name, measured_call(40, options)).draws;
}

// A sampler, and options that make it what its table measures.
struct Row {
  const Sampler* sampler;
  OptionTexts options;
};

// With the most steps, at least one, that cost no more than `budget` evaluations.
SampleCall call_within(const Row& row, int64_t budget) {
  int64_t steps = budget;
  while (steps > 1 &&
         count(row.sampler->name, measured_call(steps, row.options)).evaluations > budget)
    --steps;
  return measured_call(steps, row.options);
}

// Samplers that draw nothing, or nothing with eta 0.
std::vector<Row> rows_without_noise() {
  std::vector<Row> rows;
  for (const Sampler* s : all_samplers()) {
    const OptionTexts options = has_eta(*s) ? OptionTexts{{"eta", "0"}} : OptionTexts{};
    if (!s->adaptive && !s->needs_uncond && draws_of(*s, options) == 0)
      rows.push_back({s, options});
  }
  return rows;
}

// Those that draw with their own options, and those that do with eta 1.
std::vector<Row> rows_with_noise() {
  std::vector<Row> rows;
  for (const Sampler* s : all_samplers()) {
    if (s->adaptive || s->needs_uncond || s->kind == SamplerKind::ode) continue;
    if (draws_of(*s, {}) > 0)
      rows.push_back({s, {}});
    else if (has_eta(*s))
      rows.push_back({s, {{"eta", "1"}}});
  }
  return rows;
}

// The progress, in fractions of evaluations of single states.
class Work {
 public:
  Work(double total, const std::function<void(double)>& progress)
      : total_(total), progress_(progress) {}
  void add(double evaluations) {
    done_ += evaluations;
    if (progress_) progress_(std::min(done_ / total_, 1.0));
  }

 private:
  double total_, done_ = 0;
  const std::function<void(double)>& progress_;
};

std::string head(std::string columns) {
  std::string rule = "|---|---|";
  for (const int64_t budget : budgets) {
    columns += str(" ", budget, " |");
    rule += "---|";
  }
  return columns + "\n" + rule + "\n";
}

// Samplers with equal figures share a row.
std::string table_without_noise(const std::vector<Row>& rows, Work& work) {
  const Trials trials(few_states);
  std::vector<std::pair<std::string, std::string>> lines;  // names, figures
  for (const Row& row : rows) {
    const Sampler& s = *row.sampler;
    std::string figures = str(" ", s.order == 0 ? "" : number(s.order), " |");
    for (const int64_t budget : budgets) {
      figures += str(" ", number(measure(trials, s, call_within(row, budget), 0).error), " |");
      work.add(static_cast<double>(few_states * budget));
    }
    const auto same = std::find_if(lines.begin(), lines.end(),
                                   [&](const auto& line) { return line.second == figures; });
    if (same == lines.end())
      lines.emplace_back(s.name, figures);
    else
      same->first += ", " + s.name;
  }
  std::string text = head("| sampler | order |");
  for (const auto& [names, figures] : lines) text += "| " + names + " |" + figures + "\n";
  return text;
}

std::string table_with_noise(const std::vector<Row>& rows, Work& work) {
  const Trials trials(many_states);
  std::string text = head("| sampler | kind |");
  double largest = 0, of_small = 0;  // difference between seeds; where the mean is below 0.01
  for (const Row& row : rows) {
    const Sampler& s = *row.sampler;
    text += str("| ", s.name, row.options.empty() ? "" : " (eta=1)", " | ", name_of(s.kind), " |");
    for (const int64_t budget : budgets) {
      const SampleCall call = call_within(row, budget);
      const double a = measure(trials, s, call, 0).error, b = measure(trials, s, call, 1).error;
      work.add(static_cast<double>(seeds * many_states * budget));
      const double mean = (a + b) / seeds, difference = std::abs(a - b);
      largest = std::max(largest, difference);
      if (mean < 0.01) of_small = std::max(of_small, difference);
      text += str(" ", number(mean), " |");
    }
    text += "\n";
  }
  return str(text, "\nMeans of ", seeds, " seeds, which differ by ", number(largest),
             " at most, and by ", number(of_small), " where the mean is below 0.01.\n");
}

std::string table_of_adaptive() {
  const Trials trials(few_states);
  std::string text = "| sampler | rtol | evaluations | error |\n|---|---|---|---|\n";
  for (const Sampler* s : all_samplers()) {
    if (!s->adaptive) continue;
    for (const char* rtol : {"0.5", "0.05", "0.005", "0.0005"}) {
      const Measured m =
          measure(trials, *s, measured_call(18, {{"rtol", rtol}, {"atol", "0.0001"}}), 0);
      text += str("| ", s->name, " | ", rtol, " | ", m.evaluations, " | ", number(m.error), " |\n");
    }
  }
  return text;
}

}  // namespace

std::string sampler_error_tables(const std::function<void(double)>& progress) {
  const std::vector<Row> quiet = rows_without_noise(), noisy = rows_with_noise();
  const auto all = static_cast<double>(std::accumulate(budgets.begin(), budgets.end(), int64_t{0}));
  Work work(all * (static_cast<double>(quiet.size() * few_states) +
                   static_cast<double>(noisy.size() * seeds * many_states)),
            progress);
  const std::string first = table_without_noise(quiet, work),
                    second = table_with_noise(noisy, work);
  return str("### Without new noise (eta 0), by evaluations\n\n", first,
             "\n### With new noise, by evaluations\n\n", second,
             "\n### With steps of its own (atol 0.0001)\n\n", table_of_adaptive());
}

}  // namespace ebb
