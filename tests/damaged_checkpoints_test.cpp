// Checkpoints whose container is whole and whose networks are not: a clear error each, before any
// work. What is damaged is drawn from a seed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "io/safetensors.h"
#include "pipeline/checkpoint_parts.h"
#include "pipeline/control.h"
#include "pipeline/image_encoder.h"
#include "support/files.h"
#include "support/generate_program.h"
#include "support/torch_file.h"

namespace ebb::testing::damaged_checkpoints_test {
namespace {

using Tensors = std::vector<io::NamedTensor>;

class DamagedCheckpoints : public GenerateProgram {};

// Something that the networks cannot do without, or have no use for.
void damage(Tensors& tensors, std::mt19937& random) {
  const size_t at = random() % tensors.size();
  io::NamedTensor& t = tensors[at];
  switch (random() % 5) {
    case 0: tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: t.name += str(".", random() % 100); break;
    case 2: {
      std::vector<int64_t> sizes = t.tensor.shape().sizes();
      sizes[random() % sizes.size()] += 1 + static_cast<int64_t>(random() % 7);
      t.tensor = Tensor(DType::f32, Shape(sizes));
      break;
    }
    case 3: {
      t.tensor = t.tensor.clone();
      const auto values = t.tensor.span<float>();
      values[random() % values.size()] = random() % 2 ? NAN : INFINITY;
      break;
    }
    default: t.tensor = Tensor(DType::f32, {}); break;
  }
}

}  // namespace

TEST_F(DamagedCheckpoints, networks__are_an_error_each_that_names_file_or_tensor) {
  const std::string good = whole();
  const auto open = io::TensorFile::open(good);
  Tensors tensors;
  for (const io::TensorEntry& e : open.entries()) tensors.push_back({e.name, open.load(e)});
  std::mt19937 random(20);
  for (int i = 0; i < 80; ++i) {
    Tensors changed = tensors;
    damage(changed, random);
    const bool torch = i % 4 == 0;
    const std::string path = folder_ / (torch ? "m.ckpt" : "m.safetensors");
    if (torch)
      put_file(path, torch_text(changed, "state_dict"));
    else
      io::write_safetensors(path, changed);
    const std::string error = error_of([&] {
      const CheckpointParts parts = load_parts({.model = path});
      require(parts.text_encoders.size() == 1 && parts.autoencoder.has_value(),
              "a part is not recognised any more  ", path);
    });
    EXPECT_NE(error.find("m."), std::string::npos) << "file " << i << ": " << error;
    EXPECT_NE(error.find(": "), std::string::npos) << "file " << i << ": " << error;
  }
}

namespace {

// Errors of 40 files, each damaged in another way.
void expect_errors(const std::string& good, const std::string& path, unsigned seed,
                   const std::function<void()>& load) {
  const auto open = io::TensorFile::open(good);
  Tensors tensors;
  for (const io::TensorEntry& e : open.entries()) tensors.push_back({e.name, open.load(e)});
  std::mt19937 random(seed);
  for (int i = 0; i < 40; ++i) {
    Tensors changed = tensors;
    damage(changed, random);
    io::write_safetensors(path, changed);
    const std::string error = error_of(load);
    EXPECT_NE(error.find(": "), std::string::npos) << "file " << i << ": " << error;
  }
}

}  // namespace

TEST_F(DamagedCheckpoints, image_adapters_and_encoders__are_an_error_each) {
  const LoadedModel denoiser = load_parts({.model = whole()}).denoiser;
  const std::string path = folder_ / "m.safetensors";
  const auto load = [&] { with_controls(denoiser, {load_control_network(path, denoiser)}); };
  const std::string layers = " context=64 widths=[64,128] runs=[3,1]}";
  expect_errors(checkpoint({{"ip_adapter", "{features=24 tokens=4" + layers, ""}}, "plain"), path,
                1, load);
  expect_errors(
      checkpoint({{"ip_adapter",
                   "{kind=resampler features=24 tokens=4 hidden=40 depth=2 inner=64" + layers, ""}},
                 "plus"),
      path, 2, load);
  expect_errors(checkpoint({{"clip_vision",
                             "{width=32 layers=2 heads=16 hidden=37 image_size=28 patch=7}", ""}},
                           "encoder"),
                path, 3, [&] { load_image_encoder(path); });
}

// Sizes from 0 to the largest, which headers may say.
TEST(damaged_headers, of_networks_that_read_images__are_no_network_or_an_error) {
  std::mt19937_64 random(4);
  for (const char* name : {"ip_adapter", "ip_adapter_plus", "ip_adapter_full_face", "clip_vision_h",
                           "control_sdxl_union", "control_sd15"}) {
    const NamedModel m = find_component(name);
    nn::FileShapes good;
    for (const nn::Weight& w : weights_of(*m.model, m.config)) good[w.name] = nn::file_shape(w);
    for (int i = 0; i < 60; ++i) {
      nn::FileShapes bad = good;
      if (i % 3 == 0) bad["lora_controlnet"] = {1};
      for (auto& [weight, shape] : bad)
        if (random() % 8 == 0 && shape.rank() > 0)
          shape[static_cast<int64_t>(random() % static_cast<uint64_t>(shape.rank()))] =
              random() % 2 ? 0 : static_cast<int64_t>(random() >> (1 + random() % 60));
      for (const Component& c : recognise_components(bad)) {
        const std::string error = error_of([&] { check(*c.model, c.config); });
        if (!error.empty()) continue;
        EXPECT_LT(weights_of(*c.model, c.config).size(), 100000u) << name;
      }
    }
  }
}

}  // namespace ebb::testing::damaged_checkpoints_test
