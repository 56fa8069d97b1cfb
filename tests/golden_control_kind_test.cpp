// Control networks of several tasks (union) and control LoRAs: whole runs against diffusers
// (tools/golden/control_run_golden.py), what files are recognised as, and what is refused.
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "pipeline/checkpoint_summary.h"
#include "pipeline/control.h"
#include "pipeline/text_to_image.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/patterns.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_control_kind_test {
namespace {

using nlohmann::json;

const json& runs() {
  static const json all = read_golden("control_kind_runs")["runs"];
  return all;
}
const json& run_of(const std::string& name) {
  for (const json& r : runs())
    if (r["case"] == name) return r;
  throw std::runtime_error("no run " + name);
}

TextToImageRequest request_of(const json& run) {
  TextToImageRequest q = recorded_request(run);
  for (const json& i : run["inputs"])
    q.controls.push_back({.image = pattern(run["height"], run["width"], i["seed"]),
                          .task = i.value("task", ""),
                          .strength = i["strength"],
                          .end = i.value("end", 1.0)});
  return q;
}

void expect_reference(const json& run, const std::vector<LoadedComponent>& networks) {
  if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  CheckpointParts parts = small_checkpoint(run);
  parts.denoiser = with_controls(parts.denoiser, networks);
  const Picture made = picture_of(parts, request_of(run), open_context("cpu", {.threads = 2}));
  EXPECT_LT(distance("latents", made.latents.span<float>(), run["latents"]), 1e-4) << run["case"];
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), run["pixels"]), 1e-4) << run["case"];
}

// The run's denoiser with its weights as files have them.
LoadedModel stored_denoiser(const json& run) {
  LoadedModel out = denoiser_of(run["unet"]);
  WeightStore::Weights weights;
  for (const nn::Weight& w : weights_of(*out.model, out.config)) {
    StoredWeight& stored = weights[w.name];
    stored = stored_tensor(hashed_file_tensor(w.name, nn::file_shape(w)));
    stored.decode = [w](Value v) { return nn::decode(w, v); };
  }
  out.weights = std::make_shared<WeightStore>(std::move(weights));
  return out;
}

// The file of a control LoRA: tensors hashed by their names behind "control_lora.".
class LoraFile {
 public:
  explicit LoraFile(const json& run) : run_(run) {
    const Component c = component("control_net", run["control"]).component;
    for (const nn::Weight& w : weights_of(*c.model, c.config)) {
      const bool own = w.name.starts_with("zero_convs") || w.name.starts_with("middle_block_out") ||
                       w.name.starts_with("input_hint_block");
      const Shape shape = nn::file_shape(w);
      if (own || shape.rank() == 1)
        add(w.name, shape);
      else
        add_change(w.name.substr(0, w.name.size() - 7), shape);
    }
    tensors_.push_back({"lora_controlnet", Tensor(DType::f32, {1})});
  }
  void add(const std::string& name, const Shape& shape) {
    tensors_.push_back({name, hashed_file_tensor("control_lora." + name, shape)});
  }
  std::string write(const Folder& folder) const {
    const std::string file = folder / "control-lora.safetensors";
    io::write_safetensors(file, tensors_);
    return file;
  }
  std::vector<io::NamedTensor>& tensors() { return tensors_; }

 private:
  void add_change(const std::string& stem, const Shape& shape) {
    const int64_t rank = run_["rank"];
    Shape up = shape, down = shape;
    up[1] = down[0] = rank;
    for (int64_t i = 2; i < up.rank(); ++i) up[i] = 1;
    add(stem + ".up", up);
    add(stem + ".down", down);
  }

  const json& run_;
  std::vector<io::NamedTensor> tensors_;
};

}  // namespace

TEST(control_kinds, networks_of_several_tasks__end_at_the_references_pixels) {
  for (const char* name : {"union_depth", "union_two"}) {
    const json& run = run_of(name);
    expect_reference(run, std::vector<LoadedComponent>(run["inputs"].size(),
                                                       component("control_net", run["control"])));
  }
}

TEST(control_kinds, control_loras__end_at_the_references_pixels) {
  for (const char* name : {"lora_xl", "lora_sd1"}) {
    const json& run = run_of(name);
    const Folder folder;
    expect_reference(run,
                     {load_control_network(LoraFile(run).write(folder), stored_denoiser(run))});
  }
}

// ---- files ---------------------------------------------------------------------------------

TEST(control_kinds, control_lora__is_recognised_with_its_rank) {
  const json& run = run_of("lora_xl");
  const Folder folder;
  const auto file = io::TensorFile::open(LoraFile(run).write(folder));
  nn::FileShapes shapes;
  for (const io::TensorEntry& e : file.entries()) shapes[e.name] = e.shape;
  const auto found = recognise_components(shapes);
  ASSERT_EQ(found.size(), 1u);
  std::string family;
  for (const auto& [key, value] : summary_of(file, found, "x"))
    if (key == "family") family = value;
  EXPECT_EQ(family.find("control LoRA of rank 3 of Stable Diffusion XL"), 0u) << family;
}

// As published: diffusers' names, queries, keys and values of the task's attention in one tensor.
TEST(control_kinds, union_in_files_of_diffusers__is_recognised) {
  const Component want = component("control_net", run_of("union_two")["control"]).component;
  const auto places = want.model->places(
      want.config, {{"conv_in.weight", {}}, {"down_blocks.0.resnets.0.conv1.weight", {}}});
  nn::FileShapes file;
  for (const nn::Weight& w : weights_of(*want.model, want.config)) {
    const nn::FilePlace place = places(w.name);
    Shape shape = nn::file_shape(w);
    shape[0] *= place.parts;
    file[place.name] = shape;
  }
  EXPECT_TRUE(file.contains("transformer_layes.1.attn.in_proj_weight"));
  const auto found = recognise_components(file);
  ASSERT_EQ(found.size(), 1u);
  ModelConfig have = found[0].config;
  for (const char* field : {"tasks", "task_layers", "hint_channels", "input_depths"}) {
    ModelConfig config = want.config;
    EXPECT_EQ(field_text(find_field(have.fields(), field, "config")),
              field_text(find_field(config.fields(), field, "config")));
  }
}

// ---- what is refused -----------------------------------------------------------------------

TEST(control_kinds, task__must_be_one_of_the_networks) {
  const json& run = run_of("union_depth");
  const LoadedModel m =
      with_controls(denoiser_of(run["unet"]), {component("control_net", run["control"])});
  const auto add = [&](const std::string& kind, const std::string& task) {
    RunConditions c;
    add_controls(c, m, {{.image = pattern(8, 8, 1), .kind = kind, .task = task}},
                 {.sample = {8, 8, 4}, .steps = 4});
    const Tensor t = c.steps[0].values().at("task.0");
    return std::vector<float>(t.span<float>().begin(), t.span<float>().end());
  };
  EXPECT_EQ(add("canny", ""), (std::vector<float>{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(add("none", "openpose"), (std::vector<float>{1, 0, 0, 0, 0, 0}));
  expect_error([&] { add("none", ""); },
               "is of 6 tasks: --control KIND/TASK=IMAGE says which of pose, depth, scribble, "
               "canny, normal, segment the image shows (got 'none')");
  expect_error([&] { add("none", "tile"); }, "(got 'tile')");
}

TEST(control_kinds, task_for_a_network_of_one__is_refused) {
  const json& run = run_of("lora_sd1");
  const LoadedModel m =
      with_controls(denoiser_of(run["unet"]), {component("control_net", run["control"])});
  expect_error(
      [&] {
        RunConditions c;
        add_controls(c, m, {{.image = pattern(8, 8, 1), .task = "depth"}},
                     {.sample = {8, 8, 4}, .steps = 4});
      },
      "is of one task (got 'depth')");
}

TEST(control_kinds, control_lora_for_another_denoiser__is_refused_with_shapes) {
  const Folder folder;
  const std::string file = LoraFile(run_of("lora_xl")).write(folder);
  expect_error([&] { load_control_network(file, stored_denoiser(run_of("lora_sd1"))); },
               "control-lora.safetensors");
}

TEST(control_kinds, control_lora_with_unknown_tensors__is_refused) {
  const json& run = run_of("lora_sd1");
  const Folder folder;
  LoraFile lora(run);
  lora.add("input_blocks.99.0.bias", {4});
  const std::string file = lora.write(folder);
  expect_error([&] { load_control_network(file, stored_denoiser(run)); },
               "has 1 tensors that its network does not have, such as input_blocks.99.0.bias");
}

}  // namespace ebb::testing::golden_control_kind_test
