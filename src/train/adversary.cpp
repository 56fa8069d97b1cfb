#include "train/adversary.h"

#include "nn/patch_discriminator.h"
#include "ops/add/op.h"
#include "ops/prim/all_reduce/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/stop_gradient/op.h"
#include "passes/gradients.h"

namespace ebb::train {
namespace {

constexpr const char *disc_loss = "told.disc_loss", *gan_loss = "told.gan_loss";
constexpr double least_norm = 1e-4, most_weight = 1e4;

// The mean over all scores of f(score), f32[].
Value mean_of(Value scores, auto&& f) {
  const double share = 1.0 / static_cast<double>(scores.shape().numel());
  const Value sum = ops::sum_of({scores}, {0, 1, 2, 3}, [&](auto v) { return f(v[0]) * share; });
  return ops::reshape(sum, {});
}

// `g` with the f32[] output "norm.<of>": of the gradient of its output `of` by the last layer.
Graph with_norm(const Graph& g, const std::string& of, const MadePictures& made) {
  const std::string wrt[] = {made.last_layer};
  Graph out = gradients(g, of, wrt);
  const AtScope at(out, str(adversary_prefix, ".weight"));
  Value d = out.take_output("grad." + made.last_layer);
  if (made.ranks > 1) d = ops::all_reduce(d, made.ranks);
  const Value flat = ops::reshape(d, {-1});
  const Value square = ops::sum_of({flat}, {0}, [](auto v) { return v[0] * v[0]; });
  const double mean = 1.0 / static_cast<double>(made.ranks);
  out.output("norm." + of,
             ops::map({ops::reshape(square, {})}, [&](auto v) { return sqrt(v[0]) * mean; }));
  return out;
}

// Both losses, each times what it counts at this step. "loss" gets their gradient, not their value.
void add_to_loss(Graph& g, const Adversary& a, const MadePictures& made) {
  const AtScope at(g, std::string(adversary_prefix));
  const auto start = static_cast<double>(a.start);
  const Value acts = ops::map({ops::cast(g.find("step"), DType::f32)},
                              [&](auto v) { return select(less(v[0], start), 0.0, 1.0); });
  const Value weight = ops::stop_gradient(ops::map(
      {acts, g.take_output("norm." + made.reconstruction), g.take_output(str("norm.", gan_loss))},
      [&](auto v) { return v[0] * min(v[1] / (v[2] + least_norm), most_weight) * a.weight; }));
  const Value disc = g.take_output(disc_loss), gan = g.take_output(gan_loss);
  const Value added =
      ops::map({acts, disc, weight, gan}, [](auto v) { return v[0] * v[1] + v[2] * v[3]; });
  g.output("loss", ops::map({g.take_output("loss"), added, ops::stop_gradient(added)},
                            [](auto v) { return v[0] + (v[1] - v[2]); }));
  g.output(disc_loss, disc);
  g.output(gan_loss, gan);
  g.output("told.gan_weight", weight);
}

}  // namespace

nn::Weights weights_of(const Adversary& a, int64_t image_channels) {
  Graph g;
  nn::Weights out;
  const int64_t side = nn::least_discriminated_side;
  const Value x = g.input("x", {DType::f32, {1, side, side, image_channels}});
  nn::patch_discriminator(nn::Params(g, std::string(adversary_prefix), &out), x, a.channels);
  for (nn::Weight& w : out) w.spec.decay = false;
  return out;
}

Graph with_adversary(const Graph& loss, const Adversary& a, const MadePictures& made) {
  Graph g = loss;
  const nn::Params p(g, std::string(adversary_prefix));
  const Value pictures = g.take_output(made.pictures);
  const auto scores = [&](const nn::Params& of, Value x) {
    return nn::patch_discriminator(of, x, a.channels);
  };
  const Value of_real = scores(p, g.find("images"));
  const Value of_made = scores(p, ops::stop_gradient(pictures));
  g.output(gan_loss, mean_of(scores(p.constant(), pictures), [](auto v) { return -v; }));
  g.output(disc_loss, mean_of(of_real, [](auto v) { return max(1.0 - v, 0.0) * 0.5; }) +
                          mean_of(of_made, [](auto v) { return max(1.0 + v, 0.0) * 0.5; }));
  g = with_norm(with_norm(g, made.reconstruction, made), gan_loss, made);
  g.take_output(made.reconstruction);
  add_to_loss(g, a, made);
  verify(g, "with_adversary");
  return g;
}

}  // namespace ebb::train
