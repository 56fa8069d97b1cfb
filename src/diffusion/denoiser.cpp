#include "diffusion/denoiser.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "diffusion/denoiser_graph.h"
#include "diffusion/solver/not_finite.h"

namespace ebb {

using namespace denoising;

static float as_float(double v) { return static_cast<float>(v); }

// ---- vectors -------------------------------------------------------------------------------

// The lowest free one is taken: a state is a sum over slots in their order, so that the same run
// gives the same bits only if its vectors lie in the same slots.
struct Denoiser::Slots {
  std::vector<int64_t> free;  // descending
};

struct Denoiser::Slot : StoredLatent {
  Slot(std::shared_ptr<Slots> s, int64_t i) : slots(std::move(s)), index(i) {}
  ~Slot() override {
    auto& free = slots->free;
    free.insert(std::ranges::lower_bound(free, index, std::greater()), index);
  }
  std::shared_ptr<Slots> slots;
  int64_t index;
};

size_t Denoiser::slot_of(const StoredLatent& vector) {
  return static_cast<size_t>(static_cast<const Slot&>(vector).index);
}

// Class ids and numbers cost nothing by themselves; what follows from others is computed once.
static HoistedGraph hoisted_of(const Graph& g, const DenoiserOptions& o) {
  return hoist(g, [&](const Source& s) {
    const auto c = std::ranges::find(o.conditions, s.name, &nn::Condition::name);
    return c != o.conditions.end() && c->shape.rank() > 1;
  });
}

Denoiser::Denoiser(const DiffusionConfig& config, const nn::Network& network,
                   const DenoiserOptions& options, const Context& context)
    : Denoiser(config, options, context,
               hoisted_of(denoiser_graph(config, network, options), options)) {}

Denoiser::Denoiser(const DiffusionConfig& config, const DenoiserOptions& options,
                   const Context& context, const HoistedGraph& graphs)
    : precond_(config),
      options_(options),
      context_(context),
      plan_(graphs.step, context, {.weights = options.weights}),
      slots_(std::make_shared<Slots>()),
      keys_{.images = std::vector<int64_t>(static_cast<size_t>(options.batch))} {
  for (int64_t k = vectors_of(options); k-- > 0;) {
    slots_->free.push_back(k);
    const Type type{DType::f32, batch_shape(options)};
    plan_.bind(str("latent.", k), Tensor(type, context.allocate(type.bytes())));
  }
  if (!graphs.states.empty())
    hoisted_ =
        std::make_unique<Plan>(graphs.hoisted, context, CompileOptions{.weights = options.weights});
  for (const std::string& name : graphs.states) {
    const Type type = graphs.step.type(graphs.step.find_source(name)->value);
    const Tensor state(type, context.allocate(type.bytes()));
    plan_.bind(name, state);
    hoisted_->bind(name, state);
  }
  for (const nn::Condition& c : options.conditions) condition(c.name, c.nulls(options.batch));
  if (restores()) {  // without a call of restore() nothing is known
    KnownImages all;
    all.mask.assign(static_cast<size_t>(batch_shape(options).numel()), 1.0);
    restore(all);
  }
  if (!options.draws) return;
  plan_.keep("seed", scalar_tensor(int64_t{0}));
  plan_.keep("images", tensor_of(keys_.images, {options.batch}));
}

void Denoiser::bind(std::string_view name, const Tensor& tensor) {
  if (hoisted_ && hoisted_->graph().find_source(name)) {
    hoisted_->bind(name, tensor);
    stale_ = true;
    if (!plan_.graph().find_source(name)) return;
  }
  plan_.bind(name, tensor);
}

// `value` is not written any more.
void Denoiser::keep(std::string_view input, const Tensor& value) {
  if (!hoisted_ || !hoisted_->graph().find_source(input)) return plan_.keep(input, value);
  Tensor& before = hoisted_of_[std::string(input)];
  if (before.defined() &&
      std::memcmp(before.raw(), value.raw(), static_cast<size_t>(value.bytes())) == 0)
    return;
  before = {};
  stale_ = true;
  hoisted_->keep(input, value);
  if (plan_.graph().find_source(input)) plan_.keep(input, value);
  before = value;
}

void Denoiser::refresh() {
  plan_.refresh();
  if (hoisted_) hoisted_->refresh();
}

void Denoiser::release() {
  plan_.release();
  if (hoisted_) hoisted_->release();
}

Latent Denoiser::take_slot() {
  require(!slots_->free.empty(), "denoiser: the sampler holds more than the ", options_.vectors,
          " vectors that it was made for");
  const int64_t k = slots_->free.back();
  slots_->free.pop_back();
  if (waits_ && waits_->slot == static_cast<size_t>(k)) waits_.reset();  // nobody wanted it
  return Latent(std::make_shared<Slot>(slots_, k));
}

void Denoiser::condition(std::string_view name, const Tensor& value,
                         const std::vector<Tensor>& others) {
  const auto c = std::ranges::find(options_.conditions, name, &nn::Condition::name);
  require(c != options_.conditions.end(), "denoiser: it is given no condition '", name, "'");
  c->check(value, options_.batch, "denoiser");
  require(others.empty() || std::ssize(others) + 1 == branches_of(options_),
          "denoiser: a condition needs a value for each of ", branches_of(options_),
          " branches (got ", others.size() + 1, ")  ", name);
  require(others.empty() || c->guided, "denoiser: ", name,
          " has no negative value: guidance does not concern it");
  require(value.buffer()->on_host(), "denoiser: conditions must lie on the host  ", c->name);
  if (!options_.guided()) return keep(name, value.clone());
  std::vector<Tensor> all = {value};
  for (const Tensor& other : others) {
    c->check(other, options_.batch, "denoiser: negative");
    all.push_back(other);
  }
  while (std::ssize(all) < branches_of(options_))
    all.push_back(c->guided ? c->nulls(options_.batch) : value);
  Tensor out(c->type(branches_of(options_) * options_.batch));
  for (int64_t i = 0; i < branches_of(options_); ++i) {
    const Tensor& from = all[static_cast<size_t>(i)];
    require(from.buffer()->on_host(), "denoiser: conditions must lie on the host  ", c->name);
    std::memcpy(out.rows(i * options_.batch, (i + 1) * options_.batch).raw(), from.raw(),
                static_cast<size_t>(from.bytes()));
  }
  keep(name, out);
}

void Denoiser::weigh(std::vector<double> weights) {
  require(std::ssize(weights) == std::ranges::count(options_.branches, Branch::cond),
          "denoiser: each part of a prompt needs a weight (",
          std::ranges::count(options_.branches, Branch::cond), " and ", weights.size(), ")");
  for (const double w : weights)
    require(std::isfinite(w), "denoiser: the weight of a prompt must be finite (", w, ")");
  require(options_.guided() || weights[0] == 1, "denoiser: the weight of a prompt (", weights[0],
          ") needs a denoiser made for guidance");
  parts_ = std::move(weights);
}

void Denoiser::guidance(double scale) {
  require(std::isfinite(scale), "denoiser: guidance must be finite (", scale, ")");
  require(options_.guided() || scale == 1, "denoiser: guidance (", scale,
          ") needs a denoiser made for it");
  guide_.reset();
  if (scale != 1) guide({{"cfg", {{"scale", number_text(scale)}}}}, {});
}

void Denoiser::guide(const std::vector<RuleCall>& rules, GuidanceCall call) {
  require(options_.guided() || !has_guidance(rules),
          "denoiser: guidance rules need a denoiser made for them");
  check_branches(rules, options_.branches);
  guide_ = std::make_unique<Guide>(rules);
  call_ = std::move(call);
  call_.shape = {options_.batch, options_.image[0], options_.image[1], options_.image[2]};
  call_.raw = [precond = precond_, apart = options_.timesteps_apart](double sigma) {
    const PrecondNumbers c = precond.at(sigma, apart);
    return OutputForm{c.skip, c.out};
  };
}

void Denoiser::restore(const KnownImages& known) {
  require(restores(), "denoiser: known regions need a denoiser made for them");
  const Type images{DType::f32, batch_shape(options_)};
  const auto keep_as = [&](const char* name, const State& values) {
    Tensor t(images);
    const auto to = t.span<float>();
    require(values.empty() || values.size() == to.size(), "denoiser: ", name, " must have ",
            to.size(), " numbers (got ", values.size(), ")");
    if (values.empty())
      std::ranges::fill(to, 0.0f);
    else
      std::ranges::transform(values, to.begin(), as_float);
    plan_.keep(name, t);
  };
  keep_as("known.mask", known.mask);
  keep_as("known.data", known.data);
  if (options_.restores_input) keep_as("known.noise", known.noise);
  known_space_ = known.space;
}

void Denoiser::store(size_t slot, std::span<const double> values) {
  Tensor host(DType::f32, batch_shape(options_));
  const auto to = host.span<float>();
  require(to.size() == values.size(), "denoiser: needs a state of ", to.size(), " numbers (got ",
          values.size(), ")");
  std::transform(values.begin(), values.end(), to.begin(), as_float);
  context_.device->copy(host, plan_.bound(str("latent.", slot)));
}

Latent Denoiser::put(std::span<const double> values) {
  const Latent x = take_slot();
  store(slot_of(x), values);
  return x;
}

void Denoiser::apply_rules(const Latent& guided, const std::vector<Latent>& others, const Latent& x,
                           const StepContext& context) {
  State result = values(guided);
  const State state = values(x);
  const std::vector<Branch> kinds = others_of(options_);
  std::vector<State> all(branch_count);
  all[static_cast<size_t>(Branch::cond)] = result;
  for (size_t k = 0; k < kinds.size(); ++k) all[static_cast<size_t>(kinds[k])] = values(others[k]);
  const auto size = static_cast<size_t>(call_.shape.sample());
  for (int64_t i = 0; i < options_.batch; ++i) {
    const auto part = [&](auto& v) {
      return std::span(v).subspan(static_cast<size_t>(i) * size, size);
    };
    GuidedSample s{.shape = call_.shape,
                   .index = i,
                   .result = part(result),
                   .state = part(state),
                   .predictions = std::vector<State>(branch_count)};
    for (size_t k = 0; k < all.size(); ++k)
      if (!all[k].empty()) s.predictions[k].assign(part(all[k]).begin(), part(all[k]).end());
    guide_->apply(s, context);
  }
  store(slot_of(guided), result);
}

// Of the predictions of all branches. Parts of a prompt share the weight of the condition.
std::vector<double> Denoiser::row_weights(const Factors& factors) const {
  const double cond = factors.weight(Branch::cond);
  std::vector<double> out;
  double shares = 0;
  size_t part = 0;
  for (const Branch b : options_.branches) {
    if (b != Branch::cond) {
      out.push_back(factors.weight(b));
      continue;
    }
    const double share = parts_.empty() ? 1 : parts_[part++];
    out.push_back(cond * share);
    shares += share;
  }
  if (!parts_.empty()) out[1] += cond * (1 - shares);
  return out;
}

void Denoiser::set(std::string_view input, double value) {
  auto it = inputs_.find(input);
  if (it == inputs_.end()) it = inputs_.emplace(std::string(input), Tensor(DType::f32, {})).first;
  it->second.span<float>()[0] = as_float(value);
}

void Denoiser::write_inputs(const Latent& x, double sigma, const Factors& weights) {
  const PrecondNumbers c = precond_.at(sigma, options_.timesteps_apart);
  set("c_skip", c.skip), set("c_out", c.out), set("c_in", c.in), set("c_noise", c.noise);
  if (options_.guided()) {
    const std::vector<double> rows = row_weights(weights);
    for (size_t b = 0; b < rows.size(); ++b) set(weight_of(b), rows[b]);
  }
  if (options_.clean_input)
    set("known.scale", vp_norm(sigma)), set("known.level", 0);
  else if (options_.restores_input)
    set("known.scale", alpha_of(known_space_, sigma)), set("known.level", sigma);
  if (options_.draws) {
    set("fresh", 0);
    inputs_["draw"] = scalar_tensor(waits_ ? waits_->index : int64_t{0});
  }
  for (size_t k = 0; k < static_cast<size_t>(vectors_of(options_)); ++k)
    set(mix_of(k), 0), set(role_of(k), 0);
  for (const Latent::Term& t : x.terms()) {
    require(std::isfinite(as_float(t.factor)), "sample: a factor of the state is not finite (",
            t.factor, ") at noise level ", sigma);
    const size_t k = slot_of(*t.vector);
    set(waits_ && k == waits_->slot ? "fresh" : mix_of(k), t.factor);
  }
}

Denoised Denoiser::denoise(Latent& x, double sigma, bool with_uncond) {
  require(!with_uncond || options_.guided(),
          "denoiser: the sampler needs unconditional predictions: guidance must be on");
  const Factors alone{.weights = {{Branch::cond, 1}}};
  const StepContext context = guide_ ? step_context_of(call_, sigma) : StepContext{};
  const std::optional<Factors> factors = guide_ ? guide_->factors(context) : alone;
  write_inputs(x, sigma, factors.value_or(alone));
  const auto slot = [&](double what) {
    const Latent stored = take_slot();
    set(role_of(slot_of(stored)), what);
    return stored;
  };
  if (x.alone() == nullptr) {
    x = {};  // its vectors may be written: they are read first
    x = slot(takes_x);
  }
  const Latent guided = slot(takes_guided);
  std::vector<Latent> others;
  const size_t stored = !factors ? others_of(options_).size() : with_uncond ? 1 : 0;
  for (size_t k = 0; k < stored; ++k) others.push_back(slot(takes_others + static_cast<double>(k)));
  if (waits_) set(role_of(waits_->slot), takes_noise(options_));
  const uint64_t version = options_.weights ? options_.weights->version() : 0;
  if (hoisted_ && (stale_ || hoisted_version_ != version)) {
    stale_ = true;
    hoisted_->run({});
    if (hoisted_leaves_) {
      hoisted_->release();
      if (options_.weights) options_.weights->drop_unused(*context_.device);
    }
  }
  stale_ = false, hoisted_version_ = version;
  plan_.run(inputs_);
  waits_.reset();
  ++evaluations_;
  if (!factors) apply_rules(guided, others, x, context);
  return {guided, with_uncond ? others[0] : Latent()};
}

// ---- noise ---------------------------------------------------------------------------------

void Denoiser::noise_from(NoiseFill fill) {
  draw_now();  // by the source before
  fill_ = std::move(fill);
  keys_.elements = 0;
}

void Denoiser::draw_by(uint64_t seed, std::vector<int64_t> images) {
  require(options_.draws, "denoiser: draws need a denoiser made for them");
  require(static_cast<int64_t>(images.size()) == options_.batch,
          "denoiser: needs a number for each of ", options_.batch, " images (got ", images.size(),
          ")");
  draw_now();
  keys_ = {.seed = seed, .images = std::move(images), .elements = options_.image.numel()};
  plan_.keep("seed", scalar_tensor(static_cast<int64_t>(keys_.seed)));
  plan_.keep("images", tensor_of(keys_.images, {options_.batch}));
  fill_ = keyed_noise(keys_);
}

void Denoiser::draw_now() {
  if (!waits_) return;
  State z(static_cast<size_t>(batch_shape(options_).numel()));
  fill_(z, {.index = waits_->index});
  store(waits_->slot, z);
  waits_.reset();
}

Latent Denoiser::noise(const NoiseDraw& draw, double clip) {
  require(static_cast<bool>(fill_), "denoiser: the sampler needs a source of noise");
  if (keys_.elements > 0 && clip == 0) {
    draw_now();  // the one before: a run draws one
    const Latent z = take_slot();
    waits_ = {slot_of(z), draw.index};
    return z;
  }
  State z(static_cast<size_t>(batch_shape(options_).numel()));
  fill_(z, draw);
  if (clip > 0) clip_to_deviations(z, clip);
  return put(z);
}

State Denoiser::values(const Latent& x) {
  draw_now();
  State sum(static_cast<size_t>(batch_shape(options_).numel()), 0.0);
  for (const Latent::Term& t : x.terms()) {
    const size_t k = slot_of(*t.vector);
    const Tensor host = plan_.fetch(str("latent.", k));
    const auto v = host.span<float>();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += t.factor * static_cast<double>(v[i]);
  }
  for (const double v : sum) require_finite(std::isfinite(v), "sample: the state is not finite");
  return sum;
}

double Denoiser::distance(const Latent& a, const Latent& b, const Latent& before, Tolerance t) {
  return scaled_distance(values(a), values(b), values(before), t);
}

State Denoiser::operator()(const State& x, double sigma) {
  Latent start = put(x);
  return values(denoise(start, sigma, false).guided);
}

}  // namespace ebb
