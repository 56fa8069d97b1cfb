// Files of text encoders and autoencoders: names of several programs, prefixes, several components
// in one, and damaged headers.
#include <gtest/gtest.h>

#include "backends.h"
#include "io/safetensors.h"
#include "pipeline/load_model.h"
#include "support/files.h"
#include "support/golden_component.h"

namespace ebb::testing::component_layouts_test {

using nlohmann::json;

namespace {

using Tensors = std::vector<io::NamedTensor>;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

Tensors in_original_layout(const GoldenComponent& c) {
  Tensors out;
  for (const nn::Weight& w : c.weights())
    out.push_back({w.name, hashed_file_tensor(w.name, nn::file_shape(w))});
  return out;
}

// diffusers' names; 1x1 convolutions of the attention are matrices.
Tensors in_diffusers_layout(const GoldenComponent& c) {
  Tensors out;
  for (io::NamedTensor& t : in_original_layout(c)) {
    const Shape s = t.tensor.shape();
    const bool attention = t.name.find("attn_1") != std::string::npos && s.rank() == 4;
    const auto& names = c.golden["names"];
    out.push_back({names.contains(t.name) ? names[t.name].get<std::string>() : t.name,
                   attention ? t.tensor.reshape({s[0], s[1]}) : t.tensor});
  }
  return out;
}

Tensors renamed(Tensors tensors, const std::vector<std::pair<const char*, const char*>>& names) {
  for (io::NamedTensor& t : tensors)
    for (const auto& [from, to] : names) t.name = replaced(t.name, from, to);
  return tensors;
}

Tensor transposed(const Tensor& t) {
  const int64_t rows = t.shape()[0], columns = t.shape()[1];
  Tensor out(DType::f32, {columns, rows});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      out.span<float>()[static_cast<size_t>(j * rows + i)] =
          t.span<float>()[static_cast<size_t>(i * columns + j)];
  return out;
}

// q, k and v in one tensor, the projection transposed.
Tensors in_open_clip_layout(const GoldenComponent& c) {
  Tensors out;
  std::map<std::string, std::vector<float>> packed;
  std::map<std::string, Shape> shapes;
  for (io::NamedTensor& t :
       renamed(in_original_layout(c), {{"text_model.embeddings.", ""},
                                       {"position_embedding.weight", "positional_embedding"},
                                       {"text_model.final_layer_norm", "ln_final"},
                                       {"text_model.encoder.layers", "transformer.resblocks"},
                                       {"layer_norm", "ln_"},
                                       {"self_attn", "attn"},
                                       {"mlp.fc1", "mlp.c_fc"},
                                       {"mlp.fc2", "mlp.c_proj"}})) {
    if (t.name == "text_projection.weight") {
      out.push_back({"text_projection", transposed(t.tensor)});
      continue;
    }
    const size_t at = t.name.find("_proj.");
    if (at == std::string::npos || t.name[at - 1] == 't' || t.name[at - 1] == 'c') {
      out.push_back(t);
      continue;
    }
    // files have k, q and v in the order of names here, q first there
    const std::string name = t.name.substr(0, at - 1) + "in_proj_" + t.name.substr(at + 6);
    const auto v = t.tensor.span<float>();
    auto& all = packed[name];
    all.resize(3 * v.size());
    const size_t part = std::string("qkv").find(t.name[at - 1]);
    std::copy(v.begin(), v.end(), all.begin() + static_cast<std::ptrdiff_t>(part * v.size()));
    shapes[name] = t.tensor.shape();
    shapes[name][0] *= 3;
  }
  for (const auto& [name, v] : packed) out.push_back({name, tensor_of(v, shapes[name])});
  return out;
}

std::vector<Tensors> layouts_of(const GoldenComponent& c) {
  const std::string model = c.component.model->name;
  if (model == "clip_text")
    return {renamed(in_original_layout(c), {{"text_model.", ""}}), in_open_clip_layout(c)};
  const Tensors diffusers = in_diffusers_layout(c);
  if (model == "taesd") return {diffusers};
  return {
      diffusers,
      renamed(diffusers,
              {{"to_q", "query"}, {"to_k", "key"}, {"to_v", "value"}, {"to_out.0", "proj_attn"}})};
}

// Writes the tensors under a prefix, beside one of another component, and gives all outputs.
std::vector<std::vector<float>> outputs_of(const GoldenComponent& c, Tensors tensors,
                                           const std::string& prefix) {
  const Folder folder;
  const std::string file = folder / "model.safetensors";
  nn::FileShapes shapes;
  for (io::NamedTensor& t : tensors) t.name = prefix + t.name;
  if (!prefix.empty()) tensors.push_back({"of.another", Tensor(DType::f32, {2})});
  for (const io::NamedTensor& t : tensors) shapes.emplace(t.name, t.tensor.shape());
  io::write_safetensors(file, tensors);

  const auto found = recognise_components(shapes);
  EXPECT_EQ(found.size(), 1U);
  if (found.size() != 1) return {};
  EXPECT_EQ(found[0].model->name, c.component.model->name);
  EXPECT_EQ(found[0].prefix, prefix);
  std::map<std::string, Shape> ours, theirs;
  for (const nn::Weight& w : c.weights()) ours[w.name] = w.shape;
  for (const nn::Weight& w : weights_of(*found[0].model, found[0].config)) theirs[w.name] = w.shape;
  EXPECT_EQ(ours, theirs);

  Component component = c.component;  // heads and groups leave no trace in files
  component.prefix = prefix;
  const auto store = open_component(
      std::make_shared<const io::TensorFile>(io::TensorFile::open(file)), file, component);
  std::vector<std::vector<float>> out;
  for (const json& golden : c.golden["calls"]) {
    const Evaluated e = call_of(golden);
    for (const DType d : {DType::f32, DType::bf16}) {
      Plan plan = entry_plan(component, e.call, d, store, test::open_backend("cpu").context);
      for (const auto& [name, t] : plan.run(e.inputs))
        out.emplace_back(t.span<float>().begin(), t.span<float>().end());
    }
  }
  return out;
}

}  // namespace

class ComponentLayouts : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(cpu, ComponentLayouts,
                         ::testing::Values("clip_quick_gelu", "autoencoder_kl", "autoencoder_kl16",
                                           "taesd"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ComponentLayouts, every_layout_and_prefix__gives_the_same_bits) {
  const GoldenComponent c(GetParam());
  const bool text = c.component.model->kind == ModelKind::text_encoder;
  const auto want = outputs_of(c, in_original_layout(c), "");
  EXPECT_EQ(outputs_of(c, in_original_layout(c),
                       text ? "conditioner.embedders.0.transformer." : "first_stage_model."),
            want);
  for (const Tensors& layout : layouts_of(c)) {
    EXPECT_EQ(outputs_of(c, layout, ""), want);
    EXPECT_EQ(outputs_of(c, layout, text ? "conditioner.embedders.1.model." : "vae."), want);
  }
}

// What no component has is beside the point in a file of several, but not in one of a network.
TEST(component_files, denoiser_of_an_all_in_one_file__is_loaded_from_its_part) {
  const Folder folder;
  const NamedModel tiny = find_model("tiny");
  const auto file = [&](const std::string& prefix, bool with_another) {
    Tensors tensors;
    for (const nn::Weight& w : weights_of(*tiny.model, tiny.config))
      tensors.push_back({prefix + w.name, hashed_file_tensor(w.name, nn::file_shape(w))});
    if (with_another) tensors.push_back({"alphas_cumprod", Tensor(DType::f32, {10})});
    const std::string path = folder / "model.safetensors";
    io::write_safetensors(path, tensors);
    return path;
  };
  EXPECT_EQ(load_model(file("model.diffusion_model.", true), "", {}).model->name, "tiny");
  EXPECT_EQ(load_model(file("model.", false), "", {}).model->name, "tiny");
  expect_error([&] { load_model(file("model.", true), "", {}); }, "unused (1):");
}

TEST(component_files, taesd_halves_in_files_of_their_own__are_recognised) {
  const GoldenComponent c("taesd");
  for (const auto& [half, first] : {std::pair("taesd_encoder.", 0), {"taesd_decoder.", 1}}) {
    nn::FileShapes alone;
    for (const io::NamedTensor& t : in_original_layout(c))
      if (t.name.starts_with(half)) alone[t.name.substr(14)] = t.tensor.shape();
    EXPECT_TRUE(alone.contains(str(first, ".weight")));
    const auto found = recognise_components(alone);
    ASSERT_EQ(found.size(), 1U) << half;
    const auto places = found[0].model->places(found[0].config, alone);
    size_t count = 0;
    for (const nn::Weight& w : weights_of(*found[0].model, found[0].config)) {
      EXPECT_TRUE(w.name.starts_with(half)) << w.name;
      EXPECT_TRUE(alone.contains(places(w.name).name)) << w.name;
      ++count;
    }
    EXPECT_EQ(count, alone.size());
  }
}

// As in Stable Diffusion XL's files.
TEST(component_files, all_in_one_file__lists_both_text_encoders_and_the_autoencoder) {
  nn::FileShapes file;
  const auto add = [&](const Tensors& tensors, const std::string& prefix) {
    for (const io::NamedTensor& t : tensors) file[prefix + t.name] = t.tensor.shape();
  };
  const GoldenComponent first("clip_gelu"), second("clip_quick_gelu"), vae("autoencoder_kl");
  add(in_original_layout(first), "conditioner.embedders.0.transformer.");
  add(in_open_clip_layout(second), "conditioner.embedders.1.model.");
  add(in_original_layout(vae), "first_stage_model.");
  file["conditioner.embedders.1.model.logit_scale"] = {};
  const auto found = recognise_components(file);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].prefix, "conditioner.embedders.0.transformer.");
  EXPECT_EQ(found[1].prefix, "conditioner.embedders.1.model.");
  EXPECT_EQ(found[2].prefix, "first_stage_model.");
  EXPECT_EQ(found[2].model->name, "autoencoder_kl");
  EXPECT_TRUE(found[1].model->ignored("logit_scale"));
  EXPECT_EQ(error_of([&] { recognise_model(file); }),
            "model: the file has no denoiser, but text encoder clip_text, text encoder clip_text, "
            "autoencoder autoencoder_kl");
}

// Whatever a header says is recognised as nothing, refused with a reason, or bound.
TEST(component_files, mutated_headers__are_errors_or_networks) {
  uint64_t state = 7;
  const auto draw = [&](uint64_t below) { return splitmix64(state++) % below; };
  int refused = 0, bound = 0;
  for (const char* name :
       {"clip_gelu", "autoencoder_kl", "taesd", "esrgan_x4", "esrgan_x1", "esrgan_compact"}) {
    const GoldenComponent c(name);
    std::vector<Tensors> files = layouts_of(c);
    files.push_back(in_original_layout(c));
    for (int i = 0; i < 400; ++i) {
      nn::FileShapes shapes;
      for (const io::NamedTensor& t : files[draw(files.size())]) shapes[t.name] = t.tensor.shape();
      for (uint64_t k = draw(3) + 1; k > 0; --k) {
        const auto at = std::next(shapes.begin(), static_cast<std::ptrdiff_t>(draw(shapes.size())));
        constexpr int64_t sizes[] = {0, 1, 3, 7, 1 << 20, int64_t{1} << 40};
        if (draw(3) == 0 || at->second.rank() == 0)
          shapes.erase(at);
        else if (draw(4) == 0)
          at->second = at->second.slice(0, at->second.rank() - 1);
        else
          at->second[static_cast<int64_t>(draw(static_cast<uint64_t>(at->second.rank())))] =
              sizes[draw(std::size(sizes))];
      }
      try {
        for (const Component& found : recognise_components(shapes))
          nn::match_weights(weights_of(*found.model, found.config),
                            {.shapes = shapes,
                             .prefix = found.prefix,
                             .places = found.model->places(found.config, shapes)});
        ++bound;
      } catch (const Error& e) {
        EXPECT_STRNE(e.what(), "");
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 500);
  RecordProperty("bound", bound);
}

}  // namespace ebb::testing::component_layouts_test
