// Weights with adapters against LyCORIS, PEFT and diffusers (tools/golden/adapter_golden.py), and
// what must hold without a reference.
#include <gtest/gtest.h>

#include <random>

#include "nn/ldm_names.h"
#include "nn/storage.h"
#include "support/adapter_file.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/ldm_case.h"
#include "support/small_checkpoint.h"
#include "train/model_weights.h"

namespace ebb::testing::golden_adapters_test {
namespace {

using adapters::AdapterFile, adapters::AdapterUse, adapters::BlockWeights, adapters::Network,
    adapters::Targets;
using nlohmann::json;

const json& golden() {
  static const json all = read_golden("adapters");
  return all;
}

// The small U-Net of Stable Diffusion 1.
struct Unet {
  LdmCase c{"ldm_sd1"};
  std::shared_ptr<WeightStore> store = hashed_file_store(*c.model, c.config);

  std::vector<Network> networks() const { return {unet_network(*c.model, c.config, store)}; }
  std::vector<std::string> apply(const std::vector<AdapterUse>& uses) const {
    auto warnings = adapters::check(uses, networks());
    adapters::apply(uses, networks());
    return warnings;
  }
  Tensor changed(const std::string& weight) const { return store->changed(weight, context); }
  std::vector<float> output(const std::shared_ptr<WeightStore>& weights) const {
    Plan plan(c.graph(), context, {.weights = weights});
    const Tensor f = plan.run(c.inputs()).at("F");
    return {f.span<float>().begin(), f.span<float>().end()};
  }
  Context context = open_context("cpu", {.threads = 2});
};

std::vector<float> numbers(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

const json& kind_named(const std::string& name) {
  for (const json& k : golden()["kinds"])
    if (k["case"] == name) return k;
  fail("no case ", name);
}

std::vector<std::string> kind_names() {
  std::vector<std::string> out;
  for (const json& k : golden()["kinds"]) out.push_back(k["case"]);
  return out;
}

class AdapterKinds : public ::testing::TestWithParam<std::string> {
 protected:
  const json& golden_ = kind_named(GetParam());
  Folder folder_;
  std::string file_ = write_adapter(folder_ / "a.safetensors", golden_);
  double strength_ = golden_["strength"];
  Unet unet_;
};
INSTANTIATE_TEST_SUITE_P(golden, AdapterKinds, ::testing::ValuesIn(kind_names()),
                         [](const auto& info) { return info.param; });

}  // namespace

TEST_P(AdapterKinds, merged_weights__are_the_references) {
  EXPECT_TRUE(unet_.apply({adapter_use(file_, strength_)}).empty());
  for (const auto& [weight, wanted] : golden_["merged"].items())
    EXPECT_LT(distance("merged", numbers(unet_.changed(weight)), wanted), 2e-6) << weight;
}

TEST_P(AdapterKinds, strength_0__gives_the_files_bits) {
  unet_.apply({adapter_use(file_, 0)});
  for (const auto& [weight, wanted] : golden_["merged"].items())
    EXPECT_EQ(numbers(unet_.changed(weight)),
              numbers(unet_.store->weights().find(weight)->second.host));
}

// Of files that are cut, and whose numbers or names are others: an Error that names the file, or a
// change that is finite.
TEST_P(AdapterKinds, mutated_files__are_refused_or_read) {
  const std::string bytes = file_bytes(file_);
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    std::string other = bytes;
    const size_t header = std::min<size_t>(other.size(), 8 + 400);
    for (int k = 0; k <= i % 3; ++k)
      other[random() % (i % 2 ? header : other.size())] = static_cast<char>(random());
    if (i % 5 == 0) other.resize(random() % other.size());
    const std::string path = folder_ / "b.safetensors";
    put_file(path, other);
    const std::string error = error_of([&] {
      unet_.apply({adapter_use(path, 1)});
      for (const auto& [weight, wanted] : golden_["merged"].items()) unet_.changed(weight);
    });
    refused += !error.empty();
    EXPECT_TRUE(error.empty() || error.find("b.safetensors") != std::string::npos) << error;
  }
  EXPECT_GT(refused, 30);
}

// ---- networks ------------------------------------------------------------------------------

TEST(adapters, unet_with_a_lora__gives_the_output_of_diffusers) {
  const json& g = golden()["unet"];
  const Folder folder;
  const Unet u;
  EXPECT_TRUE(
      u.apply({adapter_use(write_adapter(folder / "a.safetensors", g), g["strength"])}).size() ==
      1);  // the text encoder's part
  EXPECT_LT(distance("output", u.output(u.store), g["output"]), 1e-5);
}

TEST(adapters, both_layouts_of_a_checkpoint__give_the_same_bits) {
  const Folder folder;
  const Unet u;
  const nn::LdmNames names = nn::LdmNames::of_diffusers([&] {
    nn::FileShapes out;
    for (const json& t : u.c.golden["names"]) out[t[1].get<std::string>()] = {};
    return out;
  }());
  std::vector<io::NamedTensor> original, diffusers;
  nn::FileShapes theirs;
  for (const nn::Weight& w : weights_of(*u.c.model, u.c.config)) {
    Tensor t = hashed_file_tensor(w.name, nn::file_shape(w)).to(DType::bf16);
    original.push_back({w.name, t});
    const Shape s = t.shape();  // newer files have matrices in place of 1x1 filters
    if (s.rank() == 4 && s[2] * s[3] == 1 && w.name.find("proj_") != std::string::npos)
      t = t.reshape({s[0], s[1]});
    diffusers.push_back({names.to_diffusers(w.name), t});
    theirs[diffusers.back().name] = t.shape();
  }
  io::write_safetensors(folder / "o.safetensors", original);
  io::write_safetensors(folder / "d.safetensors", diffusers);
  std::vector<AdapterUse> uses;
  for (const char* kind : {"lora_tucker", "lora_1x1", "dora_columns", "oft", "boft", "glora_conv"})
    uses.push_back(adapter_use(
        write_adapter(folder / (std::string(kind) + ".safetensors"), kind_named(kind)), 0.7));
  const auto output = [&](const std::string& file, const nn::FilePlaces& places) {
    const auto store = train::open_model_weights(folder / file, weights_of(*u.c.model, u.c.config),
                                                 {.places = places});
    const auto plain = u.output(store);
    adapters::apply(uses, {unet_network(*u.c.model, u.c.config, store)});
    const auto changed = u.output(store);
    EXPECT_NE(plain, changed);
    return changed;
  };
  EXPECT_EQ(output("o.safetensors", {}),
            output("d.safetensors", u.c.model->places(u.c.config, theirs)));
}

TEST(adapters, several_files__add_up_in_any_dtype) {
  const Folder folder;
  const Unet u;
  const json& lora = kind_named("lora_linear");
  const std::string a = write_adapter(folder / "a.safetensors", lora), b = folder / "b.safetensors";
  std::vector<io::NamedTensor> low;
  for (const auto& [name, t] : adapter_tensors(lora["tensors"]))
    low.push_back({name, t.to(DType::f16)});
  io::write_safetensors(b, low);
  const std::string w = lora["merged"].begin().key();
  const auto base = numbers(u.changed(w));
  u.apply({adapter_use(a, 0.5)});
  const auto half = numbers(u.changed(w));
  u.apply({adapter_use(a, 0.5), adapter_use(b, 0.5), adapter_use(a, -1)});
  const auto none = numbers(u.changed(w));
  for (size_t i = 0; i < base.size(); ++i) EXPECT_NEAR(none[i], base[i], 1e-3) << i;
  EXPECT_NE(half, base);
}

// ---- text encoders -------------------------------------------------------------------------

namespace {

// A small text encoder in the files of Hugging Face and of OpenCLIP, which has q, k and v in one
// and the projection transposed.
struct Clip {
  const Model* model = find_component("clip_text").model;
  ModelConfig config = model->presets[0].config;
  Folder folder;
  nn::FileShapes shapes[2];

  Clip() {
    for (const auto& [key, value] : std::map<std::string, std::string>{{"width", "64"},
                                                                       {"layers", "2"},
                                                                       {"heads", "1"},
                                                                       {"hidden", "96"},
                                                                       {"vocabulary", "100"},
                                                                       {"projection", "48"}})
      set_field(find_field(config.fields(), key, "clip"), value);
    std::map<std::string, Tensor> mine, open;
    nn::FileShapes marker = {{"transformer.resblocks.0.mlp.c_fc.weight", {}},
                             {"token_embedding.weight", {}}};
    const nn::FilePlaces places = model->places(config, marker);
    for (const nn::Weight& w : weights_of(*model, config)) {
      const Tensor t = hashed_file_tensor(w.name, nn::file_shape(w));
      mine[w.name] = t;
      const nn::FilePlace p = places(w.name);
      if (p.transposed) {
        Tensor turned(DType::f32, {t.shape()[1], t.shape()[0]});
        for (int64_t i = 0; i < t.numel(); ++i)
          turned.span<float>()[static_cast<size_t>(i % t.shape()[1] * t.shape()[0] +
                                                   i / t.shape()[1])] =
              t.span<float>()[static_cast<size_t>(i)];
        open[p.name] = turned;
        continue;
      }
      Shape whole = t.shape();
      whole[0] *= p.parts;
      Tensor& to = open.try_emplace(p.name, DType::f32, whole).first->second;
      std::ranges::copy(t.span<float>(),
                        to.span<float>().begin() + static_cast<std::ptrdiff_t>(p.part * t.numel()));
    }
    for (int i = 0; i < 2; ++i) {
      std::vector<io::NamedTensor> tensors;
      for (const auto& [name, t] : i ? open : mine) {
        tensors.push_back({name, t});
        shapes[i][name] = t.shape();
      }
      io::write_safetensors(folder / str(i, ".safetensors"), tensors);
    }
  }
  Network network(int layout) const {
    auto store =
        train::open_model_weights(folder / str(layout, ".safetensors"), weights_of(*model, config),
                                  {.places = model->places(config, shapes[layout])});
    return {Network::Part::text, 1, model, config, std::move(store)};
  }
};

json lora_of(const std::string& stem, int64_t out, int64_t in) {
  return {{stem + ".lora_down.weight", {2, in}, 0.3, 0.0},
          {stem + ".lora_up.weight", {out, 2}, 0.3, 0.0}};
}

}  // namespace

TEST(adapters, layouts_of_text_encoders__give_the_same_bits) {
  const Clip clip;
  json all = {{"tensors", lora_of("lora_te_text_model_encoder_layers_1_self_attn_k_proj", 64, 64)}};
  for (const json& t : lora_of("lora_te_text_projection", 48, 64)) all["tensors"].push_back(t);
  const std::string file = write_adapter(clip.folder / "a.safetensors", all);
  const std::string weights[] = {"text_model.encoder.layers.1.self_attn.k_proj.weight",
                                 "text_projection.weight"};
  std::vector<std::vector<float>> changed[2];
  for (int layout = 0; layout < 2; ++layout) {
    const Network n = clip.network(layout);
    EXPECT_TRUE(adapters::check({adapter_use(file, 0.7)}, {n}).empty());
    adapters::apply({adapter_use(file, 0.7)}, {n});
    for (const std::string& w : weights) {
      Graph g;
      const Type type{DType::f32, {w == weights[1] ? 48 : 64, 64}};
      g.output("w", g.source(Source::Kind::param, w, type));
      Plan plan(g, open_context("cpu", {.threads = 2}), {.weights = n.weights});
      changed[layout].push_back(numbers(plan.run({}).at("w")));
      EXPECT_NE(changed[layout].back(), numbers(hashed_file_tensor(w, type.shape)));
    }
  }
  EXPECT_EQ(changed[0], changed[1]);
}

TEST(adapters, spellings_of_one_layer__mean_it) {
  const Unet u;
  const Clip clip;
  Network second = clip.network(0);
  second.number = 2;
  const Targets targets({u.networks()[0], clip.network(0), second});
  const std::string layer = "input_blocks.4.1.transformer_blocks.0.attn1.to_out.0";
  for (const char* stem :
       {"lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_out_0",
        "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_out_0",
        "lycoris_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_out_0",
        "unet.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_out.0",
        "base_model.model.down_blocks.1.attentions.0.transformer_blocks.0.attn1.to_out.0",
        "down_blocks.1.attentions.0.transformer_blocks.0.attn1.processor.to_out",
        "diffusion_model.input_blocks.4.1.transformer_blocks.0.attn1.to_out.0",
        "model.diffusion_model.input_blocks.4.1.transformer_blocks.0.attn1.to_out.0"}) {
    const auto found = targets.find(stem);
    ASSERT_TRUE(found) << stem;
    EXPECT_EQ(found->network, 0u);
    EXPECT_EQ(found->layer, layer);
  }
  const std::string text = "text_model.encoder.layers.0.self_attn.q_proj";
  for (const auto& [stem, network] : std::map<std::string, size_t>{
           {"lora_te_text_model_encoder_layers_0_self_attn_q_proj", 1},
           {"lora_te1_text_model_encoder_layers_0_self_attn_q_proj", 1},
           {"lora_te2_text_model_encoder_layers_0_self_attn_q_proj", 2},
           {"text_encoder.text_model.encoder.layers.0.self_attn.q_proj", 1},
           {"text_encoder.text_model.encoder.layers.0.self_attn.to_q", 1},
           {"text_encoder_2.encoder.layers.0.self_attn.q_proj", 2},
           {"text_encoders.clip_g.transformer.text_model.encoder.layers.0.self_attn.q_proj", 2}}) {
    const auto found = targets.find(stem);
    ASSERT_TRUE(found) << stem;
    EXPECT_EQ(found->network, network) << stem;
    EXPECT_EQ(found->layer, text);
  }
  EXPECT_FALSE(targets.find("lora_unet_down_blocks_9_attentions_0_proj_in"));
}

// ---- errors --------------------------------------------------------------------------------

namespace {

std::string error_with(const json& tensors, const std::function<void(Tensor&)>& spoil = {}) {
  const Folder folder;
  auto all = adapter_tensors(tensors);
  if (spoil) spoil(all[0].tensor);
  io::write_safetensors(folder / "a.safetensors", all);
  const Unet u;
  return error_of([&] { u.apply({adapter_use(folder / "a.safetensors", 1)}); });
}

const std::string to_q = "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q";

void expect_starts(const std::string& error, const std::string& start) {
  EXPECT_EQ(error.substr(0, start.size()), start);
}

}  // namespace

TEST(adapters, faults__name_the_tensor_and_its_numbers) {
  expect_starts(error_with(lora_of(to_q, 64, 32)),
                "adapter: '" + to_q +
                    ".lora_down.weight' must have 2 rows of 64 numbers (it is "
                    "[2,32], for a weight of 64 outputs, 64 inputs, 1 tap)");
  json other_rank = lora_of(to_q, 64, 64);
  other_rank[1][1] = {64, 3};
  expect_starts(error_with(other_rank), "adapter: '" + to_q +
                                            ".lora_up.weight' must have 64 rows of 2 numbers (it "
                                            "is [64,3]");
  json half = lora_of(to_q, 64, 64);
  half.erase(1);
  expect_starts(error_with(half), "adapter: '" + to_q + "' lacks its tensor up");
  expect_starts(
      error_with(lora_of(to_q, 64, 64), [](Tensor& t) { t.span<float>()[3] = std::nanf(""); }),
      "checkpoint: weights must be finite (" + to_q + ".lora_down.weight has nan as element 3)");
  json alpha = lora_of(to_q, 64, 64);
  alpha.push_back({to_q + ".alpha", {2}, 1.0, 0.0});
  expect_starts(error_with(alpha), "adapter: '" + to_q + ".alpha' must be one number (it is [2])");
}

TEST(adapters, file_for_another_network__is_an_error_with_the_nearest_names) {
  const std::string stem = "lora_unet_down_blocks_1_attentions_7_transformer_blocks_0_attn1_to_q";
  expect_starts(error_with(lora_of(stem, 64, 64)),
                "adapter: the file is for other networks: 1 of 1 layers fit no network here: '" +
                    stem + "' (nearest: '" + to_q + "')");
  expect_starts(error_with({{"conv_in.weight", {2, 2}, 1.0, 0.0}}),
                "adapter: the file has no tensors of an adapter (1 tensors");
}

TEST(adapters, file_that_fits_in_part__is_a_warning) {
  const Folder folder;
  json all = {{"tensors", lora_of(to_q, 64, 64)}};
  for (const json& t : lora_of("lora_te_text_model_encoder_layers_0_mlp_fc1", 8, 8))
    all["tensors"].push_back(t);
  const std::string file = write_adapter(folder / "a.safetensors", all);
  const Unet u;
  const auto warnings = u.apply({adapter_use(file, 1)});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "adapter: 1 of 2 layers fit no network here: "
            "'lora_te_text_model_encoder_layers_0_mlp_fc1'  " +
                file);
}

// ---- block weights -------------------------------------------------------------------------

TEST(block_weights, lists_of_each_length__are_of_its_blocks) {
  const auto weights = [](int count) {
    std::string text = "0.5";
    for (int i = 1; i < count; ++i) text += str(',', i);
    return BlockWeights(text);
  };
  EXPECT_EQ(weights(17).of_text(), 0.5);
  EXPECT_EQ(weights(17).of_layer("input_blocks.1.1.proj_in"), 1);
  EXPECT_EQ(weights(17).of_layer("input_blocks.3.0.op"), 0);
  EXPECT_EQ(weights(17).of_layer("middle_block.1.proj_in"), 7);
  EXPECT_EQ(weights(17).of_layer("output_blocks.3.1.proj_in"), 8);
  EXPECT_EQ(weights(17).of_layer("output_blocks.11.1.proj_in"), 16);
  EXPECT_EQ(weights(12).of_layer("input_blocks.8.1.proj_in"), 4);
  EXPECT_EQ(weights(12).of_layer("output_blocks.5.1.proj_in"), 11);
  EXPECT_EQ(weights(26).of_layer("input_blocks.11.0.in_layers.2"), 12);
  EXPECT_EQ(weights(26).of_layer("output_blocks.0.0.in_layers.2"), 14);
  EXPECT_EQ(weights(20).of_layer("middle_block.1.proj_in"), 10);
  EXPECT_EQ(weights(26).of_layer("time_embed.0"), 1);
  EXPECT_EQ(BlockWeights().of_layer("input_blocks.1.1.proj_in"), 1);
  EXPECT_EQ(error_of([] { BlockWeights("1,2"); }),
            "lora: block weights are 12, 17, 20 or 26 numbers (found 2)  lbw=1,2");
  EXPECT_EQ(error_of([] { BlockWeights("1,x"); }),
            "lora: block weights must be numbers from -10000 to 10000 (found 'x')  lbw=1,x");
}

}  // namespace ebb::testing::golden_adapters_test
