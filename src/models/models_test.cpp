// Names, shapes and counts of every model against the published networks and the golden files.
#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "models/model.h"
#include "nn/ops.h"
#include "support/files.h"
#include "support/golden_case.h"

using namespace ebb;

namespace {

std::vector<const Model*> denoisers() {
  std::vector<const Model*> out;
  for (const Model* m : all_models())
    if (m->kind == ModelKind::denoiser) out.push_back(m);
  return out;
}

std::vector<nn::Weight> weights(const Model& m, const ModelConfig& c) {
  Graph g;
  const nn::NetworkInputs in = network_inputs(g, m, c, 2);
  const Value f = network_of(m, c)(g, in);
  EXPECT_EQ(f.shape().slice(0, 3), in.x.shape().slice(0, 3)) << m.name;
  verify(g, m.name);
  return weights_of(m, c);
}

nn::FileShapes shapes_of(const std::vector<nn::Weight>& weights, const std::string& prefix = "") {
  nn::FileShapes out;
  for (const nn::Weight& w : weights) out[prefix + w.name] = nn::file_shape(w);
  return out;
}

struct Published {
  const char* preset;
  double millions;  // elements
  size_t tensors;
};

}  // namespace

TEST(models, published_presets__have_the_published_counts) {
  // Of the checkpoints: Dhariwal and Nichol 2021, Karras et al. 2022, Peebles and Xie 2023,
  // Rombach et al. 2022, Podell et al. 2023.
  const Published published[] = {
      {"adm64", 295.904, 541},  {"adm128", 421.530, 493},         {"adm256", 553.838, 567},
      {"adm512", 558.998, 645}, {"ddpmpp_cifar10", 55.734, 417},  {"edm_imagenet64", 295.90, 541},
      {"dit_xl2", 675.13, 292}, {"dit_l2", 458.10, 252},          {"dit_b2", 130.51, 132},
      {"dit_s2", 32.96, 132},   {"dit_xl2_512", 676.01, 292},     {"cs179", 1.424321, 40},
      {"sd15", 859.521, 686},   {"sd15_inpaint", 859.535, 686},   {"sd2", 865.911, 686},
      {"sdxl", 2567.464, 1680}, {"sdxl_refiner", 2259.527, 1220},
  };
  for (const Published& p : published) {
    const NamedModel found = find_model(p.preset);
    const auto w = weights(*found.model, found.config);
    EXPECT_NEAR(static_cast<double>(nn::count_elements(w)) / 1e6, p.millions, 0.0051) << p.preset;
    EXPECT_EQ(w.size(), p.tensors) << p.preset;
  }
}

TEST(models, golden_cases__have_the_names_and_shapes_of_the_references) {
  for (const std::string& name : ebb::testing::golden_network_cases()) {
    const ebb::testing::GoldenCase c(name);
    std::map<std::string, Shape> ours, theirs;
    int64_t trained = 0;
    for (const nn::Weight& w : weights(*c.model, c.config)) {
      if (!w.trained) continue;
      ours[w.name] = nn::file_shape(w);
      trained += w.shape.numel();
    }
    for (const auto& [key, entry] : c.golden["gradients"].items())
      theirs[key] = ebb::testing::GoldenCase::shape_of(entry);
    EXPECT_EQ(trained, c.golden["parameters"].get<int64_t>()) << name;
    for (const auto& [key, shape] : theirs)
      EXPECT_TRUE(ours.contains(key) && ours[key] == shape) << name << ": " << key << shape;
    for (const auto& [key, shape] : ours)
      EXPECT_TRUE(theirs.contains(key)) << name << ": " << key << shape;
  }
}

TEST(models, every_preset__is_recognised_by_its_tensors) {
  for (const Model* m : denoisers())
    for (const Preset& p : m->presets) {
      const Component r = recognise_model(shapes_of(weights(*m, p.config), "model."));
      EXPECT_EQ(r.model->name, m->name) << p.name;
      EXPECT_EQ(r.prefix, "model.") << p.name;
      // Presets of one shape differ only in what shapes do not tell.
      ModelConfig expected = p.config;
      expected.common().dropout = r.config.common().dropout;
      EXPECT_EQ(r.config.text(), expected.text()) << p.name;
      EXPECT_EQ(r.model->guessed(r.config), "") << p.name;
    }
}

TEST(models, what_tensors_do_not_tell__is_said_where_no_preset_decides) {
  const auto guessed = [](const char* name, const auto& change) {
    NamedModel m = find_model(name);
    change(m.config);
    const Component r = recognise_model(shapes_of(weights(*m.model, m.config)));
    return r.model->guessed(r.config);
  };
  const auto set = [](const char* json) {
    return [json](ModelConfig& c) { set_fields_json(c.fields(), json, "test"); };
  };
  EXPECT_EQ(guessed("unet64", set(R"({"model_channels": 32, "num_head_channels": 16})")),
            "num_heads 4, use_new_attention_order false, image_size 64");
  EXPECT_EQ(guessed("dit_s2", set(R"({"depth": 3, "heads": 3})")), "heads 6");
}

TEST(models, golden_networks__are_recognised_as_something_with_their_tensors) {
  for (const std::string& name : ebb::testing::golden_network_cases()) {
    const ebb::testing::GoldenCase c(name);
    const nn::FileShapes file = shapes_of(weights(*c.model, c.config));
    const Component r = recognise_model(file);
    EXPECT_EQ(r.model->name, c.model->name) << name;
    EXPECT_EQ(shapes_of(weights(*r.model, r.config)), file) << name;
  }
}

TEST(models, preset_names__are_one_name_space) {
  std::set<std::string> seen;
  for (const Model* m : all_models()) {
    ASSERT_FALSE(m->presets.empty()) << m->name;
    EXPECT_TRUE(seen.insert(m->name).second) << m->name;
    for (const Preset& p : m->presets) {
      EXPECT_TRUE(p.name == m->name || seen.insert(p.name).second) << p.name;
      EXPECT_NO_THROW(check(*m, p.config)) << p.name;
    }
  }
}

TEST(find_model, preset_of_a_model__gives_the_model) {
  const NamedModel found = find_model("unet64");
  EXPECT_EQ(found.model->name, "adm");
  EXPECT_EQ(found.config.common().image_size, 64);
}

TEST(find_model, unknown_name__suggests_the_nearest) {
  ebb::testing::expect_error([] { find_model("dit_xl3"); }, "(did you mean 'dit_xl");
}

TEST(recognise_model, foreign_tensors__shows_names) {
  ebb::testing::expect_error([] { recognise_model({{"foo.weight", {3, 4}}}); }, "foo.weight[3,4]");
}

TEST(models, networks_of_impossible_configs__are_errors) {
  const auto broken = [](const char* preset, const char* field, const char* text) {
    NamedModel m = find_model(preset);
    set_field(find_field(m.config.fields(), field, preset), text);
    EXPECT_THROW(network_of(*m.model, m.config), Error) << preset << " " << field << "=" << text;
  };
  broken("adm64", "image_size", "60");
  broken("adm64", "model_channels", "30");
  broken("ddpmpp_cifar10", "embedding", "sinus");
  broken("ddpmpp_cifar10", "encoder", "reverse");
  broken("edm_imagenet64", "model_channels", "100");
  broken("dit_xl2", "heads", "7");
  broken("dit_xl2", "patch", "3");
  broken("dit_xl2", "dropout", "0.1");
  broken("cs179", "classes", "10");
  broken("tiny", "image_size", "30");
}

TEST(models, absurd_sizes__are_refused_before_a_network_is_described) {
  const auto error = [](const char* preset, const char* field, const char* text) -> std::string {
    NamedModel m = find_model(preset);
    set_field(find_field(m.config.fields(), field, preset), text);
    return ebb::testing::error_of([&] {
      Graph g;
      network_of(*m.model, m.config)(g, network_inputs(g, *m.model, m.config, 1));
    });
  };
  EXPECT_EQ(error("tiny", "image_size", "1073741824"),
            "tiny: image_size must lie in [1, 16384] (1073741824)");
  EXPECT_EQ(error("tiny", "classes", "1000001"),
            "tiny: classes must lie in [0, 1000000] (1000001)");
  EXPECT_EQ(error("tiny", "in_channels", "0"), "tiny: in_channels must lie in [1, 65536] (0)");
  EXPECT_EQ(error("tiny", "embedding", "1000000000"),
            "tiny: embedding must lie in [0, 65536] (1000000000)");
  EXPECT_EQ(error("tiny", "heads", "-5"), "tiny: heads must lie in [0, 65536] (-5)");
  EXPECT_EQ(error("tiny", "channels", "16,1000000000"),
            "tiny: channels must lie in [0, 65536] (1000000000)");
  EXPECT_EQ(error("tiny", "channels",
                  "4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,4,"
                  "4,4"),
            "tiny: channels must be a list of at most 32 (33)");
  EXPECT_EQ(error("tiny", "dropout", "1"), "tiny: dropout must lie in [0, 1) (1)");
  EXPECT_EQ(error("dit_s2", "mlp_ratio", "1e300"),
            "dit: mlp_ratio must lie in [0, 65536] (1e+300)");
  EXPECT_EQ(error("dit_s2", "mlp_ratio", "nan"), "dit: mlp_ratio must lie in [0, 65536] (nan)");
  // as many blocks as a field may say are too many tensors
  for (const auto& [preset, blocks] : {std::pair("tiny", "blocks"),
                                       {"dit_s2", "depth"},
                                       {"adm64", "num_res_blocks"},
                                       {"ddpmpp_cifar10", "num_blocks"}})
    EXPECT_EQ(error(preset, blocks, "60000").substr(0, 67),
              "network: must have at most 10000 tensors; fewer blocks make fewer  ")
        << preset;
}

// ---- sizes ---------------------------------------------------------------------------------

// U-Nets take any multiple of the factor by which they shrink the image, and say so.
TEST(models, height_and_width__may_differ_where_the_network_allows_it) {
  for (const Model* m : denoisers()) {
    const ModelConfig& config = m->presets[0].config;
    const int64_t multiple = m->size_multiple(config);
    EXPECT_EQ(multiple == 0, m->name == "dit");
    if (multiple == 0) continue;
    const auto latents = m->latents(config);
    const int64_t pixels = multiple * (latents ? latents->factor : 1);
    const Shape sample = sample_shape(*m, config, {.height = 2 * pixels, .width = 3 * pixels});
    EXPECT_EQ(sample, Shape({2 * multiple, 3 * multiple, config.common().in_channels}));
    Graph g;
    const Value x = g.input("x", {DType::f32, {1, sample[0], sample[1], sample[2]}});
    const Value noise = g.input("noise", {DType::f32, {1}});
    const Value f = network_of(*m, config)(g, {.x = x, .noise = noise});
    EXPECT_EQ(f.shape().slice(0, 3), x.shape().slice(0, 3)) << m->name;
    Graph square;  // the same tensors
    network_of(*m, config)(square, network_inputs(square, *m, config, 1));
    EXPECT_EQ(shapes_of(ebb::testing::weights_of(g)), shapes_of(ebb::testing::weights_of(square)))
        << m->name;
  }
}

TEST(models, sizes_that_a_network_does_not_take__are_named_with_the_nearest) {
  const auto error = [](const char* name, ImageSize size) {
    const NamedModel m = find_model(name);
    try {
      sample_shape(*m.model, m.config, size);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(
      error("adm64", {60, 64}),
      "--size: adm makes images whose sides are multiples of 8 up to 16384 pixels (64x60; the "
      "nearest is 64x64)");
  EXPECT_EQ(error("dit_xl2", {256, 512}),
            "--size: dit makes images of 256x256 pixels only, which its table of positions is made "
            "for (512x256)");
  EXPECT_EQ(error("dit_xl2", {256, 256}), "no error");
  EXPECT_EQ(error("adm64", {16384, 8192}),
            "--size: adm makes images of less than 134217728 pixels (8192x16384 has 134217728)");
  EXPECT_EQ(error("adm64", {16384, 8128}), "no error");
  EXPECT_EQ(error("tiny", {-4, 4}).substr(0, 19), "--size: tiny makes ");
}

// ---- components ----------------------------------------------------------------------------

TEST(recognise_components, file_of_several__lists_them_with_their_prefixes) {
  const Model decoder{.name = "toy_decoder",
                      .kind = ModelKind::autoencoder,
                      .recognise = [](const nn::FileShapes& t) -> std::optional<ModelConfig> {
                        if (!t.contains("decoder.weight")) return {};
                        return find_model("tiny").config;
                      }};
  const NamedModel tiny = find_model("tiny");
  nn::FileShapes file = shapes_of(weights(*tiny.model, tiny.config), "model.diffusion_model.");
  file["first_stage_model.decoder.weight"] = {3, 4};
  std::vector<const Model*> models = all_models();
  models.push_back(&decoder);
  const auto found = recognise_components(file, models);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].model->name, "tiny");
  EXPECT_EQ(found[0].prefix, "model.diffusion_model.");
  EXPECT_EQ(found[1].model, &decoder);
  EXPECT_EQ(found[1].prefix, "first_stage_model.");
  EXPECT_EQ(name_of(found[1].model->kind), "autoencoder");
  EXPECT_EQ(recognise_components(file).size(), 1U);
}

TEST(recognise_components, file_of_none__says_what_was_looked_for) {
  EXPECT_TRUE(recognise_components({{"foo.weight", {3, 4}}}).empty());
  ebb::testing::expect_error(
      [] {
        recognise_model({{"foo.weight", {3, 4}}});
      },
      "model: the file has 1 tensors of no network that ebb knows (foo.weight[3,4]); ebb sample "
      "--model NAME takes it for one of adm, ");
}

TEST(models, any_small_size__is_an_error_or_a_network) {
  for (const Model* m : denoisers()) {
    int64_t errors = 0, networks = 0;
    for (const Field& field : ModelConfig(m->presets[0].config).fields())
      for (const char* text : {"0", "1", "2", "3", "5", "8", "0,0", "4,0", "32,0,32"}) {
        ModelConfig c = m->presets[0].config;
        try {
          set_field(find_field(c.fields(), field.name, m->name), text);
          Graph g;
          const nn::NetworkInputs in = network_inputs(g, *m, c, 1);
          const Value f = network_of(*m, c)(g, in);
          const std::string what = str(m->name, ": ", field.name, " = ", text);
          EXPECT_EQ(f.shape().slice(0, 3), in.x.shape().slice(0, 3)) << what;
          // a variance may come behind the noise
          EXPECT_TRUE(f.shape()[3] == in.x.shape()[3] || f.shape()[3] == 2 * in.x.shape()[3])
              << what << "  " << f.shape();
          ++networks;
        } catch (const Error&) {
          ++errors;
        }
      }
    EXPECT_GT(networks, 0) << m->name;
    EXPECT_GT(errors, 0) << m->name;
  }
}

TEST(models, tiny__is_cheap_enough_for_a_cpu) {
  const NamedModel tiny = find_model("tiny");
  Graph g;
  network_of(*tiny.model, tiny.config)(g, network_inputs(g, *tiny.model, tiny.config, 1));
  double flops = 0;
  for (const Node& n : g.nodes()) flops += cost_of(g.signature(n)).flops;
  EXPECT_LE(flops, 65e6);
  RecordProperty("mflop", static_cast<int>(flops / 1e6));
  RecordProperty("parameters",
                 static_cast<int>(nn::count_elements(weights_of(*tiny.model, tiny.config))));
}

// ---- Stable Diffusion's U-Net --------------------------------------------------------------

// What goldens with hashed weights cannot tell apart: the epsilon of norms of large variance.
TEST(ldm_unet, norms__have_the_epsilons_of_the_original) {
  const NamedModel m = find_model("sdxl");
  Graph g;
  network_of(*m.model, m.config)(g, network_inputs(g, *m.model, m.config, 1));
  int64_t transformers = 0, others = 0;
  for (const Node& n : g.nodes()) {
    if (n.op != &ops::def::group_norm()) continue;
    const bool transformer = n.at.ends_with(".1.norm");
    EXPECT_EQ(n.attrs.as<ops::GroupNorm>().eps, transformer ? 1e-6 : 1e-5) << n.at;
    ++(transformer ? transformers : others);
  }
  EXPECT_EQ(transformers, 11);
  EXPECT_EQ(others, 2 * 17 + 1);
}

// The gate of a feed-forward network is the GELU of the error function.
TEST(ldm_unet, gates__are_no_approximation) {
  const NamedModel m = find_model("sd15");
  Graph g;
  network_of(*m.model, m.config)(g, network_inputs(g, *m.model, m.config, 1));
  const auto count = [&](std::string_view op) {
    return std::ranges::count_if(g.nodes(), [&](const Node& n) { return n.op->name == op; });
  };
  EXPECT_EQ(count("gelu"), 16);
  EXPECT_EQ(count("gelu_tanh"), 0);
}

TEST(ldm_unet, impossible_configs__are_errors) {
  const auto error = [](const char* preset, const char* json) {
    NamedModel m = find_model(preset);
    set_fields_json(m.config.fields(), json, "test");
    return ebb::testing::error_of([&] { check(*m.model, m.config); });
  };
  EXPECT_EQ(error("sd15", R"({"num_res_blocks": 3})"),
            "ldm_unet: input_depths must have one number a residual block (8, not 12)");
  EXPECT_EQ(error("sd15", R"({"middle_blocks": 1})"),
            "ldm_unet: a transformer in the middle (1) needs 2 residual blocks (1)");
  for (const int64_t n : {0, 7})
    EXPECT_EQ(error("sd15", str("{\"model_channels\": ", n, "}").c_str()),
              str("ldm_unet: model_channels must be even and at least 2 (got ", n, ")"));
  EXPECT_EQ(error("sd15", R"({"groups": 48})"),
            "ldm_unet: channels of a level (320) must divide by the groups of its norms (48)");
  EXPECT_EQ(error("sdxl", R"({"vector": 1000})"),
            "ldm_unet: the vector (1000) must have room for a pooled text beside the sizes (6 of "
            "256 channels)");
  EXPECT_EQ(error("sd15", R"({"num_heads": 0})"), "ldm_unet: needs heads (0)");
  EXPECT_EQ(error("sd15", R"({"prediction": "x0"})"),
            "ldm_unet: prediction must be eps, v or edm ('x0')");
  EXPECT_EQ(error("sd15", R"({"classes": 3})"), "ldm_unet: has no classes (3)");
}
