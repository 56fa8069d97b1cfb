#include "train/step.h"

#include <cmath>

#include "base/error.h"
#include "ops/clip_scale/op.h"
#include "ops/prim/pointwise/op.h"
#include "passes/gradients.h"
#include "passes/mixed_precision.h"

namespace ebb::train {
namespace {

constexpr double largest = 3.4e38;  // an f32 above it is infinite

Value scalar(Graph& g, std::string_view name) { return g.input(name, {DType::f32, {}}); }

// What the weights' updates share.
struct Shared {
  Value lr, c1, c2, clip, ema_decay;
};

// Adds each gradient to the sum of its step.
void accumulate(Graph& g, const std::vector<std::string>& params, std::vector<Value>& grads) {
  const Value first = scalar(g, "step.first"), share = scalar(g, "step.share");
  for (size_t i = 0; i < params.size(); ++i) {
    const std::string name = "acc." + params[i];
    const Value acc = g.source(Source::Kind::state, name, grads[i].type());
    grads[i] = ops::map({acc, grads[i], first, share},
                        [](auto x) { return select(x[2], 0.0, x[0]) + x[1] * x[3]; });
    g.update(name, grads[i]);
  }
}

void update_param(Graph& g, const std::string& name, Value grad, const Shared& s,
                  const StepOptions& o) {
  const Value p = g.find(name);
  const Type type = p.type();
  ops::AdamWInputs in{.p = p, .g = grad, .lr = s.lr, .c1 = s.c1, .c2 = s.c2, .clip = s.clip};
  in.m = g.source(Source::Kind::state, "m." + name, type);
  in.v = g.source(Source::Kind::state, "v." + name, type);
  if (o.ema) {
    in.ema = g.source(Source::Kind::state, "ema." + name, type);
    in.ema_decay = s.ema_decay;
  }
  ops::AdamW attrs = o.adamw;
  if (!g.find_source(name)->info.decay) attrs.weight_decay = 0;
  const ops::AdamWResults out = ops::adamw(in, attrs);
  g.update(name, out.p);
  g.update("m." + name, out.m);
  g.update("v." + name, out.v);
  if (o.ema) g.update("ema." + name, out.ema);
}

}  // namespace

std::vector<std::string> trained_params(const Graph& g) {
  std::vector<std::string> out;
  for (const Source& s : g.sources())
    if (s.kind == Source::Kind::param) out.push_back(s.name);
  return out;
}

Graph train_step(const Graph& loss, const StepOptions& o) {
  const std::vector<std::string> params = trained_params(loss);
  require(!params.empty(), "train: the loss has no parameters");
  Graph g = gradients(mixed_precision(loss, o.dtype), "loss", params);
  const AtScope at(g, "optimiser");
  std::vector<Value> grads;
  for (const std::string& name : params) {
    require(g.find(name).dtype() == DType::f32, "train: parameters must be f32  ", name);
    grads.push_back(g.take_output("grad." + name));
  }
  const Value l = g.take_output("loss");
  if (o.accumulate) accumulate(g, params, grads);
  const auto clip = ops::clip_scale(grads, {o.max_norm});
  // A loss that is not finite counts like a gradient that is not.
  const Value go =
      ops::map({clip.scale, l}, [](auto x) { return select(less(abs(x[1]), largest), x[0], 0.0); });
  Shared s{.lr = scalar(g, "step.lr"), .c1 = scalar(g, "step.c1"), .c2 = scalar(g, "step.c2")};
  s.clip = o.accumulate
               ? ops::map({go, scalar(g, "step.apply")}, [](auto x) { return x[0] * x[1]; })
               : go;
  if (o.ema) s.ema_decay = scalar(g, "step.ema_decay");
  for (size_t i = 0; i < params.size(); ++i) update_param(g, params[i], grads[i], s, o);
  g.output("loss", l);
  g.output("grad_norm", clip.norm);
  g.output("finite", ops::map({go}, [](auto x) { return less(0.0, x[0]); }));
  verify(g, "train_step");
  return g;
}

NamedTensors step_inputs(const StepInputs& in, const StepOptions& o) {
  NamedTensors out;
  const auto set = [&](const char* name, double v) {
    out[name] = scalar_tensor(static_cast<float>(v));
  };
  const auto t = static_cast<double>(in.step + 1);
  set("step.lr", in.lr);
  set("step.c1", -std::expm1(t * std::log(o.adamw.beta1)));
  set("step.c2", -std::expm1(t * std::log(o.adamw.beta2)));
  if (o.ema) set("step.ema_decay", in.ema_decay);
  if (!o.accumulate) return out;
  set("step.first", in.micro_batch == 0);
  set("step.share", 1.0 / static_cast<double>(in.micro_batches));
  set("step.apply", in.micro_batch + 1 == in.micro_batches);
  return out;
}

}  // namespace ebb::train
