// Training on several ranks: whatever is split, and on however many, the same weights as on one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/add/op.h"
#include "ops/mse/op.h"
#include "ops/prim/all_gather/op.h"
#include "ops/prim/all_reduce/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/reduce_scatter/op.h"
#include "ops/silu/op.h"
#include "passes/schedule/place_collectives.h"
#include "runtime/plan.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/hashed_weights.h"
#include "support/thread_ranks.h"
#include "train/config.h"

namespace ebb::ranks_test {
namespace {

using testing::FarDevice;
using testing::ThreadRanks;
using train::Shard;
using train::Split;
using train::StepOptions;

constexpr int64_t width = 32, batch = 8, steps = 3;
constexpr double rate = 1e-2;
using Weights = std::map<std::string, std::vector<float>>;

// Two blocks x + b silu(a x + c): weights that are split, and biases that are too small to be.
Graph network(int64_t rows, int64_t hidden = 2 * width) {
  Graph g;
  const Value target = g.input("target", {DType::f32, {rows, width}});
  Value x = g.input("x", {DType::f32, {rows, width}});
  const auto weight = [&](const std::string& name, Shape shape) {
    return g.source(Source::Kind::param, name, {DType::f32, std::move(shape)});
  };
  for (int i = 0; i < 2; ++i) {
    const Value a = weight(str("a.", i), {hidden, width}), c = weight(str("c.", i), {hidden});
    const Value b = weight(str("b.", i), {width, hidden});
    x = x + ops::linear(ops::silu(ops::linear(x, a, c)), b, {});
  }
  g.output("loss", ops::mse(x, target));
  return g;
}

struct Trained {
  Weights weights;
  std::vector<double> losses, norms;
  int64_t own_elements = 0;  // of sources
};

struct How {
  int64_t ranks = 1;
  Shard shard = Shard::none;
  int64_t micro_batches = 1;
  DType dtype = DType::f32, sent = DType::f32;
  std::string optimizer = "adamw", options = {};
  int64_t rows = 2 * width;  // of a block's first matrix
};

// The rank's rows of image `first` and on.
Tensor rows_of(const char* name, int64_t step, int64_t first, int64_t count) {
  const Tensor all = testing::hashed_input(str(name, step), {batch, width});
  return all.rows(first, first + count).clone();
}

// What the optimiser keeps begins as it does in a run.
void bind_weights(Plan& plan, const Graph& loss, const Split& split,
                  const train::Optimizer& optimizer) {
  for (const nn::Weight& w : testing::weights_of(loss)) {
    const Tensor whole = testing::hashed_weight(w);
    const bool parts = train::is_split(whole.type(), split);
    std::vector<std::string> names = {w.name, "ema." + w.name};
    for (const train::WeightState& s : train::states_of(optimizer, w.name, whole.type()))
      if (s.begin == train::StateRule::Begin::weight) names.push_back(s.name);
    for (const std::string& name : names)
      plan.bind(name, (parts ? train::part_of(whole, split) : whole).clone());
  }
  if (optimizer.survey)
    for (const train::RunNumber& n : optimizer.survey->kept)
      plan.bind(n.name, scalar_tensor(static_cast<float>(n.begin)));
  plan.bind_missing();
}

Trained train_rank(const How& how, const std::shared_ptr<ThreadRanks::Member>& member,
                   const Split& split) {
  const auto device = std::make_shared<FarDevice>();
  device->late = true;
  device->join_as(member);
  const int64_t rows = batch / how.ranks / how.micro_batches;
  const Graph loss = network(rows, how.rows);
  const StepOptions o{.dtype = how.dtype,
                      .optimizer = how.optimizer,
                      .settings = {.options = how.options},
                      .max_norm = 0.05,
                      .accumulate = how.micro_batches > 1,
                      .split = split};
  const CompileOptions compile{.gather_again = split.shard == Shard::weights};
  Plan plan(train::train_step(loss, o), {.device = device}, compile);
  bind_weights(plan, loss, split, train::find_optimizer(how.optimizer));
  std::optional<Plan> more;
  if (o.accumulate) {
    more.emplace(train::accumulation_step(loss, o), Context{.device = device}, compile);
    more->share_arena(plan);
    more->bind_as(plan);
  }
  Trained out;
  for (const Source& s : plan.graph().sources())
    if (s.kind != Source::Kind::input) out.own_elements += plan.graph().type(s.value).shape.numel();
  for (int64_t s = 0; s < steps; ++s) {
    train::StepInputs in{.step = s, .lr = rate, .ema_decay = 0.5};
    in.micro_batches = how.micro_batches;
    double loss_of_step = 0;
    for (; in.micro_batch < in.micro_batches; ++in.micro_batch) {
      Plan& now = in.micro_batch + 1 == in.micro_batches ? plan : *more;
      NamedTensors inputs = train::step_inputs(in, o);
      const int64_t first = (in.micro_batch * how.ranks + split.rank) * rows;
      for (const char* name : {"x", "target"}) inputs[name] = rows_of(name, s, first, rows);
      std::erase_if(inputs, [&](const auto& i) { return !now.graph().find_source(i.first); });
      const NamedTensors result = now.run(inputs);
      loss_of_step += result.at("loss").span<float>()[0] / static_cast<double>(how.micro_batches);
      if (&now == &plan) out.norms.push_back(result.at("grad_norm").span<float>()[0]);
    }
    out.losses.push_back(loss_of_step);
  }
  for (const Source& s : plan.graph().sources()) {
    if (s.kind == Source::Kind::input || s.name.starts_with("acc.")) continue;
    const Tensor t = plan.fetch(s.name).to(DType::f32);
    const auto v = t.span<float>();
    out.weights[s.name] = {v.begin(), v.end()};
  }
  return out;
}

// All ranks' parts as one: whole vectors of what is split, and one of what is not.
Trained train_on(const How& how) {
  std::vector<Trained> all(static_cast<size_t>(how.ranks));
  ThreadRanks ranks(how.ranks);
  ranks.run([&](const std::shared_ptr<ThreadRanks::Member>& m) {
    const Split split{.ranks = how.ranks,
                      .rank = m->rank(),
                      .shard = how.shard,
                      .sent = how.sent,
                      .grain = train::find_optimizer(how.optimizer).grain};
    all[static_cast<size_t>(m->rank())] = train_rank(how, how.ranks > 1 ? m : nullptr, split);
  });
  Trained out = all[0];
  const Graph loss = network(1, how.rows);
  for (size_t r = 1; r < all.size(); ++r) {
    for (auto& [name, v] : out.weights) {
      const std::string weight = name.substr(name.rfind('.') - 1);
      const Source* const of = loss.find_source(weight);  // null: a number of the run
      const auto& more = all[r].weights.at(name);
      if (of && train::is_split(loss.type(of->value),
                                {.ranks = how.ranks,
                                 .shard = how.shard,
                                 .grain = train::find_optimizer(how.optimizer).grain}))
        v.insert(v.end(), more.begin(), more.end());
      else
        EXPECT_EQ(v, more) << name << " of rank " << r;
    }
    for (size_t s = 0; s < out.losses.size(); ++s) out.losses[s] += all[r].losses[s];
    EXPECT_EQ(out.norms, all[r].norms);
  }
  for (double& l : out.losses) l /= static_cast<double>(how.ranks);
  return out;
}

void expect_close(const Trained& a, const Trained& b, double tolerance) {
  for (size_t s = 0; s < a.losses.size(); ++s) {
    EXPECT_NEAR(a.losses[s], b.losses[s], tolerance * b.losses[s]) << "step " << s;
    EXPECT_NEAR(a.norms[s], b.norms[s], tolerance * b.norms[s]) << "step " << s;
  }
  for (const auto& [name, v] : b.weights) {
    ASSERT_EQ(a.weights.at(name).size(), v.size()) << name;
    for (size_t i = 0; i < v.size(); ++i)
      ASSERT_NEAR(a.weights.at(name)[i], v[i], tolerance) << name << ' ' << i;
  }
}

TEST(ranks, any_number_of_them_and_any_split__train_the_same_weights) {
  const Trained one = train_on({});
  for (const int64_t ranks : {2, 4})
    for (const Shard shard : {Shard::none, Shard::optimizer, Shard::weights}) {
      SCOPED_TRACE(str(ranks, " ranks, shard ", train::shard_names()[static_cast<size_t>(shard)]));
      expect_close(train_on({.ranks = ranks, .shard = shard}), one, 1e-5);
    }
}

// Prodigy's sums are over all weights of all ranks, whole and in parts.
TEST(ranks, prodigy__finds_the_same_rate_on_any_number_of_them) {
  const std::string options = "d0=0.01,d_coef=300";
  const Trained one = train_on({.optimizer = "prodigy", .options = options});
  EXPECT_GT(one.weights.at("prodigy.d")[0], 1.01F);
  for (const Shard shard : {Shard::none, Shard::optimizer, Shard::weights})
    expect_close(train_on({.ranks = 2, .shard = shard, .optimizer = "prodigy", .options = options}),
                 one, 1e-4);
}

// Blocks of 256 elements begin anew in every part. A moment on the border of two codes may get the
// other one, by which a weight moves a little elsewhere.
TEST(ranks, moments_of_8_bits__are_those_of_parts) {
  const int64_t rows = 8 * width;  // matrices of 8192 elements
  const Trained one = train_on({.optimizer = "adamw8bit", .rows = rows});
  ASSERT_EQ(one.weights.at("m8.a.0").size(), size_t{8192});
  for (const Shard shard : {Shard::none, Shard::optimizer, Shard::weights}) {
    const Trained many =
        train_on({.ranks = 2, .shard = shard, .optimizer = "adamw8bit", .rows = rows});
    for (const auto& [name, v] : one.weights) {
      ASSERT_EQ(many.weights.at(name).size(), v.size()) << name;
      int64_t far = 0;
      for (size_t i = 0; i < v.size(); ++i) far += std::abs(many.weights.at(name)[i] - v[i]) > 1e-5;
      EXPECT_LE(far, static_cast<int64_t>(v.size() / 1000)) << name;
    }
  }
}

TEST(ranks, an_optimiser_that_reads_whole_weights__is_not_split) {
  const train::Optimizer& o = train::find_optimizer("adafactor");
  EXPECT_EQ(train::shard_of("auto", o), Shard::none);
  EXPECT_EQ(train::shard_of("none", o), Shard::none);
  testing::expect_error([&] { train::shard_of("optimizer", o); },
                        "shard: adafactor reads whole weights, so that nothing is kept in parts "
                        "(optimizer); give --shard none or another --optimizer");
}

TEST(ranks, micro_batches__change_nothing_but_roundings) {
  const Trained one = train_on({});
  for (const Shard shard : {Shard::none, Shard::optimizer, Shard::weights})
    expect_close(train_on({.ranks = 2, .shard = shard, .micro_batches = 2}), one, 1e-5);
}

TEST(ranks, bf16__is_gathered_rounded_and_summed_in_f32) {
  const Trained one = train_on({.dtype = DType::bf16});
  for (const Shard shard : {Shard::none, Shard::optimizer, Shard::weights})
    expect_close(train_on({.ranks = 2, .shard = shard, .dtype = DType::bf16}), one, 2e-3);
}

TEST(ranks, same_run_twice__has_the_same_bits) {
  for (const Shard shard : {Shard::none, Shard::weights})
    for (const DType sent : {DType::f32, DType::bf16}) {
      const How how{.ranks = 2, .shard = shard, .sent = sent};
      const Trained a = train_on(how), b = train_on(how);
      EXPECT_EQ(a.weights, b.weights);
      EXPECT_EQ(a.losses, b.losses);
    }
}

// Each gradient is rounded on its way, by up to 2^-9 of itself on a rank and once more as a sum.
// AdamW divides by their size, so that those that nearly cancel may move a weight by lr the other
// way, in every step; most move by about what they did.
TEST(ranks, gradients_sent_in_bf16__lose_what_rounding_does) {
  const Trained one = train_on({});
  for (const Shard shard : {Shard::none, Shard::optimizer, Shard::weights})
    for (const int64_t micro_batches : {1, 2}) {
      const How how{.ranks = 2, .shard = shard, .micro_batches = micro_batches};
      How sent = how;
      sent.sent = DType::bf16;
      const Trained a = train_on(sent);
      EXPECT_NE(a.weights, train_on(how).weights) << "nothing was rounded";
      for (size_t s = 0; s < one.losses.size(); ++s)
        EXPECT_NEAR(a.losses[s], one.losses[s], 2e-3 * one.losses[s]) << s;
      for (const auto& [name, v] : one.weights) {
        if (name.starts_with("m.") || name.starts_with("v.")) continue;
        double sum = 0;
        for (size_t i = 0; i < v.size(); ++i) {
          const double off = std::abs(a.weights.at(name)[i] - v[i]);
          ASSERT_LE(off, 2 * rate * steps) << name << ' ' << i;
          sum += off;
        }
        EXPECT_LE(sum / static_cast<double>(v.size()), 0.05 * rate) << name;
      }
    }
}

TEST(ranks, what_is_split__takes_a_share_of_the_memory) {
  const int64_t whole = train_on({.ranks = 4}).own_elements;
  const int64_t split = train_on({.ranks = 4, .shard = Shard::optimizer}).own_elements;
  EXPECT_LT(split, whole / 3);
  EXPECT_GT(split, whole / 4);  // biases are whole
}

// ---- the pass --------------------------------------------------------------------------------

// The ops of a graph's collectives and what lies between, as letters.
std::string order_of(const Graph& g) {
  std::string out;
  for (const Node& n : g.nodes())
    out += n.op == &ops::def::all_reduce()       ? 'R'
           : n.op == &ops::def::reduce_scatter() ? 'S'
           : n.op == &ops::def::all_gather()     ? 'G'
           : n.op == &ops::def::matmul()         ? 'm'
                                                 : '.';
  return out;
}

TEST(place_collectives, sums_of_gradients__begin_when_they_are_there) {
  Graph g;
  Value x = g.input("x", {DType::f32, {8, 8}});
  std::vector<Value> made;
  for (int i = 0; i < 4; ++i) made.push_back(x = ops::matmul(x, x));
  for (const Value& v : made) g.output(str("y", v.id), ops::all_reduce(v, 2));
  EXPECT_EQ(order_of(g), "mmmmRRRR");
  EXPECT_EQ(order_of(place_collectives(g, {.bucket = 1, .small = 0})), "mRmRmRmR");
  EXPECT_EQ(order_of(place_collectives(g, {.bucket = 2 * 256, .growing = 0, .small = 0})),
            "mmRmmR");
  EXPECT_EQ(order_of(place_collectives(g, {})), "mmmmR");
}

TEST(place_collectives, last_sums__go_in_shrinking_buckets_and_small_ones_with_the_last) {
  const auto sums_of = [](const std::vector<int64_t>& columns) {
    Graph g;
    const Value x = g.input("x", {DType::f32, {8, 8}});
    for (size_t i = 0; i < columns.size(); ++i) {
      const Value y = g.input(str("y", i), {DType::f32, {8, columns[i]}});
      g.output(str("z", i), ops::all_reduce(ops::matmul(x, y), 2));
    }
    return g;
  };
  EXPECT_EQ(order_of(place_collectives(sums_of(std::vector<int64_t>(8, 8)),
                                       {.bucket = 8 * 256, .growing = 3, .small = 0})),
            "mRmmmmRmmRmR");
  EXPECT_EQ(order_of(place_collectives(sums_of({8, 1, 8}), {.bucket = 1, .small = 0})), "mRmRmR");
  EXPECT_EQ(order_of(place_collectives(sums_of({8, 1, 8}), {.bucket = 1, .small = 33})), "mRmmRR");
  Graph g;  // a later sum of another kind changes nothing
  const Value x = g.input("x", {DType::f32, {8, 8}});
  for (const int64_t columns : {1, 8}) {
    const Value y = g.input(str("y", columns), {DType::f32, {8, columns}});
    g.output(str("z", columns), ops::reduce_scatter(ops::matmul(x, y), 2));
  }
  g.output("last", ops::all_reduce(ops::matmul(x, ops::matmul(x, x)), 2));
  EXPECT_EQ(order_of(place_collectives(g, {.bucket = 1, .small = 33})), "mmSSmmR");
}

TEST(place_collectives, sum_that_is_read_at_once__does_not_wait_for_others) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {8, 8}});
  const Value a = ops::all_reduce(ops::matmul(x, x), 2);
  const Value b = ops::all_reduce(ops::matmul(a, x), 2);
  g.output("y", b);
  EXPECT_EQ(order_of(place_collectives(g, {})), "mRmR");
}

TEST(place_collectives, sum_of_a_sum__is_behind_it) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {8, 8}});
  g.output("y", ops::all_reduce(ops::all_reduce(ops::matmul(x, x), 2), 2));
  EXPECT_EQ(order_of(place_collectives(g, {})), "mRR");
}

TEST(place_collectives, weights__are_gathered_ahead_of_their_readers_and_again) {
  Graph g;
  Value x = g.input("x", {DType::f32, {8, 8}});
  std::vector<Value> weights;
  for (int i = 0; i < 3; ++i) {
    const Value part = g.source(Source::Kind::param, str("w", i), {DType::f32, {4, 8}});
    weights.push_back(ops::all_gather(part, 2));
  }
  for (const Value& w : weights) x = ops::matmul(x, w);
  g.output("loss", x);
  for (size_t i = 3; i-- > 0;) x = ops::matmul(x, weights[i]);
  g.output("y", x);
  EXPECT_EQ(order_of(g), "GGGmmmmmm");
  EXPECT_EQ(order_of(place_collectives(g, {})), "Gmmmmmm");
  EXPECT_EQ(order_of(place_collectives(g, {.bucket = 1, .small = 0})), "GGGmmmmmm");
  const Graph again = place_collectives(g, {.bucket = 1, .small = 0, .again_after = "loss"});
  EXPECT_EQ(order_of(again), "GGGmGmGmGmmm");
  verify(again, "place_collectives");
}

// A product of x with each of the weights, which the ranks hold in parts of so many rows of 32
// bytes.
Graph products_with(const std::vector<int64_t>& rows) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {8, 8}});
  for (size_t i = 0; i < rows.size(); ++i) {
    const Value part = g.source(Source::Kind::param, str("w", i), {DType::f32, {rows[i], 8}});
    g.output(str("y", i), ops::matmul(x, ops::all_gather(part, 2), {.trans_b = true}));
  }
  return g;
}

TEST(place_collectives, first_gathered_weights__come_in_growing_buckets) {
  const Graph g = products_with(std::vector<int64_t>(8, 4));  // of 256 bytes
  EXPECT_EQ(order_of(place_collectives(g, {.bucket = 8 * 256, .growing = 3, .small = 0})),
            "GGGmGmmmmmmm");
}

TEST(place_collectives, small_gathered_weights__come_first) {
  const Graph g = products_with({4, 4, 4, 1});
  EXPECT_EQ(order_of(place_collectives(g, {.bucket = 1, .small = 0})), "GGGmGmmm");
  EXPECT_EQ(order_of(place_collectives(g, {.bucket = 1, .small = 65})), "GGGGmmmm");
}

}  // namespace
}  // namespace ebb::ranks_test
