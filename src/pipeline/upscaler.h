// Upscaler: a network that makes larger pictures of pictures, on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "pipeline/sized_plans.h"
#include "pipeline/text_stage.h"
#include "runtime/context.h"
#include "runtime/plan.h"

namespace ebb {

// How many times as large as its input what a network makes is.
int64_t scale_of_upscaler(const Component& network);
// Of a file that `flag` names; a network of pictures of three channels. Throws Error that says what
// the file has instead.
LoadedComponent load_upscaler(const std::string& file, std::string_view flag = "upscale: --model");

struct UpscaleOptions {
  int64_t tile = 0;     // side in pixels of the input; 0: the largest that fits into memory
  int64_t overlap = 0;  // of neighbours; 0: an eighth of a tile
  // Along which pictures go on at their opposite side; sides there must be multiples of what the
  // network needs (Model::size_multiple).
  CircularAxes circular = {};
};

class Upscaler {
 public:
  Upscaler(LoadedComponent network, Context context, const UpscaleOptions& options = {});
  Upscaler(const Upscaler&) = delete;  // plans refer to it
  Upscaler& operator=(const Upscaler&) = delete;

  // How many times as large the network makes pictures.
  int64_t scale() const { return scale_; }
  const UpscaleOptions& options() const { return options_; }
  // Sides of tiles that are tried where the options leave it open, the largest first.
  static std::span<const int64_t> sides();
  // What the plan of the largest image needs that it evaluates to bring one [1,H,W,3] to `scale`
  // times its size, in tiles of `side`, 0: of the largest; compiles it.
  PlanNeeds needs(const Shape& image, double scale, int64_t side = 0);
  // [N,H,W,C] at `scale` times the size, rounded.
  static Shape scaled(const Shape& image, double scale);
  // Tiles of a larger side are not used any more; 0: all are.
  void set_largest(int64_t side) { plans_.set_largest(side); }
  // Lets go of the device's memory until the next picture.
  void release();
  // f32 [N,H,W,3] in [-1,1] -> [N,kH,kW,3], clipped. What does not fit is evaluated in tiles that
  // fade into each other. `progress` gets the share that is done, behind every tile and on the host
  // within; returning false stops with Cancelled. Throws Error.
  Tensor run(const Tensor& pixels, const std::function<bool(double)>& progress = {});
  // To `scale` times the size (rounded), whatever the network's own: evaluated as often as needed,
  // at most three times, and resized to the rest.
  Tensor run(const Tensor& pixels, double scale, const std::function<bool(double)>& progress = {});

 private:
  int times_for(double scale) const;  // evaluations, one behind the other

  LoadedComponent network_;
  Context context_;
  UpscaleOptions options_;
  DType dtype_;
  int64_t scale_ = 0;
  TiledPlans plans_;
};

}  // namespace ebb
