// Network: a denoiser network as a function from a noisy image and named conditions to an
// image-shaped output. The preconditioning around it defines x and noise.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "ir/graph.h"
#include "ops/prim/random/op.h"

namespace ebb::nn {

// An input of a network other than the noisy image: a class id i64[N], text states
// f32[N,T,C], a pooled text f32[N,C], ...
struct Condition {
  static constexpr int64_t any = -1;  // a size that every value brings: the number of tokens

  std::string name;
  DType dtype = DType::f32;
  Shape shape;         // of one sample's value; {}: a number
  Shape usual = {};    // the same where no value says the sizes `any`: descriptions, benches
  double null = 0;     // every element of the value that means none
  int64_t ids = 0;     // > 0: elements are ids in [0, ids), or the null value
  bool guided = true;  // guidance compares with another value, training drops it to null
  bool rare = false;   // descriptions and benches of the network leave it out
  bool operator==(const Condition&) const = default;

  // The type of the values of a batch. Throws Error where a size is not known.
  Type type(int64_t batch) const;
  Type usual_type(int64_t batch) const;
  // The null value of every sample.
  Tensor nulls(int64_t batch) const;
  // Throws Error, which begins with `subject`, unless values of a batch may have this shape.
  void check_shape(const Shape& value, int64_t batch, std::string_view subject) const;
  // Throws Error, which begins with `subject`, unless `value` may be one of a batch: its type (any
  // size fits `any`), finite numbers, ids in their range.
  void check(const Tensor& value, int64_t batch, std::string_view subject) const;
  // With the sizes of such a value.
  Condition sized_as(const Tensor& value) const;
};

// Names that several models share.
inline constexpr std::string_view class_id = "class", augment_labels = "augment";
inline constexpr std::string_view text_states = "text";  // of a text encoder, [T,C]
inline constexpr std::string_view pooled_text = "pooled";
inline constexpr std::string_view size_numbers = "size";        // of the image: sides, crop, ...
inline constexpr std::string_view guidance_scale = "guidance";  // that a network has learnt
inline constexpr std::string_view concat_image = "concat";      // [H,W,C] beside the noisy image
// One of `classes`; -1: none.
Condition class_condition(int64_t classes);
// Labels of non-leaking augmentation (Karras et al. 2022); 0: the image is as it was.
Condition augment_condition(int64_t labels);

// Values of a graph by name.
using ValuesByName = std::map<std::string, Value, std::less<>>;

struct NetworkInputs {
  Value x;      // [N,H,W,C], scaled by the preconditioning
  Value noise;  // f32 [N]: the noise level as the network was trained to read it (c_noise, or t)
  ValuesByName conditions;                // those not here are null
  std::optional<ops::RandomKeys> random;  // of dropout; without it there is none

  // A value without a graph if the condition is not here.
  Value condition(std::string_view name) const;
};

// F [N,H,W,C']. Adds the parameters as sources; called twice on a graph it shares them.
using Network = std::function<Value(Graph&, const NetworkInputs&)>;

}  // namespace ebb::nn
