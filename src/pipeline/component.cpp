#include "pipeline/component.h"

#include "models/wrappers.h"
#include "passes/precision/mixed_precision.h"
#include "train/model_weights.h"

namespace ebb {

void examine(Component& c, const io::TensorFile& file) {
  FileFacts facts{.shapes = train::shapes_of(file), .metadata = file.metadata(), .load = {}};
  const nn::FilePlaces places =
      c.model->places(c.config, nn::without_prefix(facts.shapes, c.prefix));
  facts.load = [&](const std::string& weight) {
    const std::string name = c.prefix + (places ? places(weight).name : weight);
    if (file.contains(name)) return file.load(name);
    return file.contains(weight) ? file.load(weight) : Tensor();  // a marker, which has no prefix
  };
  c.model->examine(c.config, facts);
}

namespace {

train::TensorNames names_of(const Component& c, const nn::FileShapes& shapes) {
  return {.prefix = c.prefix,
          .ignored = c.model->ignored,
          .places = c.model->places(c.config, nn::without_prefix(shapes, c.prefix)),
          .alone = wraps(c.prefix)};
}

}  // namespace

void check_tensors(const Component& c, const io::TensorFile& file) {
  const nn::FileShapes shapes = train::shapes_of(file);
  const train::TensorNames names = names_of(c, shapes);
  nn::match_weights(weights_of(*c.model, c.config), {.shapes = shapes,
                                                     .prefix = names.prefix,
                                                     .ignored = names.ignored,
                                                     .places = names.places,
                                                     .alone = names.alone});
}

std::shared_ptr<WeightStore> open_component(std::shared_ptr<const io::TensorFile> file,
                                            const std::string& path, const Component& c) {
  const train::TensorNames names = names_of(c, train::shapes_of(*file));
  return train::open_model_weights(std::move(file), path, weights_of(*c.model, c.config), names);
}

std::shared_ptr<WeightStore> open_component(const std::string& path, const Component& c) {
  return open_component(std::make_shared<const io::TensorFile>(io::TensorFile::open(path)), path,
                        c);
}

DType compute_dtype(const EntryPoint& entry, DType asked, const Device& device) {
  if (asked != DType::f16 || !entry.overflows_f16) return asked;
  return device.fast_in(DType::bf16) ? DType::bf16 : DType::f32;
}

Plan entry_plan(const Component& c, const EntryCall& call, DType asked,
                std::shared_ptr<WeightStore> weights, const Context& context, CircularAxes tiling) {
  const DType dtype = compute_dtype(find_entry(*c.model, call.entry), asked, *context.device);
  const Graph g = circular_padding(entry_graph(*c.model, c.config, call), tiling);
  return {mixed_precision(g, dtype, Parameters::rounded), context, {.weights = std::move(weights)}};
}

}  // namespace ebb
