// The networks of Stable Diffusion in files of the original and of diffusers: recognised alike, the
// same bits (tools/golden/ldm_golden.py).
#include <gtest/gtest.h>

#include "base/hash.h"
#include "io/safetensors.h"
#include "nn/ldm_names.h"
#include "support/files.h"
#include "support/ldm_case.h"
#include "train/model_weights.h"

namespace ebb::testing::ldm_layouts_test {
namespace {

struct Layouts {
  std::map<std::string, std::string> diffusers;  // by the original's name
  nn::FileShapes original, theirs;
};

Layouts layouts_of(const LdmCase& c) {
  Layouts out;
  for (const nlohmann::json& t : c.golden["names"]) {
    const std::string original = t[0], diffusers = t[1];
    const Shape shape(t[2].get<std::vector<int64_t>>());
    out.diffusers[original] = diffusers;
    out.original[original] = out.theirs[diffusers] = shape;
  }
  return out;
}

class LdmLayouts : public ::testing::TestWithParam<std::string> {
 protected:
  LdmCase c_{GetParam()};
  Layouts l_ = layouts_of(c_);

  std::vector<float> output(const std::string& file, const train::TensorNames& names) {
    const auto store = train::open_model_weights(file, weights_of(*c_.model, c_.config), names);
    Plan plan(c_.graph(), open_context("cpu", {.threads = 2}), {.weights = store});
    const NamedTensors out = plan.run(c_.inputs());
    const auto v = out.begin()->second.span<float>();
    return {v.begin(), v.end()};
  }
};

INSTANTIATE_TEST_SUITE_P(ldm, LdmLayouts, ::testing::ValuesIn(ldm_cases()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(control, LdmLayouts, ::testing::ValuesIn(control_cases()),
                         [](const auto& info) { return info.param; });

}  // namespace

TEST_P(LdmLayouts, names_of_diffusers__are_those_of_its_modules) {
  const nn::FilePlaces places = c_.model->places(c_.config, l_.theirs);
  ASSERT_TRUE(places);
  EXPECT_FALSE(c_.model->places(c_.config, l_.original));
  for (const auto& [original, diffusers] : l_.diffusers)
    EXPECT_EQ(places(original).name, diffusers) << original;
  EXPECT_EQ(nn::with_original_names(l_.theirs), l_.original);
}

// Heads and groups of so small networks are guessed; all that shapes say is recognised.
TEST_P(LdmLayouts, both__are_recognised_as_one_network) {
  const auto ours = c_.model->recognise(l_.original), theirs = c_.model->recognise(l_.theirs);
  ASSERT_TRUE(ours && theirs);
  EXPECT_EQ(ours->text(), theirs->text());
  nn::FileShapes shapes;
  for (const nn::Weight& w : weights_of(*c_.model, *ours)) shapes[w.name] = nn::file_shape(w);
  EXPECT_EQ(shapes, l_.original);
}

TEST_P(LdmLayouts, both__give_the_same_bits) {
  const Folder folder;
  std::vector<io::NamedTensor> original, diffusers;
  for (const nn::Weight& w : weights_of(*c_.model, c_.config)) {
    const Tensor t = hashed_file_tensor(w.name, nn::file_shape(w));
    original.push_back({"m." + w.name, t});
    diffusers.push_back({l_.diffusers.at(w.name), t});
  }
  io::write_safetensors(folder / "original.safetensors", original);
  io::write_safetensors(folder / "diffusers.safetensors", diffusers);
  EXPECT_EQ(
      output(folder / "original.safetensors", {.prefix = "m."}),
      output(folder / "diffusers.safetensors", {.places = c_.model->places(c_.config, l_.theirs)}));
}

// All names and shapes of the published networks, in both layouts.
TEST(ldm_names, of_published_networks__are_those_of_the_original_and_of_diffusers) {
  const nlohmann::json published = read_golden("ldm/ldm_published");
  for (const auto& [preset, want] : published.items()) {
    if (preset == "generator") continue;
    const NamedModel m = find_component(preset);
    nn::FileShapes marker = {{"conv_in.weight", {1}},
                             {"down_blocks.0.resnets.0.conv1.weight", {1}}};
    const nn::FilePlaces places = m.model->places(m.config, marker);
    const nn::Weights weights = weights_of(*m.model, m.config);
    std::map<std::string, std::string> lines;
    for (const nn::Weight& w : weights) {
      std::string line = w.name + " " + places(w.name).name + " ", by;
      for (const int64_t n : nn::file_shape(w)) line += by + std::to_string(n), by = "x";
      lines[w.name] = line + "\n";
    }
    std::string text;
    for (const auto& [name, line] : lines) text += line;
    EXPECT_EQ(weights.size(), want["tensors"].get<size_t>()) << preset;
    EXPECT_EQ(nn::count_elements(weights), want["parameters"].get<int64_t>()) << preset;
    char hash[17];
    std::snprintf(hash, sizeof(hash), "%016llx", static_cast<unsigned long long>(fnv1a(text)));
    EXPECT_EQ(hash, want["hash"].get<std::string>()) << preset;
  }
}

}  // namespace ebb::testing::ldm_layouts_test
