#include "train/features.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/names.h"
#include "io/safetensors.h"
#include "ir/text.h"
#include "ops/table.h"
#include "runtime/weight_store.h"

namespace ebb::train {
namespace {

// That the graph takes images alone, and has the tensors that it needs and no others.
void check_sources(const Graph& g, const NamedTensors& weights) {
  std::vector<std::string> names;
  for (const Source& s : g.sources()) {
    if (s.kind == Source::Kind::input) {
      require(s.name == "images", "features: the graph must take images alone  ", s.name);
      continue;
    }
    names.push_back(s.name);
    require(weights.contains(s.name), "features: the graph's tensor '", s.name, "' is missing");
  }
  for (const auto& [name, tensor] : weights)
    require(std::ranges::find(names, name) != names.end(), "features: the graph has no tensor '",
            name, "'", suggestion(name, names));
  require(g.updates().empty(), "features: the graph must not update tensors");
}

}  // namespace

FeatureNet::FeatureNet(Graph graph, NamedTensors weights, const Context& context)
    : text_(to_text(graph)), weights_(std::move(weights)) {
  const Source* images = graph.find_source("images");
  require(images && images->kind == Source::Kind::input &&
              graph.type(images->value).dtype == DType::f32 &&
              graph.type(images->value).shape.rank() == 4,
          "features: the graph needs an input images f32 [B,H,W,C]");
  const Shape shape = graph.type(images->value).shape;
  batch_ = shape[0];
  require(batch_ > 0, "features: the graph takes no images  ", shape);
  image_ = shape.slice(1, 4);
  const auto is_rows = [&](const Type& t) {
    return t.dtype == DType::f32 && t.shape.rank() == 2 && t.shape[0] == batch_;
  };
  for (const NamedValue& o : graph.outputs()) {
    logits_ = logits_ || o.name == "logits";
    if (o.name == "features" || o.name == "logits")
      require(is_rows(graph.type(o.value)), "features: output '", o.name, "' must be f32 [B,D], B ",
              batch_, "  ", graph.type(o.value));
    if (o.name == "features") features_ = graph.type(o.value).shape[1];
  }
  require(features_ > 0, "features: the graph needs an output features f32 [B,D]");
  check_sources(graph, weights_);
  WeightStore::Weights stored;
  for (const auto& [name, tensor] : weights_) stored[name] = stored_tensor(tensor);
  plan_ = std::make_unique<Plan>(
      graph, context, CompileOptions{.weights = std::make_shared<WeightStore>(std::move(stored))});
}

FeatureNet FeatureNet::load(const std::string& path, const Context& context) {
  const auto file = io::TensorFile::open(path);
  const auto text = file.metadata().find("graph");
  require(text != file.metadata().end(),
          "features: not a network file, it has no metadata 'graph'  ", path);
  try {
    NamedTensors weights;
    for (const auto& e : file.entries()) weights[e.name] = file.load(e);
    return {parse_graph(text->second, find_op), std::move(weights), context};
  } catch (const Error& e) {
    fail(e.what(), "  ", path);
  }
}

void FeatureNet::save(const std::string& path,
                      const std::map<std::string, std::string>& metadata) const {
  std::vector<io::NamedTensor> tensors;
  for (const auto& [name, tensor] : weights_) tensors.push_back({name, tensor});
  std::map<std::string, std::string> all = metadata;
  all["graph"] = text_;
  io::write_safetensors(path, tensors, all);
}

namespace {

// Rows [at, at + n) of `to` become the first n rows of `from`.
void put_rows(const Tensor& from, Tensor& to, int64_t at, int64_t n, int64_t total) {
  if (!to.defined()) to = Tensor(from.dtype(), {total, from.shape()[1]});
  const Tensor part = to.rows(at, at + n);
  std::memcpy(part.raw(), from.raw(), static_cast<size_t>(part.bytes()));
}

}  // namespace

FeatureNet::Result FeatureNet::run(const Tensor& images, const std::function<void()>& between) {
  require(images.shape().rank() == 4 && images.shape().slice(1, 4) == image_,
          "features: the network takes images of another shape (", image_, ")  ", images.type());
  const int64_t total = images.shape()[0];
  Result result;
  Shape shape = images.shape();
  shape[0] = batch_;
  Tensor batch(DType::f32, shape);
  for (int64_t at = 0; at < total; at += batch_) {
    if (between) between();
    const int64_t n = std::min(batch_, total - at);
    const Tensor part = images.rows(at, at + n);
    std::memcpy(batch.raw(), part.raw(), static_cast<size_t>(part.bytes()));
    const NamedTensors out = plan_->run({{"images", batch}});
    put_rows(out.at("features"), result.features, at, n, total);
    if (logits_) put_rows(out.at("logits"), result.logits, at, n, total);
  }
  return result;
}

}  // namespace ebb::train
