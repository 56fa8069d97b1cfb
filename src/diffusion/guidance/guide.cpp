#include "diffusion/guidance/guide.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"

namespace ebb {
namespace {

const Factors start{.own = 0, .weights = {{Branch::cond, 1}}};

size_t place(Branch branch) { return static_cast<size_t>(branch); }

void need(std::array<bool, branch_count>& needed, const Factors& f) {
  for (const auto& [branch, w] : f.weights) needed[place(branch)] = true;
}

void sum(GuidedSample& s, const Factors& f) {
  for (size_t i = 0; i < s.result.size(); ++i) {
    double out = f.own == 0 ? 0 : f.own * s.result[i];
    for (const auto& [branch, w] : f.weights) out += w * s[branch][i];
    s.result[i] = out;
  }
}

// D = skip x + out F, and back.
void to_form(std::span<double> d, Values x, const OutputForm& f) {
  for (size_t i = 0; i < d.size(); ++i) d[i] = (d[i] - f.skip * x[i]) / f.out;
}
void from_form(std::span<double> d, Values x, const OutputForm& f) {
  for (size_t i = 0; i < d.size(); ++i) d[i] = f.skip * x[i] + f.out * d[i];
}

void apply_in_form(Guidance& rule, GuidedSample& s, const StepContext& m) {
  const OutputForm f = form_at(rule.form(), m);
  if (f.skip == 0 && f.out == 1) return rule.apply(s, m);
  to_form(s.result, s.state, f);
  for (auto& p : s.predictions) to_form(p, s.state, f);
  rule.apply(s, m);
  from_form(s.result, s.state, f);
  for (auto& p : s.predictions) from_form(p, s.state, f);
}

}  // namespace

Guide::Guide(const std::vector<RuleCall>& rules) {
  for (const RuleCall& r : rules) {
    const GuidanceRule& rule = find_guidance_rule(r.rule);
    rules_.push_back(rule.start(r.options));
    kinds_.push_back(rule.kind);
  }
}

void Guide::restart() {
  for (const auto& rule : rules_) rule->restart();
}

std::vector<Branch> Guide::branches(const StepContext& context) const {
  StepContext m = context;
  std::array<bool, branch_count> needed{};
  Factors pending = start;
  for (const auto& rule : rules_) {
    rule->direct(m);
    if (const auto f = rule->factors(m)) {
      pending = chained(pending, *f);
      continue;
    }
    need(needed, pending);
    pending = {.own = 1};
    for (const Branch a : rule->needs(m)) needed[place(a)] = true;
  }
  need(needed, pending);
  std::vector<Branch> out;
  for (int i = 0; i < branch_count; ++i)
    if (needed[static_cast<size_t>(i)]) out.push_back(static_cast<Branch>(i));
  return out;
}

std::optional<Factors> Guide::factors(const StepContext& context) const {
  StepContext m = context;
  Factors all = start;
  for (const auto& rule : rules_) {
    rule->direct(m);
    const auto f = rule->factors(m);
    if (!f) return std::nullopt;
    all = chained(all, *f);
  }
  return all;
}

// Rules that mend mostly keep the conditional prediction, rules that change do not.
bool Guide::acts(const StepContext& context) const {
  if (branches(context) != std::vector{Branch::cond}) return true;
  StepContext m = context;
  for (size_t i = 0; i < rules_.size(); ++i) {
    rules_[i]->direct(m);
    if (kinds_[i] != RuleKind::changes && !rules_[i]->changes_alone()) continue;
    const auto f = rules_[i]->factors(m);
    if (!f || f->own != 1 || !f->weights.empty()) return true;
  }
  return false;
}

std::vector<double> Guide::edges() const {
  std::vector<double> out;
  for (const auto& rule : rules_)
    for (const double sigma : rule->edges()) out.push_back(sigma);
  return out;
}

void Guide::apply(GuidedSample& s, const StepContext& context) {
  StepContext m = context;
  Factors pending = start;
  for (const auto& rule : rules_) {
    rule->direct(m);
    if (const auto f = rule->factors(m)) {
      pending = chained(pending, *f);
      continue;
    }
    sum(s, pending);
    pending = {.own = 1};
    apply_in_form(*rule, s, m);
  }
  if (pending.own != 1 || !pending.weights.empty()) sum(s, pending);
}

// ---- in memory -----------------------------------------------------------------------------

int64_t step_at(const std::vector<double>& sigmas, double sigma) {
  int64_t step = 0;
  const auto steps = static_cast<int64_t>(sigmas.size()) - 1;
  // Levels may have been rounded to f32 on the way.
  while (step + 1 < steps && sigmas[static_cast<size_t>(step) + 1] >= sigma * (1 - 1e-6)) ++step;
  return step;
}

std::function<OutputForm(double sigma)> raw_of(Prediction p, double sigma_data) {
  return [=](double sigma) { return output_form(p, sigma, sigma_data); };
}

StepContext step_context_of(const GuidanceCall& call, double sigma) {
  StepContext m{.sigma = sigma, .space = call.space};
  m.steps = std::max<int64_t>(1, static_cast<int64_t>(call.sigmas.size()) - 1);
  m.step = call.step ? call.step(sigma) : step_at(call.sigmas, sigma);
  const Prediction usual = call.space == Space::flow ? Prediction::flow : Prediction::eps;
  m.raw = call.raw ? call.raw(sigma) : output_form(usual, sigma);
  return m;
}

bool has_effect(const std::vector<RuleCall>& rules, const GuidanceCall& call, double highest) {
  if (call.sigmas.empty()) return false;
  const Guide guide(rules);
  const auto [last, first] = std::minmax_element(call.sigmas.begin(), call.sigmas.end());
  const double top = std::max(*first, highest);
  // At these levels and between two of them that follow each other nothing else changes.
  std::vector<double> levels = call.sigmas;
  levels.push_back(top);
  for (const double edge : guide.edges())
    if (edge > *last && edge < top) levels.push_back(edge);
  std::sort(levels.begin(), levels.end());
  const auto acts = [&](double sigma) {
    return sigma > 0 && guide.acts(step_context_of(call, sigma));
  };
  for (size_t i = 0; i < levels.size(); ++i)
    if (acts(levels[i]) || (i > 0 && acts(std::midpoint(levels[i - 1], levels[i])))) return true;
  return false;
}

namespace {

// One evaluation: the predictions of a batch, and its result.
template <class T>
struct Evaluation {
  std::vector<Branch> branches;
  std::array<std::vector<T>, branch_count> kept;  // buffers, reused
  std::array<std::span<T>, branch_count> predictions;

  void evaluate(const HostPredict<T>& predict, std::span<const T> x, double sigma,
                std::span<T> uncond) {
    std::vector<std::span<T>> wanted;
    for (const Branch a : branches) {
      auto& memory = kept[place(a)];
      const bool given = a == Branch::uncond && !uncond.empty();
      if (!given) memory.resize(x.size());
      predictions[place(a)] = given ? uncond : std::span<T>(memory);
      mark_unwritten<T>(predictions[place(a)]);
      wanted.push_back(predictions[place(a)]);
    }
    if (!branches.empty()) predict(x, sigma, branches, wanted);
    for (const Branch a : branches)
      require(!first_unwritten<T>(predictions[place(a)]), "guidance: the prediction '", name_of(a),
              "' was not written at sigma ", sigma);
  }
};

template <class T>
void sum_batch(const Factors& f, const Evaluation<T>& e, std::span<T> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    double total = 0;
    for (const auto& [branch, w] : f.weights)
      total += w * static_cast<double>(e.predictions[place(branch)][i]);
    out[i] = static_cast<T>(total);
  }
}

template <class T>
void apply_batch(Guide& guide, const GuidedShape& shape, const StepContext& m, Evaluation<T>& e,
                 std::span<const T> x, std::span<T> out) {
  const auto n = static_cast<size_t>(shape.sample());
  std::vector<double> state(n), result(n);
  GuidedSample s{shape, 0, result, state, std::vector<std::vector<double>>(branch_count)};
  for (; s.index < shape.batch; ++s.index) {
    const size_t at = static_cast<size_t>(s.index) * n;
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(at), n, state.begin());
    for (const Branch a : e.branches) {
      const auto values = e.predictions[place(a)].subspan(at, n);
      s.predictions[place(a)].assign(values.begin(), values.end());
    }
    guide.apply(s, m);
    std::transform(result.begin(), result.end(), out.begin() + static_cast<std::ptrdiff_t>(at),
                   [](double v) { return static_cast<T>(v); });
  }
}

void check(const GuidanceCall& call) {
  const GuidedShape& s = call.shape;
  require(s.batch > 0 && s.height > 0 && s.width > 0 && s.channels > 0,
          "guidance: sizes must be positive (", s.batch, " x ", s.height, " x ", s.width, " x ",
          s.channels, ")");
}

}  // namespace

template <class T>
HostDenoise<T> guided(HostPredict<T> predict, const std::vector<RuleCall>& rules,
                      GuidanceCall call) {
  check(call);
  const auto guide = std::make_shared<Guide>(rules);
  const auto e = std::make_shared<Evaluation<T>>();
  return [=, predict = std::move(predict), call = std::move(call)](
             std::span<const T> x, double sigma, std::span<T> denoised, std::span<T> uncond) {
    const auto size = static_cast<size_t>(call.shape.batch * call.shape.sample());
    require(x.size() == size, "guidance: the shape has ", size, " values, the state ", x.size());
    const StepContext m = step_context_of(call, sigma);
    e->branches = guide->branches(m);
    const bool has =
        std::find(e->branches.begin(), e->branches.end(), Branch::uncond) != e->branches.end();
    if (!uncond.empty() && !has)
      e->branches.insert(std::upper_bound(e->branches.begin(), e->branches.end(), Branch::uncond),
                         Branch::uncond);
    e->evaluate(predict, x, sigma, uncond);
    if (const auto f = guide->factors(m))
      sum_batch<T>(*f, *e, denoised);
    else
      apply_batch<T>(*guide, call.shape, m, *e, x, denoised);
  };
}

template HostDenoise<float> guided(HostPredict<float>, const std::vector<RuleCall>&, GuidanceCall);
template HostDenoise<double> guided(HostPredict<double>, const std::vector<RuleCall>&,
                                    GuidanceCall);

}  // namespace ebb
