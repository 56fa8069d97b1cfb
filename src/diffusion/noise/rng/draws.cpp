#include "diffusion/noise/rng/draws.h"

#include <algorithm>

#include "base/error.h"

namespace ebb {

BatchLayout::BatchLayout(const NoiseCall& call, bool per_image)
    : elements_(static_cast<size_t>(call.elements())),
      channels_(call.shape.size() < 3 ? 1 : static_cast<size_t>(call.shape.back())) {
  for (int64_t i = 0; i < call.batch(); ++i) picked_.push_back(per_image ? i : call.image(i));
  pictures_ = *std::max_element(picked_.begin(), picked_.end()) + 1;
}

void BatchLayout::arrange(std::span<const double> drawn, std::span<double> out) const {
  const size_t cells = elements_ / channels_;
  double* to = out.data();
  for (const int64_t picture : picked_) {
    const double* from = drawn.data() + static_cast<size_t>(picture) * elements_;
    for (size_t cell = 0; cell < cells; ++cell)
      for (size_t c = 0; c < channels_; ++c) *to++ = from[c * cells + cell];
  }
}

std::vector<uint64_t> generator_seeds(const NoiseCall& call, bool per_image) {
  if (!per_image) {
    require(call.seeds.size() < 2, "noise: one generator draws the whole batch from one seed (got ",
            call.seeds.size(), "); per_image gives each picture one");
    return {call.seeds.empty() ? call.seed : call.seeds[0]};
  }
  std::vector<uint64_t> out;
  for (int64_t i = 0; i < call.batch(); ++i) out.push_back(call.image_seed(i));
  return out;
}

Draws::Draws(GeneratorKind kind, const NoiseCall& call, bool per_image)
    : kind_(std::move(kind)),
      seeds_(generator_seeds(call, per_image)),
      layout_(call, per_image),
      drawn_(layout_.size()) {
  restart();
}

void Draws::restart() {
  generators_.clear();
  for (const uint64_t seed : seeds_) generators_.push_back(make_generator(kind_, seed));
  next_ = 0;
}

void Draws::next() {
  const size_t share = drawn_.size() / generators_.size();
  for (size_t i = 0; i < generators_.size(); ++i)
    generators_[i]->normal(std::span(drawn_).subspan(i * share, share));
  ++next_;
}

void Draws::operator()(int64_t index, std::span<double> out) {
  if (index < next_) restart();
  while (next_ <= index) next();
  layout_.arrange(drawn_, out);
}

Noise consecutive_noise(const GeneratorKind& kind, const NoiseCall& call, bool per_image) {
  const auto draws = std::make_shared<Draws>(kind, call, per_image);
  return {[draws](std::span<double> out) { (*draws)(0, out); },
          [draws](std::span<double> out, const NoiseDraw& draw) { (*draws)(draw.index + 1, out); }};
}

}  // namespace ebb
