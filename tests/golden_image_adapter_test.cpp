// IP-Adapters against transformers and diffusers (tools/golden/ip_adapter_golden.py): the pixels
// that the image encoder reads, whole runs, and which adapters and encoders are refused. The
// networks by themselves are in golden_components_test.cpp.
#include <gtest/gtest.h>

#include <set>

#include "io/safetensors.h"
#include "nn/ldm_control.h"
#include "passes/schedule/hoist.h"
#include "pipeline/adapter_regions.h"
#include "pipeline/control.h"
#include "pipeline/image_encoder.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/patterns.h"
#include "support/small_checkpoint.h"
#include "train/model_weights.h"

namespace ebb::testing::golden_image_adapter_test {
namespace {

using nlohmann::json;

const json& golden() {
  static const json all = read_golden("image_adapter_runs");
  return all;
}
// With those that act in a region or in some blocks alone.
const json& runs() {
  static const json all = [] {
    json out = golden()["runs"];
    for (const json& run : read_golden("image_adapter_regions")["runs"]) out.push_back(run);
    return out;
  }();
  return all;
}

// White within [top, left, bottom, right].
Tensor mask_of(int64_t height, int64_t width, const json& box) {
  Tensor out(DType::u8, {height, width, 1});
  for (int64_t y = box[0]; y < box[2]; ++y)
    for (int64_t x = box[1]; x < box[3]; ++x)
      out.span<uint8_t>()[static_cast<size_t>(y * width + x)] = 255;
  return out;
}

std::vector<LoadedComponent> adapters_of(const json& run) {
  std::vector<LoadedComponent> out;
  for (const json& a : run["adapters"]) out.push_back(component("ip_adapter", a));
  return out;
}

CheckpointParts checkpoint_of(const json& run) {
  CheckpointParts parts = small_checkpoint(run);
  parts.denoiser = with_controls(parts.denoiser, adapters_of(run));
  parts.image_encoder = component("clip_vision", run["encoder"]);
  return parts;
}

TextToImageRequest request_of(const json& run) {
  const int64_t side = run["encoder"]["image_size"];
  TextToImageRequest q = recorded_request(run);
  for (const json& i : run["inputs"]) {
    q.controls.push_back({.image = pattern(side, side, i["seed"]),
                          .strength = i["strength"],
                          .blocks = i.value("blocks", "")});
    if (i.contains("mask"))
      q.controls.back().mask = mask_of(run["height"], run["width"], i["mask"]);
  }
  return q;
}

class GoldenImageAdapterRun : public GoldenRunOn {};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenImageAdapterRun, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenImageAdapterRun, ::testing::ValuesIn(runs_on(runs(), "cuda")),
                         name_of_run);

}  // namespace

TEST_P(GoldenImageAdapterRun, whole_run__ends_at_the_references_latents_and_pixels) {
  const json& run = GoldenRunOn::run();
  const Picture made = picture_of(checkpoint_of(run), request_of(run), context_);
  EXPECT_LT(distance("latents", made.latents.span<float>(), run["latents"]), 1e-4);
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), run["pixels"]), 1e-4);
}

TEST_P(GoldenImageAdapterRun, strength_of_0__is_a_run_without_the_adapter) {
  const json& run = GoldenRunOn::run();
  TextToImageRequest request = request_of(run);
  for (ControlInput& in : request.controls) in.strength = 0;
  const Picture off = picture_of(checkpoint_of(run), request, context_);
  const Picture plain = picture_of(small_checkpoint(run), recorded_request(run), context_);
  double most = 0;
  for (size_t i = 0; i < plain.latents.span<float>().size(); ++i)
    most = std::max(
        most, std::abs(double{off.latents.span<float>()[i]} - plain.latents.span<float>()[i]));
  EXPECT_LT(most, 1e-4);
}

const json& run_of(const char* name) {
  for (const json& run : runs())
    if (run["case"] == name) return run;
  fail("no golden run ", name);
}

TEST(adapter_blocks, texts__mean_the_layers_of_their_blocks) {
  LoadedModel sd1{.model = find_model("sd15").model, .config = find_model("sd15").config},
      xl{.model = find_model("sdxl").model, .config = find_model("sdxl").config};
  const std::vector<std::string> sd1_layers = adapter_blocks(sd1), xl_layers = adapter_blocks(xl);
  EXPECT_EQ(sd1_layers,
            (std::vector<std::string>{"down.0.0", "down.0.1", "down.1.0", "down.1.1", "down.2.0",
                                      "down.2.1", "up.1.0", "up.1.1", "up.1.2", "up.2.0", "up.2.1",
                                      "up.2.2", "up.3.0", "up.3.1", "up.3.2", "mid"}));
  ASSERT_EQ(xl_layers.size(), 70u);
  EXPECT_EQ(xl_layers[4], "down.2.0");
  EXPECT_EQ(xl_layers[69], "mid");
  const auto sums = [](const std::vector<std::string>& layers, const std::vector<double>& of) {
    std::map<std::string, double> out;
    for (size_t i = 0; i < layers.size(); ++i)
      if (of[i] != 0) out[layers[i]] += of[i];
    return out;
  };
  using Sums = std::map<std::string, double>;
  const auto on_xl = [&](const char* text) { return sums(xl_layers, block_strengths(text, xl)); };
  EXPECT_EQ(on_xl("style"), (Sums{{"up.0.1", 10}}));
  EXPECT_EQ(on_xl("Composition=0.5"), (Sums{{"down.2.1", 5}}));
  EXPECT_EQ(on_xl("style+layout"), (Sums{{"up.0.1", 10}, {"down.2.1", 10}}));
  EXPECT_EQ(on_xl("up_blocks.0.attentions.1, mid_block=2"), (Sums{{"up.0.1", 10}, {"mid", 20}}));
  EXPECT_EQ(on_xl("down=1,down.2=0,down.2.0=3"),
            (Sums{{"down.1.0", 2}, {"down.1.1", 2}, {"down.2.0", 30}}));
  EXPECT_EQ(on_xl("0,0,0,0,1,0,0,0,0,0,2"), (Sums{{"mid", 10}, {"up.1.2", 4}}));
  EXPECT_EQ(on_xl("").size(), 11u);
  EXPECT_EQ(sums(sd1_layers, block_strengths("style", sd1)),
            (Sums{{"up.1.0", 1}, {"up.1.1", 1}, {"up.1.2", 1}}));
  EXPECT_EQ(sums(sd1_layers, block_strengths("layout", sd1)),
            (Sums{{"down.2.0", 1}, {"down.2.1", 1}, {"mid", 1}}));
}

TEST(adapter_blocks, mistakes__name_the_blocks) {
  const LoadedModel xl{.model = find_model("sdxl").model, .config = find_model("sdxl").config};
  const std::string blocks =
      "down.1.0, down.1.1, down.2.0, down.2.1, mid, up.0.0, up.0.1, up.0.2, up.1.0, up.1.1, up.1.2";
  EXPECT_EQ(error_of([&] { block_strengths("up.2", xl); }),
            str("control: no block 'up.2' of the denoiser attends to images: it has ", blocks,
                "; style, layout (got 'up.2')"));
  EXPECT_EQ(error_of([&] { block_strengths("1,1", xl); }),
            str("control: there must be a strength for each of the 11 blocks ", blocks,
                " (got 2 in '1,1')"));
  EXPECT_EQ(error_of([&] { block_strengths("mid=x", xl); }),
            "control: strengths of blocks must be numbers up to 10 (found 'x' in 'mid=x')");
  const LoadedModel sd2{.model = find_model("sd2").model, .config = find_model("sd2").config};
  expect_error([&] { block_strengths("style", sd2); },
               "control: which blocks make the style is not known of");
}

// A mask of another size is stretched; white everywhere is none, black everywhere is no adapter.
TEST(adapter_region, mask__restricts_the_adapter_to_what_is_white) {
  if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  const json& run = run_of("sd1");
  const Context context = open_context("cpu", {.threads = 2});
  TextToImageRequest q = request_of(run);
  q.options.steps = 4;
  const auto latents = [&](const Tensor& mask) {
    q.controls[0].mask = mask;
    const Picture p = picture_of(checkpoint_of(run), q, context);
    return std::vector<float>(p.latents.span<float>().begin(), p.latents.span<float>().end());
  };
  const auto difference = [](const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
    return most;
  };
  const int64_t height = run["height"], width = run["width"];
  const std::vector<float> all = latents({}),
                           half = latents(mask_of(height, width, {0, 0, height, width / 2}));
  EXPECT_LT(difference(latents(mask_of(height, width, {0, 0, height, width})), all), 1e-5);
  EXPECT_LT(difference(latents(mask_of(20, 40, {0, 0, 20, 20})), half), 1e-5);
  EXPECT_GT(difference(half, all), 1e-3);
  const std::vector<float> none = latents(mask_of(height, width, {0, 0, 0, 0}));
  q.controls[0].strength = 0;
  EXPECT_LT(difference(latents({}), none), 1e-5);
}

// FaceID, FaceID plus, and InstantID's resampler.
TEST(image_adapter, files_that_read_faces__are_refused_by_name) {
  const Folder folder;
  const LoadedModel denoiser = denoiser_of(run_of("sd1")["unet"]);
  const auto error = [&](const std::vector<std::pair<std::string, Shape>>& projection) {
    std::vector<io::NamedTensor> tensors = {
        {"ip_adapter.1.to_k_ip.weight", Tensor(DType::f32, {8, 16})},
        {"ip_adapter.1.to_v_ip.weight", Tensor(DType::f32, {8, 16})}};
    for (const auto& [name, shape] : projection)
      tensors.push_back({"image_proj." + name, Tensor(DType::f32, shape)});
    const std::string file = folder / "face.safetensors";
    io::write_safetensors(file, tensors);
    return error_of([&] { with_controls(denoiser, {load_control_network(file, denoiser)}); });
  };
  const std::vector<std::pair<std::string, Shape>> plain = {
      {"proj.0.weight", {32, 512}}, {"proj.2.weight", {64, 32}}, {"norm.weight", {16}}};
  auto plus = plain;
  plus.push_back({"perceiver_resampler.proj_in.weight", {16, 1280}});
  for (const auto& file :
       {plain, plus,
        std::vector<std::pair<std::string, Shape>>{{"latents", {1, 4, 24}},
                                                   {"proj_in.weight", {24, 512}},
                                                   {"layers.0.0.to_q.weight", {64, 24}}}})
    EXPECT_NE(error(file).find("ip_adapter: FaceID adapters and InstantID read what InsightFace's "
                               "network makes of a face, which ebb does not have"),
              std::string::npos)
        << error(file);
}

TEST(adapter_region, other_networks__take_no_mask_and_no_blocks) {
  const json run = read_golden("control_runs")["runs"][0];
  CheckpointParts parts = small_checkpoint(run);
  parts.denoiser = with_controls(parts.denoiser, {component("control_net", run["control"])});
  RunConditions conditions;
  ControlRun of{.sample = {8, 8, 4}, .steps = 4, .sigmas = {4, 3, 2, 1, 0}};
  ControlInput in{.image = pattern(64, 64, 1), .blocks = "mid"};
  expect_error([&] { add_controls(conditions, parts.denoiser, {in}, of); },
               "is no IP-Adapter, which --control-mask and --control-blocks are for");
}

// Those of Pillow to the bit, and torchvision's up to a grey level, which is
// 1/255 before the normalisation. The mean shows what a shift or another filter
// would do.
TEST(image_encoder, pixels__are_those_of_clips_image_processor) {
  for (const json& c : golden()["pixels"]) {
    const Tensor have = clip_pixels(pattern(c["height"], c["width"], c["seed"]), 224);
    const auto v = have.span<float>();
    for (const char* kind : {"pil", "torchvision"}) {
      const json& want = c[kind];
      const double level = std::string(kind) == "pil" ? 1e-5 : 1.02 / 255 / 0.26;
      double most = 0, mean = 0;
      for (size_t i = 0; i < want["row"].size(); ++i)
        most = std::max(most, std::abs(v[101 * 224 * 3 + i] - want["row"][i].get<double>()));
      for (size_t i = 0; i < want["column"].size(); ++i) {
        const size_t y = 224 - want["column"].size() / 3 + i / 3;
        most = std::max(most,
                        std::abs(v[(y * 224 + 37) * 3 + i % 3] - want["column"][i].get<double>()));
      }
      for (const float x : v) mean += x;
      EXPECT_LT(most, level) << kind << ' ' << c["height"] << 'x' << c["width"];
      EXPECT_NEAR(mean / static_cast<double>(v.size()), want["mean"].get<double>(), 2e-4) << kind;
    }
  }
}

// What a network makes of its image alone is computed once a run: these weights of the published
// ones, by how their names begin, are not read in a step.
TEST(image_adapter, what_depends_on_the_image_alone__is_computed_once_a_run) {
  struct Case {
    const char *network, *denoiser, *weights;
  };
  for (const Case& c :
       {Case{"ip_adapter", "sd15", ""}, Case{"ip_adapter_plus", "sd15", ""},
        Case{"ip_adapter_full_face", "sd15", ""}, Case{"control_sd15", "sd15", "input_hint_block."},
        Case{"control_sdxl_union", "sdxl", "transformer_layes."}}) {
    const NamedModel network = find_component(c.network);
    const std::string prefix = str("control.0.", c.weights);
    LoadedModel m{.model = find_model(c.denoiser).model, .config = find_model(c.denoiser).config};
    m.controls = {{network.model, network.config, ""}};
    std::vector<nn::Condition> given = conditions_of(m);
    Graph g;
    nn::NetworkInputs in{.x = g.input("x", {DType::f32, {2, 64, 64, 4}}),
                         .noise = g.input("noise", {DType::f32, {2}}),
                         .conditions = {},
                         .random = {}};
    for (nn::Condition& condition : given) {
      if (condition.name == "hint.0" && condition.usual.rank() == 0)
        condition.shape = {512, 512, 3};
      const bool own = condition.name.ends_with(".0") &&
                       nn::own_control_input(condition.name.substr(0, condition.name.size() - 2));
      if (own || !condition.rare)
        in.conditions[condition.name] = g.input(condition.name, condition.usual_type(2));
    }
    g.output("F", network_of(m, given)(g, in));
    const HoistedGraph split =
        hoist(g, [](const Source& s) { return s.name == "hint.0" || s.name == "task.0"; });
    const auto read_in = [&](const Graph& graph) {
      std::set<std::string> out;
      for (const Source& s : graph.sources())
        if (s.name.starts_with(prefix))
          for (const Node& n : graph.nodes())
            if (std::ranges::find(n.in, s.value) != n.in.end()) out.insert(s.name);
      return out.size();
    };
    EXPECT_EQ(read_in(split.step), 0u) << c.network;
    EXPECT_GT(read_in(split.hoisted), 0u) << c.network;
  }
}

// ---- what is refused -----------------------------------------------------------------------

TEST(image_adapter, of_another_family__is_refused_with_both_names) {
  const std::string error =
      error_of([&] { with_controls(denoiser_of(runs()[0]["unet"]), adapters_of(runs()[4])); });
  EXPECT_EQ(error.find("control: network 1, ip_adapter, does not fit the denoiser ldm_unet ("), 0u)
      << error;
}

// Nobody knows what sd15 is short for, but what its family is called.
TEST(image_adapter, of_published_sizes__is_refused_with_the_families_of_both) {
  const auto described = [](const NamedModel& m) {
    return train::described_weights(weights_of(*m.model, m.config));
  };
  const NamedModel sd1 = find_component("sd15"), adapter = find_component("ip_adapter_sdxl");
  const LoadedModel denoiser{
      .model = sd1.model, .config = sd1.config, .diffusion = {}, .weights = described(sd1)};
  const LoadedComponent network{
      {adapter.model, adapter.config, ""}, described(adapter), "ip-adapter_sdxl.bin"};
  EXPECT_EQ(error_of([&] { with_controls(denoiser, {network}); }),
            "control: network 1, ip_adapter_sdxl of Stable Diffusion XL, does not fit the denoiser "
            "sd15 (Stable Diffusion 1): it is made for 70 layers that attend to text of 2048 "
            "channels, and the denoiser has 16 that attend to 768  ip-adapter_sdxl.bin");
}

TEST(image_adapter, with_more_layers_than_the_denoiser__is_refused) {
  json adapter = runs()[0]["adapters"][0];
  adapter["runs"].back() = adapter["runs"].back().get<int64_t>() + 1;
  expect_error(
      [&] { with_controls(denoiser_of(runs()[0]["unet"]), {component("ip_adapter", adapter)}); },
      "it is made for 12 layers that attend to text of 32 channels, and the denoiser has 11 ");
}

TEST(image_adapter, without_its_image_encoder__is_refused_with_the_channels) {
  CheckpointParts parts = checkpoint_of(runs()[0]);
  parts.image_encoder.reset();
  const TextToImageRequest q = request_of(runs()[0]);
  expect_error([&] { resolve(parts, q); }, "24 channels of the projected image");
  json other = runs()[0]["encoder"];
  other["projection"] = 40;
  parts.image_encoder = component("clip_vision", other);
  expect_error(
      [&] { resolve(parts, q); },
      "was trained with another image encoder than --image-encoder (projection 24 and 40)");
}

TEST(image_adapter, of_faces__is_refused_with_a_reason) {
  nn::FileShapes file;
  const Component plain = component("ip_adapter", runs()[0]["adapters"][0]).component;
  for (const nn::Weight& w : weights_of(*plain.model, plain.config))
    if (!w.name.starts_with("image_proj.")) file[w.name] = nn::file_shape(w);
  file["image_proj.proj.0.weight"] = {1024, 512};
  file["image_proj.proj.2.weight"] = {128, 1024};
  file["image_proj.norm.weight"] = {32};
  const auto found = recognise_components(file);
  ASSERT_EQ(found.size(), 1u);
  expect_error([&] { check(*found[0].model, found[0].config); },
               "FaceID adapters and InstantID read what");
}

}  // namespace ebb::testing::golden_image_adapter_test
