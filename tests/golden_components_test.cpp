// Text encoders and autoencoders against transformers and diffusers
// (tools/golden/component_golden.py).
//
// Outputs may differ from the float64 results by ten times torch's own float32 error, or 1e-5 of
// their norm; in bf16 by twice PyTorch's error.
#include <gtest/gtest.h>

#include "backends.h"
#include "io/safetensors.h"
#include "nn/storage.h"
#include "ops/group_norm/op.h"
#include "pipeline/component.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_file.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

constexpr double promise = 1e-5;

struct GoldenComponent {
  json golden;
  Component component;

  explicit GoldenComponent(const std::string& name)
      : golden(read_golden(name)),
        component(of(find_component(golden["model"].get<std::string>()))) {
    const auto fields = component.config.fields();
    for (const auto& [key, value] : golden["config"].items())
      set_field(find_field(fields, key, name),
                value.is_string() ? value.get<std::string>() : value.dump());
  }
  static Component of(const NamedModel& m) { return {m.model, m.config, ""}; }

  nn::Weights weights() const { return weights_of(*component.model, component.config); }
  std::shared_ptr<WeightStore> store() const {
    WeightStore::Weights out;
    for (const nn::Weight& w : weights()) out.emplace(w.name, stored_tensor(hashed_weight(w)));
    return std::make_shared<WeightStore>(std::move(out));
  }
};

Tensor input_of(const json& spec) {
  if (spec.contains("hash"))
    return hashed_input(spec["hash"].get<std::string>(),
                        Shape(spec["shape"].get<std::vector<int64_t>>()));
  const json& ids = spec["ids"];
  const auto rows = static_cast<int64_t>(ids.size());
  if (!ids[0].is_array()) return tensor_of(ids.get<std::vector<int64_t>>(), {rows});
  std::vector<int64_t> all;
  for (const json& row : ids)
    for (const json& id : row) all.push_back(id);
  return tensor_of(all, {rows, static_cast<int64_t>(all.size()) / rows});
}

struct Evaluated {
  NamedTensors inputs;
  EntryCall call;
};
Evaluated call_of(const json& golden) {
  Evaluated out;
  out.call.entry = golden["entry"];
  for (const auto& [name, spec] : golden["inputs"].items()) {
    out.inputs[name] = input_of(spec);
    out.call.inputs[name] = out.inputs[name].shape();
  }
  for (const auto& [name, spec] : golden["outputs"].items()) out.call.outputs.push_back(name);
  return out;
}

double relative_error(const Tensor& have, const Tensor& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.span<float>().size(); ++i) {
    const double w{want.span<float>()[i]}, d = double{have.span<float>()[i]} - w;
    error += d * d, norm += w * w;
  }
  return std::sqrt(error / norm);
}

struct On {
  std::string name, backend;
};
void PrintTo(const On& on, std::ostream* out) { *out << on.name << " on " << on.backend; }

std::vector<On> components_on(const std::string& backend) {
  std::vector<On> out;
  for (const char* name : {"clip_quick_gelu", "clip_gelu", "autoencoder_kl", "autoencoder_kl16",
                           "taesd", "taesd_full"})
    if (!test::only(backend).empty()) out.push_back({name, backend});
  return out;
}

class GoldenComponents : public test::OnBackend, public ::testing::WithParamInterface<On> {
 protected:
  GoldenComponents() : c_(GetParam().name) {}
  void SetUp() override { open(GetParam().backend); }
  GoldenComponent c_;
};

const auto name_of_component = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(cpu, GoldenComponents, ::testing::ValuesIn(components_on("cpu")),
                         name_of_component);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenComponents, ::testing::ValuesIn(components_on("cuda")),
                         name_of_component);

}  // namespace

TEST_P(GoldenComponents, outputs__are_those_of_the_reference_in_f32_and_bf16) {
  EXPECT_EQ(nn::count_elements(c_.weights()), c_.golden["parameters"].get<int64_t>());
  const auto store = c_.store();
  for (const json& golden : c_.golden["calls"]) {
    const Evaluated e = call_of(golden);
    Plan plan = entry_plan(c_.component, e.call, DType::f32, store, context_);
    Plan low = entry_plan(c_.component, e.call, DType::bf16, store, context_);
    const NamedTensors have = plan.run(e.inputs), have_low = low.run(e.inputs);
    for (const auto& [name, want] : golden["outputs"].items()) {
      const std::string what = e.call.entry + "." + name;
      EXPECT_EQ(have.at(name).shape().sizes(), want["shape"].get<std::vector<int64_t>>()) << what;
      const double allowed = std::max(promise, 10 * want["f64_rel_error"].get<double>());
      EXPECT_LE(distance(what, have.at(name).span<float>(), want), allowed) << what;
      EXPECT_LE(relative_error(have_low.at(name), have.at(name)),
                2 * want["bf16_rel_error"].get<double>() + 1e-7)
          << what << " in bf16";
    }
  }
}

// ---- layouts -------------------------------------------------------------------------------

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
  const auto store = open_component(file, component);
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

TEST(components, taesd_halves_in_files_of_their_own__are_recognised) {
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

// ---- facts that goldens alone would not pin down -------------------------------------------

TEST(components, published_presets__have_the_published_counts_and_are_recognised) {
  struct Published {
    const char* preset;
    double millions;
    size_t tensors;
  };
  for (const Published& p : {Published{"clip_l", 123.060, 196},
                             {"clip_g", 694.660, 517},
                             {"autoencoder_kl", 83.654, 248},
                             {"autoencoder_kl16", 83.820, 244}}) {
    const NamedModel m = find_component(p.preset);
    const nn::Weights weights = weights_of(*m.model, m.config);
    EXPECT_NEAR(static_cast<double>(nn::count_elements(weights)) / 1e6, p.millions, 0.0006)
        << p.preset;
    EXPECT_EQ(weights.size(), p.tensors) << p.preset;
  }
  for (const Model* m : all_models()) {
    if (m->kind == ModelKind::denoiser) continue;
    for (const Preset& p : m->presets) {
      nn::FileShapes shapes;
      for (const nn::Weight& w : weights_of(*m, p.config)) shapes[w.name] = nn::file_shape(w);
      const auto found = recognise_components(shapes);
      ASSERT_EQ(found.size(), 1U) << p.name;
      EXPECT_EQ(found[0].config.text(), p.config.text()) << p.name;
      EXPECT_EQ(m->guessed(found[0].config), "") << p.name;
    }
  }
}

// As in Stable Diffusion XL's files.
TEST(components, all_in_one_file__lists_both_text_encoders_and_the_autoencoder) {
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

// 1e-5, as in U-Nets, would not show in outputs of weights like these.
TEST(components, norms_of_the_autoencoder__have_an_eps_of_1e_6) {
  const GoldenComponent c("autoencoder_kl");
  for (const json& golden : c.golden["calls"]) {
    const Graph g = entry_graph(*c.component.model, c.component.config, call_of(golden).call);
    int norms = 0;
    for (const Node& n : g.nodes()) {
      if (n.op != &ops::def::group_norm()) continue;
      EXPECT_EQ(n.attrs.as<ops::GroupNorm>().eps, 1e-6);
      ++norms;
    }
    EXPECT_GT(norms, 10);
  }
}

// The autoencoder of Stable Diffusion XL makes activations above 65504.
TEST(components, f16__is_never_the_dtype_of_the_autoencoder) {
  const Context cpu = test::open_backend("cpu").context;
  const Model& vae = *find_component("autoencoder_kl").model;
  const bool bf16 = cpu.device->fast_in(DType::bf16);
  for (const char* entry : {"encode", "decode"}) {
    EXPECT_EQ(compute_dtype(find_entry(vae, entry), DType::f16, *cpu.device),
              bf16 ? DType::bf16 : DType::f32);
    EXPECT_EQ(compute_dtype(find_entry(vae, entry), DType::f32, *cpu.device), DType::f32);
  }
  const Model& clip = *find_component("clip_l").model;
  EXPECT_EQ(compute_dtype(find_entry(clip, "encode"), DType::f16, *cpu.device), DType::f16);
}

TEST(components, embeddings_of_tokens__give_the_states_of_tokens) {
  const GoldenComponent c("clip_gelu");
  const Evaluated e = call_of(c.golden["calls"][0]);
  const Context cpu = test::open_backend("cpu").context;
  const auto store = c.store();
  const std::vector<std::string> out = {"states.2", "pooled"};
  const Shape tokens = e.inputs.at("tokens").shape(), end = e.inputs.at("end").shape();
  const auto plan = [&](const EntryCall& call) {
    return entry_plan(c.component, call, DType::f32, store, cpu);
  };
  Plan direct = plan({"encode", {{"tokens", tokens}, {"end", end}}, out});
  Plan embed = plan({"embed", {{"tokens", tokens}}, {"embeddings"}});
  const NamedTensors rows = embed.run({{"tokens", e.inputs.at("tokens")}});
  const Tensor embeddings = rows.at("embeddings");
  Plan later = plan({"encode_embeddings", {{"embeddings", embeddings.shape()}, {"end", end}}, out});
  const NamedTensors want = direct.run(e.inputs);
  const NamedTensors have = later.run({{"embeddings", embeddings}, {"end", e.inputs.at("end")}});
  for (const std::string& name : out)
    EXPECT_TRUE(std::ranges::equal(have.at(name).span<float>(), want.at(name).span<float>()))
        << name;
}

// A table of 49408 rows in f16 would else be kept in f32 beside it.
TEST(components, table_of_tokens_in_16_bits__is_read_as_it_is) {
  const GoldenComponent c("clip_gelu");
  const Context cpu = test::open_backend("cpu").context;
  const std::string name = "text_model.embeddings.token_embedding.weight";
  WeightStore::Weights weights;
  Tensor table;
  for (const nn::Weight& w : c.weights()) {
    StoredWeight stored = stored_tensor(hashed_weight(w).to(DType::f16));
    stored.decode = [w](Value v) { return nn::decode(w, v); };
    if (w.name == name) table = stored.host;
    weights.emplace(w.name, std::move(stored));
  }
  const auto store = std::make_shared<WeightStore>(std::move(weights));
  const Tensor ids = tensor_of<int64_t>({7, 0, 999}, {1, 3});
  Plan plan = entry_plan(c.component, {"embed", {{"tokens", ids.shape()}}, {"embeddings"}},
                         DType::f32, store, cpu);
  const Tensor rows = plan.run({{"tokens", ids}}).at("embeddings");
  const Tensor want = table.rows(7, 8).to(DType::f32);
  EXPECT_TRUE(std::ranges::equal(rows.span<float>().subspan(0, want.span<float>().size()),
                                 want.span<float>()));
  EXPECT_EQ(store->held_bytes(*cpu.device), 0);
}

TEST(components, wrong_calls__are_errors_that_name_the_entry_point) {
  const NamedModel m = find_component("clip_l");
  const auto error = [&](const EntryCall& call) {
    return error_of([&] { entry_graph(*m.model, m.config, call); });
  };
  EXPECT_EQ(error({"encode", {{"tokens", {1, 77}}}, {"pooled"}}), "clip_text.encode: needs 'end'");
  EXPECT_EQ(error({"encode", {{"tokens", {1, 77}}, {"end", {2}}}, {"pooled"}}).substr(0, 47),
            "clip_text.encode: inputs must be of one batch (");
  EXPECT_EQ(error({"encode", {{"tokens", {1, 78}}, {"end", {1}}}, {"pooled"}}),
            "clip_text: a text may have 77 tokens (78)");
  EXPECT_EQ(error({"encode", {{"tokens", {1, 7}}, {"end", {1}}}, {"pool"}}).substr(0, 47),
            "clip_text.encode: unknown output 'pool' (did yo");
  EXPECT_EQ(error({"decode", {}, {}}).substr(0, 43), "clip_text: unknown entry point 'decode' (di");
}

}  // namespace ebb::testing
