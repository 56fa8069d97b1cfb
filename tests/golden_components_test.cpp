// Text encoders and autoencoders against transformers and diffusers
// (tools/golden/component_golden.py).
//
// Outputs may differ from the float64 results by ten times torch's own float32 error, or 1e-5 of
// their norm; in bf16 by twice PyTorch's error.
#include <gtest/gtest.h>

#include "backends.h"
#include "nn/storage.h"
#include "ops/group_norm/op.h"
#include "pipeline/run_dtype.h"
#include "support/files.h"
#include "support/golden_component.h"
#include "support/golden_distance.h"

namespace ebb::testing::golden_components_test {
namespace {

using nlohmann::json;

constexpr double promise = 1e-5;

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
  for (const char* name :
       {"clip_quick_gelu", "clip_gelu", "clip_vision", "clip_vision_quick", "ip_adapter_linear",
        "ip_adapter_resampler", "ip_adapter_mlp", "autoencoder_kl", "autoencoder_kl16", "taesd",
        "taesd_full", "esrgan_x4", "esrgan_x2", "esrgan_x1", "esrgan_compact"})
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

TEST_P(GoldenComponents, outputs__are_those_of_the_reference_in_f32_and_16_bits) {
  EXPECT_EQ(nn::count_elements(c_.weights()), c_.golden["parameters"].get<int64_t>());
  const auto store = c_.store();
  for (const json& golden : c_.golden["calls"]) {
    const Evaluated e = call_of(golden);
    Plan plan = entry_plan(c_.component, e.call, DType::f32, store, context_);
    const NamedTensors have = plan.run(e.inputs);
    for (const auto& [name, want] : golden["outputs"].items()) {
      const std::string what = e.call.entry + "." + name;
      EXPECT_EQ(have.at(name).shape().sizes(), want["shape"].get<std::vector<int64_t>>()) << what;
      const double allowed = std::max(promise, 10 * want["f64_rel_error"].get<double>());
      EXPECT_LE(distance(what, have.at(name).span<float>(), want), allowed) << what;
    }
    for (const DType dtype : {DType::bf16, DType::f16}) {
      // an autoencoder asked for f16 runs in another dtype
      const DType runs =
          compute_dtype(find_entry(*c_.component.model, e.call.entry), dtype, *context_.device);
      Plan low = entry_plan(c_.component, e.call, dtype, store, context_);
      const NamedTensors have_low = low.run(e.inputs);
      for (const auto& [name, want] : golden["outputs"].items()) {
        const std::string key = str(runs, "_rel_error");
        if (runs != DType::f32 && !want.contains(key)) continue;  // older files lack f16
        EXPECT_LE(relative_error(have_low.at(name), have.at(name)), 2 * want.value(key, 0.0) + 1e-7)
            << e.call.entry << "." << name << " in " << dtype;
      }
    }
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
                             {"autoencoder_kl16", 83.820, 244},
                             {"esrgan", 16.698, 702},
                             {"esrgan_x2", 16.703, 702},
                             {"esrgan_anime6b", 4.468, 192},
                             {"esrgan_compact", 1.213, 101},
                             {"esrgan_compact_video", 0.621, 53},
                             {"t2i_adapter", 77.369, 38},
                             {"t2i_adapter_light", 18.689, 80},
                             {"t2i_adapter_xl", 79.028, 38}}) {
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

namespace {

class FastIn final : public Device {
 public:
  explicit FastIn(std::vector<DType> dtypes) : dtypes_(std::move(dtypes)) {}
  std::string_view backend() const override { return "none"; }
  std::string description() const override { return "nothing"; }
  bool fast_in(DType dtype) const override {
    return dtype == DType::f32 || std::ranges::count(dtypes_, dtype) > 0;
  }
  int64_t free_memory() const override { return 0; }
  std::shared_ptr<Buffer> allocate(int64_t) override { return nullptr; }
  void copy(const Tensor&, const Tensor&) override {}
  void synchronize() override {}

 private:
  std::vector<DType> dtypes_;
};

}  // namespace

TEST(components, auto__is_the_dtype_of_the_file_where_the_device_is_fast_in_it) {
  const auto store_of = [](DType dtype) {
    WeightStore::Weights weights;
    weights.emplace("large", stored_tensor(Tensor(dtype, {100})));
    weights.emplace("small", stored_tensor(Tensor(DType::f32, {4})));
    return WeightStore(std::move(weights));
  };
  const WeightStore f32 = store_of(DType::f32), bf16 = store_of(DType::bf16),
                    f16 = store_of(DType::f16);
  const FastIn both({DType::bf16, DType::f16}), half({DType::f16}), brain({DType::bf16}), none({});
  EXPECT_EQ(usual_dtype(&f16, both), DType::f16);
  EXPECT_EQ(usual_dtype(&bf16, both), DType::bf16);
  EXPECT_EQ(usual_dtype(&f32, both), DType::bf16);
  EXPECT_EQ(usual_dtype(nullptr, both), DType::bf16);
  EXPECT_EQ(usual_dtype(&f16, half), DType::f16);
  EXPECT_EQ(usual_dtype(&bf16, half), DType::f32);
  EXPECT_EQ(usual_dtype(&f16, brain), DType::bf16);
  EXPECT_EQ(usual_dtype(&f16, none), DType::f32);
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

}  // namespace ebb::testing::golden_components_test
