// Pipelines: what a second request costs, sizes, latents, and requests resolved once.
#include "pipeline/pipeline.h"

#include <gtest/gtest.h>

#include "support/cpu.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/hashed_weights.h"
#include "support/numbers.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::FarDevice;
using testing::numbers;

using testing::cpu;

LoadedModel small_model(const char* name, const char* settings) {
  NamedModel m = find_model(name);
  parse_fields(m.config.fields(), settings);
  LoadedModel out{m.model, m.config, usual_diffusion(*m.model, m.config), {}};
  WeightStore::Weights weights;
  for (const nn::Weight& w : weights_of(*m.model, m.config))
    weights[w.name] = stored_tensor(testing::hashed_weight(w));
  out.weights = std::make_shared<WeightStore>(std::move(weights));
  return out;
}

LoadedModel tiny() {
  return small_model("tiny",
                     "{image_size=16 in_channels=3 classes=4 channels=[8,16] embedding=16}");
}

int64_t bytes_of(const WeightStore& store) {
  int64_t bytes = 0;
  for (const auto& [name, w] : store.weights()) bytes += w.type.bytes();
  return bytes;
}

const GenerateOptions two_steps{.steps = 2, .sampler = "euler", .seed = 3};

TEST(pipeline, second_request__compiles_its_plan_and_copies_no_weights) {
  const auto device = std::make_shared<FarDevice>();
  Pipeline p(tiny(), {.device = device});
  const int64_t weights = bytes_of(*p.model().weights);
  const GenerateRequest first{.classes = {0, 1}};
  const std::vector<float> pictures = numbers(p.generate(p.resolve(first, two_steps)).images);
  EXPECT_GE(device->sent, weights);

  GenerateOptions guided = two_steps;
  guided.guidance = 2;
  const std::vector<std::pair<GenerateRequest, GenerateOptions>> others = {
      {{.classes = {0, 1, 2}}, two_steps},                                   // another batch
      {{.classes = {0, 1}, .size = {.height = 8, .width = 24}}, two_steps},  // another size
      {first, guided}};
  int64_t compiled = 1;
  for (const auto& [request, options] : others) {
    const int64_t before = device->sent;
    const ResolvedRequest r = p.resolve(request, options);
    const Tensor images = p.generate(r).images;
    EXPECT_EQ(images.shape(), Shape({r.count(), r.sample[0], r.sample[1], 3}));
    EXPECT_EQ(p.statistics().compiled, ++compiled);
    EXPECT_LT(device->sent - before, weights / 2);
    Pipeline alone(tiny(), {.device = std::make_shared<FarDevice>()});
    EXPECT_EQ(numbers(images), numbers(alone.generate(r).images));
  }
  const int64_t captures = device->captures;
  EXPECT_EQ(numbers(p.generate(p.resolve(first, two_steps)).images), pictures);
  EXPECT_EQ(p.statistics().compiled, compiled);
  EXPECT_EQ(p.statistics().reused, 1);
  EXPECT_EQ(device->captures, captures);
}

// A mask costs no transfer in an evaluation, and guidance as a rule, whose known regions are
// restored on the host, ends at the same images.
TEST(pipeline, known_regions__are_restored_in_the_plan) {
  Tensor mask(DType::f32, {1, 16, 16, 1}), data(DType::f32, {1, 16, 16, 3});
  for (size_t i = 0; i < 256; ++i)
    mask.span<float>()[i] = i % 16 < 6 ? 0.0f : i % 16 < 9 ? 0.25f : 1.0f;
  for (size_t i = 0; i < 768; ++i) data.span<float>()[i] = static_cast<float>(i % 7) / 7 - 0.5f;
  for (const KnownRegions where : {KnownRegions{},
                                   {.input = false},
                                   {.output = false, .end = true},
                                   {.output = false, .end = true, .clean_input = true}})
    for (const char* sampler : {"euler", "heun", "dpmpp_2m"}) {
      const auto made = [&](const GenerateOptions& options, bool known, int64_t& transfers) {
        const auto device = std::make_shared<FarDevice>();
        Pipeline p(tiny(), {.device = device});
        RunInputs in{.data = data};
        if (known) in.known = {mask, where};
        const ResolvedRequest r = p.resolve({.classes = {1}, .strength = 0.8}, options);
        p.prepare(r, in);
        transfers -= device->transfers;
        const Tensor out = p.sample(r, 0, in, {}).samples;
        transfers += device->transfers;
        return numbers(out);
      };
      GenerateOptions o{.steps = 5, .sampler = sampler, .seed = 3, .guidance = 2};
      int64_t with = 0, without = 0, ignored = 0;
      const std::vector<float> in_plan = made(o, true, with);
      made(o, false, without);
      EXPECT_LE(with - without, 3);  // the mask, the data and their noise, once
      o.guidance = 1, o.rules = "cfg:scale=2";
      const std::vector<float> on_host = made(o, true, ignored);
      for (size_t i = 0; i < in_plan.size(); ++i) ASSERT_NEAR(in_plan[i], on_host[i], 1e-4) << i;
    }
}

TEST(pipeline, plans__are_dropped_the_oldest_first_beyond_their_number_or_the_memory) {
  Pipeline p(tiny(), cpu(), {.plans = 2});
  const auto generate = [](Pipeline& on, int64_t images) {
    return numbers(
        on.generate(on.resolve({.classes = std::vector<int64_t>(static_cast<size_t>(images), 1)},
                               two_steps))
            .images);
  };
  const auto one = generate(p, 1);
  generate(p, 2);
  generate(p, 1);  // used again: 2 is the oldest
  generate(p, 3);
  EXPECT_EQ(p.statistics().dropped, 1);
  EXPECT_EQ(generate(p, 1), one);
  EXPECT_EQ(p.statistics().compiled, 3);

  const auto roomy = std::make_shared<FarDevice>();
  Pipeline whole(tiny(), {.device = roomy});
  generate(whole, 8);
  const int64_t used = (int64_t{1} << 40) - roomy->free_memory();
  const auto narrow = std::make_shared<FarDevice>(used + used / 8);
  Pipeline tight(tiny(), {.device = narrow});
  const auto eight = generate(tight, 8);
  generate(tight, 7);
  EXPECT_EQ(tight.statistics().dropped, 1);
  EXPECT_EQ(generate(tight, 8), eight);
  // a plan that is there but has no memory yet
  Pipeline later(tiny(), {.device = std::make_shared<FarDevice>(used + used / 8)});
  later.prepare(later.resolve({.classes = std::vector<int64_t>(8, 1)}, two_steps));
  generate(later, 7);
  EXPECT_EQ(generate(later, 8), eight);
  EXPECT_EQ(later.statistics().reused, 1);
  EXPECT_EQ(later.statistics().dropped, 1);
}

TEST(pipeline, branches_without_room_for_all__are_evaluated_one_by_one) {
  GenerateOptions guided = two_steps;
  guided.guidance = 2;
  constexpr int64_t plenty = int64_t{1} << 40;
  const auto generate = [&](const std::shared_ptr<FarDevice>& device) {
    Pipeline p(tiny(), {.device = device});
    return numbers(p.generate(p.resolve({.classes = std::vector<int64_t>(8, 1)}, guided)).images);
  };
  const auto roomy = std::make_shared<FarDevice>(plenty);
  const auto together = generate(roomy);
  const int64_t used = plenty - roomy->least;
  const auto one_by_one = generate(std::make_shared<FarDevice>(used - used / 16));
  ASSERT_EQ(one_by_one.size(), together.size());
  for (size_t i = 0; i < together.size(); ++i) ASSERT_NEAR(one_by_one[i], together[i], 1e-5) << i;
  EXPECT_THROW(generate(std::make_shared<FarDevice>(used / 4)), OutOfMemory);
}

// A step of a device that works by itself is told when the next one was enqueued, and 1 when the
// pictures are there.
TEST(pipeline, progress__is_of_steps_that_are_done) {
  GenerateOptions four = two_steps;
  four.steps = 4;
  const auto told = [&](const Context& context) {
    Pipeline p(tiny(), context);
    std::vector<double> out;
    p.generate(p.resolve({.classes = {0}}, four), [&](double share) {
      out.push_back(share);
      return true;
    });
    return out;
  };
  EXPECT_EQ(told({.device = std::make_shared<FarDevice>()}),
            (std::vector<double>{0, 0, 0.25, 0.5, 0.75, 1}));
  const std::vector<double> here = told(cpu());
  EXPECT_EQ(std::ranges::count(here, 1.0), 2) << "of the last kernel and of the last step";
}

TEST(pipeline, faults_of_other_kinds__drop_no_plan) {
  const auto device = std::make_shared<FarDevice>();
  Pipeline p(tiny(), {.device = device});
  const auto request = [&](size_t images) {
    return p.resolve({.classes = std::vector<int64_t>(images, 1)}, two_steps);
  };
  p.generate(request(1));
  device->lost = "far: the device is lost";
  expect_error([&] { p.generate(request(2)); }, "far: the device is lost");
  EXPECT_EQ(p.statistics().dropped, 0);
}

TEST(pipeline, sizes__are_what_the_network_takes) {
  const LoadedModel m = tiny();
  const auto error = [&](int64_t height, int64_t width, const char* what) {
    expect_error(
        [&] {
          resolve(m, {.classes = {0}, .size = {.height = height, .width = width}}, two_steps);
        },
        what);
  };
  error(16, 15,
        "--size: tiny makes images whose sides are multiples of 2 up to 16384 pixels (15x16; the "
        "nearest is 16x16)");
  error(1, 40000, "(40000x1; the nearest is 16384x2)");
  const LoadedModel dit = small_model(
      "dit", "{image_size=8 in_channels=4 classes=4 width=16 depth=1 heads=2 learn_sigma=false}");
  EXPECT_EQ(resolve(dit, {.classes = {0}, .size = {64, 64}}, two_steps).sample, Shape({8, 8, 4}));
  expect_error(
      [&] {
        resolve(dit, {.classes = {0}, .size = {64, 128}}, two_steps);
      },
      "--size: dit makes images of 64x64 pixels only, which its table of positions is made for "
      "(128x64)");
}

TEST(pipeline, height_and_width__are_not_exchanged) {
  const LoadedModel m = tiny();
  Pipeline p(m, cpu());
  const ResolvedRequest wide =
      p.resolve({.classes = {1}, .size = {.height = 8, .width = 32}}, two_steps);
  EXPECT_EQ(wide.sample, Shape({8, 32, 3}));
  const Tensor images = p.generate(wide).images;
  EXPECT_EQ(images.shape(), Shape({1, 8, 32, 3}));
  for (const float v : images.span<float>()) EXPECT_TRUE(v >= -1 && v <= 1);
}

TEST(pipeline, latents__come_as_they_are_and_have_no_pictures) {
  const LoadedModel m = small_model(
      "dit", "{image_size=8 in_channels=4 classes=4 width=16 depth=1 heads=2 learn_sigma=false}");
  EXPECT_FALSE(decoder_of(*m.model, m.config));
  EXPECT_EQ(samples_text(*m.model, m.config), "latents [8,8,4] of Stable Diffusion's autoencoder");
  Pipeline p(m, cpu());
  const Generated g = p.generate(p.resolve({.classes = {0, 1}}, two_steps));
  EXPECT_FALSE(g.images.defined());
  ASSERT_EQ(g.latents.shape(), Shape({2, 8, 8, 4}));
  float largest = 0;
  for (const float v : g.latents.span<float>()) largest = std::max(largest, std::abs(v));
  EXPECT_GT(largest, 1);  // not clipped
  const Tensor planes = channels_first(g.latents);
  ASSERT_EQ(planes.shape(), Shape({2, 4, 8, 8}));
  const auto at = [](const Tensor& t, size_t i) { return t.span<float>()[i]; };
  EXPECT_EQ(at(planes, ((1 * 4 + 2) * 8 + 5) * 8 + 3),
            at(g.latents, ((1 * 8 + 5) * 8 + 3) * 4 + 2));
}

TEST(pipeline, resolved_request__says_what_runs) {
  const LoadedModel m = tiny();
  GenerateOptions o = two_steps;
  o.sampler = "DPM++ 2M Karras";
  const ResolvedRequest r = resolve(m, {.classes = {0, 1, 2}}, o);
  EXPECT_EQ(r.sampler.sampler->name, "dpmpp_2m");
  EXPECT_EQ(r.options.schedule, "karras");
  EXPECT_EQ(r.options.batch, 3);
  EXPECT_EQ(r.options.noise, "ebb");
  EXPECT_EQ(r.call.sigmas.size(), 3U);
  EXPECT_FALSE(r.guided);
  EXPECT_FALSE(r.dtype.has_value());
  o.sampler = "dpm_adaptive";
  EXPECT_NO_THROW(resolve(m, {.classes = {0}}, o));
  o.steps_given = true;
  expect_error([&] { resolve(m, {.classes = {0}}, o); },
               "sample: --steps does nothing with --sampler dpm_adaptive, which chooses its own "
               "steps");
}

}  // namespace
}  // namespace ebb
