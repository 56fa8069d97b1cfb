#include "diffusion/denoiser_graph.h"

#include <functional>
#include <optional>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/random/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/split/op.h"
#include "passes/precision/mixed_precision.h"

namespace ebb {

using namespace denoising;

Shape denoising::batch_shape(const DenoiserOptions& o) {
  require(o.image.rank() == 3 && o.batch > 0, "denoiser: needs images {H,W,C} and a batch  got ",
          o.image, ", ", o.batch);
  require(!o.branches.empty() && o.branches[0] == Branch::cond &&
              (!o.guided() || o.branches[1] == Branch::uncond) &&
              std::ranges::count(o.branches, Branch::uncond) <= 1,
          "denoiser: the first branches must be the condition's and the negative one's");
  require(!o.guided() || std::ranges::any_of(o.conditions, &nn::Condition::guided),
          "denoiser: guidance needs a condition that it is given");
  Shape shape{o.batch};
  for (const int64_t size : o.image) shape.push_back(size);
  return shape;
}

namespace {

// The network's prediction of the mean, without that of the variance.
Value mean_part(const DiffusionConfig& config, Value f, Shape images) {
  const int64_t channels = images[-1];
  if (config.learn_sigma) images[-1] *= 2;
  require(f.shape() == images, "denoiser: the network must return ", images, "  got ", f.type(),
          config.learn_sigma ? "  (learn_sigma)" : "");
  return ops::slice(f, 3, 0, channels);
}

Value scalar(Graph& g, std::string_view name) { return g.input(name, {DType::f32, {}}); }

std::vector<Value> scalars(Graph& g, const DenoiserOptions& o, std::string (*name)(size_t k)) {
  std::vector<Value> out;
  for (size_t k = 0; k < static_cast<size_t>(vectors_of(o)); ++k) out.push_back(scalar(g, name(k)));
  return out;
}

// Noise of the draw that is asked for.
Value drawn(Graph& g, const DenoiserOptions& o) {
  const ops::RandomKeys keys{.seed = g.input("seed", {DType::i64, {}}),
                             .image = g.input("images", {DType::i64, {o.batch}}),
                             .step = g.input("draw", {DType::i64, {}})};
  return ops::random_normal(keys, o.image, "sample.step");
}

// Pointwise expressions of any number of values, as one node.
std::vector<Value> expressions(
    const std::vector<Value>& in,
    const std::function<std::vector<Scalar>(const std::vector<Scalar>& v)>& f) {
  std::vector<Scalar> v;
  for (size_t i = 0; i < in.size(); ++i) v.push_back(Scalar::input(static_cast<int64_t>(i)));
  const Expr expr(static_cast<int64_t>(in.size()), f(v));
  return ops::pointwise(*in[0].graph, {expr, {}, DType::f32}, in);
}

// sum_k factor_k term_k; what a term holds does not matter where its factor is 0.
Value mixed(const std::vector<Value>& terms, const std::vector<Value>& factors) {
  std::vector<Value> in = terms;
  in.insert(in.end(), factors.begin(), factors.end());
  return expressions(in, [count = terms.size()](const std::vector<Scalar>& v) {
    Scalar sum = 0.0;
    for (size_t k = 0; k < count; ++k)
      sum = sum + select(less(0.0, abs(v[count + k])), v[count + k] * v[k], 0.0);
    return std::vector<Scalar>{sum};
  })[0];
}

// What becomes of all vectors by their roles, in one pass: themselves or one of `choices`.
std::vector<Value> renewed(const std::vector<Value>& latents, const std::vector<Value>& choices,
                           const std::vector<Value>& roles) {
  std::vector<Value> in = latents;
  in.insert(in.end(), choices.begin(), choices.end());
  in.insert(in.end(), roles.begin(), roles.end());
  return expressions(in, [count = latents.size(), first_role = latents.size() + choices.size()](
                             const std::vector<Scalar>& v) {
    std::vector<Scalar> results(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(count));
    for (size_t k = 0; k < count; ++k)
      for (size_t c = count; c < first_role; ++c)
        results[k] =
            select(less(v[first_role + k], static_cast<double>(c - count) + 0.5), results[k], v[c]);
    return results;
  });
}

// The output for all branches, [B N,H,W,C].
Value network_output(const DiffusionConfig& config, const nn::Network& network,
                     const DenoiserOptions& o, Value x) {
  Graph& g = *x.graph;
  const int64_t branches = branches_of(o), calls = o.together ? 1 : branches;
  Shape images = x.shape();
  images[0] = branches * o.batch / calls;
  nn::ValuesByName conditions;
  for (const nn::Condition& c : o.conditions)
    conditions[c.name] = g.input(c.name, c.type(branches * o.batch));
  const Value scaled = ops::map({x, scalar(g, "c_in")}, [](auto v) { return v[0] * v[1]; });
  nn::NetworkInputs call;
  call.x = images[0] == o.batch
               ? scaled
               : ops::concat(std::vector<Value>(static_cast<size_t>(branches), scaled), 0);
  call.noise = ops::broadcast_to(scalar(g, "c_noise"), {images[0]});
  std::vector<Value> outputs;
  for (int64_t i = 0; i < calls; ++i) {
    for (const auto& [name, value] : conditions)
      call.conditions[name] =
          calls == 1 ? value : ops::slice(value, 0, i * o.batch, (i + 1) * o.batch);
    outputs.push_back(mean_part(config, network(g, call), images));
  }
  return calls == 1 ? outputs[0] : ops::concat(outputs, 0);
}

// What known regions are restored by.
struct Known {
  Value mask, data, noise;

  Known(Graph& g, const DenoiserOptions& o) {
    const Type images{DType::f32, batch_shape(o)};
    mask = g.input("known.mask", images), data = g.input("known.data", images);
    if (o.restores_input) noise = g.input("known.noise", images);
  }
  Value input(Value x) const {
    Graph& g = *x.graph;
    return ops::map(
        {x, mask, data, noise, scalar(g, "known.scale"), scalar(g, "known.level")},
        [](auto v) { return v[1] * v[0] + (1.0 - v[1]) * (v[4] * v[2] + v[5] * v[3]); });
  }
  Value output(Value d) const {
    return ops::map({d, mask, data}, [](auto v) { return v[1] * v[0] + (1.0 - v[1]) * v[2]; });
  }
};

struct Predictions {
  Value guided;
  std::vector<Value> others;  // as others_of(), at least one
};

Predictions predictions(const DiffusionConfig& config, const nn::Network& network,
                        const DenoiserOptions& o, Value x) {
  Graph& g = *x.graph;
  const Value c_skip = scalar(g, "c_skip"), c_out = scalar(g, "c_out");
  const Value f = network_output(config, network, o, x);
  const auto data = [&](Value output) {
    return ops::map(
        {x, output, c_skip, c_out}, [](auto v) { return v[0] * v[2] + v[1] * v[3]; }, DType::f32);
  };
  if (!o.guided()) return {data(f), {data(f)}};
  const auto outputs = ops::split(f, 0, branches_of(o));
  std::vector<Value> in = {x, c_skip, c_out};
  in.insert(in.end(), outputs.begin(), outputs.end());
  for (size_t b = 0; b < outputs.size(); ++b) in.push_back(scalar(g, weight_of(b)));
  const Value guided = expressions(in, [count = outputs.size()](const std::vector<Scalar>& v) {
    const auto *output = &v[3], *weight = &v[3 + count];
    Scalar sum = weight[0], outputs_sum = weight[0] * output[0];
    for (size_t b = 1; b < count; ++b)
      sum = sum + weight[b], outputs_sum = outputs_sum + weight[b] * output[b];
    return std::vector<Scalar>{sum * v[1] * v[0] + v[2] * outputs_sum};
  })[0];
  Predictions out{guided, {}};
  for (const Branch kind : others_of(o))
    out.others.push_back(data(
        outputs[static_cast<size_t>(std::ranges::find(o.branches, kind) - o.branches.begin())]));
  return out;
}

}  // namespace

Graph denoiser_graph(const DiffusionConfig& config, const nn::Network& network,
                     const DenoiserOptions& o) {
  Graph g;
  const Type images{DType::f32, batch_shape(o)};
  std::vector<Value> latents;
  for (int64_t k = 0; k < vectors_of(o); ++k)
    latents.push_back(g.source(Source::Kind::state, str("latent.", k), images));
  std::vector<Value> terms = latents, factors = scalars(g, o, mix_of);
  if (o.draws) {
    terms.push_back(drawn(g, o));
    factors.push_back(scalar(g, "fresh"));
  }
  const Value x = mixed(terms, factors);
  std::optional<Known> known;
  if (o.restores_input || o.restores_output) known.emplace(g, o);
  const Value seen = o.restores_input ? known->input(x) : x;
  Predictions d = predictions(config, network, o, seen);
  if (o.clean_input) {
    const auto moved = [&](Value v) {
      return ops::map({v, x, seen}, [](auto in) { return in[0] + (in[1] - in[2]); });
    };
    d.guided = moved(d.guided);
    for (Value& other : d.others) other = moved(other);
  }
  if (o.restores_output) {
    d.guided = known->output(d.guided);
    for (Value& other : d.others) other = known->output(other);
  }
  std::vector<Value> choices = {x, d.guided};
  choices.insert(choices.end(), d.others.begin(), d.others.end());
  if (o.draws) choices.push_back(terms.back());
  const std::vector<Value> next = renewed(latents, choices, scalars(g, o, role_of));
  for (size_t k = 0; k < next.size(); ++k) g.update(str("latent.", k), next[k]);
  return mixed_precision(circular_padding(g, o.tiling), o.dtype, Parameters::rounded);
}

}  // namespace ebb
