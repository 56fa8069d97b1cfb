#include "pipeline/control_lora.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/fields.h"
#include "nn/storage.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

// base + up down, of the rows that are asked for: [O,...] as files have it, f32.
struct Sum {
  StoredWeight base;
  Tensor up, down;  // f32 [O,R], [R,K]

  int64_t rows() const { return up.shape()[0]; }
  int64_t columns() const { return down.shape()[1]; }

  void read(int64_t at, std::span<uint8_t> out) const {
    const int64_t row_bytes = columns() * static_cast<int64_t>(sizeof(float));
    const int64_t first = at / row_bytes, end = (at + std::ssize(out) + row_bytes - 1) / row_bytes;
    Tensor part(base.type.dtype, {end - first, columns()});
    base.read(first * part.bytes() / (end - first),
              {static_cast<uint8_t*>(part.raw()), static_cast<size_t>(part.bytes())});
    Tensor sum = part.dtype() == DType::f32 ? part : part.to(DType::f32);
    add_product(first, sum);
    std::memcpy(out.data(), static_cast<const uint8_t*>(sum.raw()) + (at - first * row_bytes),
                out.size());
  }

 private:
  // Of the rows from `first` on, a few at a time, so that `down` is read once for all of them.
  void add_product(int64_t first, const Tensor& sum) const {
    constexpr int64_t together = 4;
    const int64_t count = sum.shape()[0], width = columns(), rank = up.shape()[1];
    float* const to = sum.span<float>().data();
    const float* const factors = up.span<float>().data() + first * rank;
    const float* const from = down.span<float>().data();
#pragma omp parallel for schedule(static)
    for (int64_t begin = 0; begin < count; begin += together)
      for (int64_t k = 0; k < rank; ++k)
        for (int64_t r = begin; r < std::min(begin + together, count); ++r) {
          const float factor = factors[r * rank + k];
          float* const row = to + r * width;
          const float* const term = from + k * width;
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) row[i] += factor * term[i];
        }
  }
};

// What shapes do not tell is the denoiser's.
ModelConfig counted_as(ModelConfig network, ModelConfig denoiser) {
  const auto known = denoiser.fields();
  for (const Field& f : network.fields())
    for (const char* name : {"num_heads", "num_head_channels", "groups", "sizes", "size_channels"})
      if (f.name == name) set_field(f, field_text(find_field(known, name, "control")));
  return network;
}

class Opener {
 public:
  Opener(const io::TensorFile& file, const std::string& path, const LoadedModel& denoiser)
      : file_(file), path_(path), base_(denoiser.weights->weights()) {
    for (const io::TensorEntry& e : file.entries()) unused_.insert(e.name);
    unused_.erase("lora_controlnet");
  }

  StoredWeight weight(const nn::Weight& w) {
    constexpr std::string_view ending = ".weight";
    if (file_.contains(w.name)) return own(w);
    const auto base = base_.find(w.name);
    require(base != base_.end(), "control: neither the control LoRA nor the denoiser has ", w.name,
            "  ", path_);
    const std::string stem =
        w.name.ends_with(ending) ? w.name.substr(0, w.name.size() - ending.size()) : w.name;
    nn::check_file_shape(w, base->second.type);
    if (!file_.contains(stem + ".up") || !file_.contains(stem + ".down")) return base->second;
    return sum(base->second, stem);
  }

  void check_used() const {
    require(unused_.empty(), "control: the control LoRA has ", unused_.size(),
            " tensors that its network does not have, such as ", *unused_.begin(), "  ", path_);
  }

 private:
  // As a matrix [rows, rest], f32.
  Tensor matrix(const std::string& name) {
    unused_.erase(name);
    const Tensor t = file_.load(name).to(DType::f32);
    train::check_finite(name, t, path_);
    require(t.shape().rank() >= 2 && t.numel() > 0, "control: ", name, " must be a matrix (",
            t.shape(), ")  ", path_);
    return t.reshape({t.shape()[0], t.numel() / t.shape()[0]});
  }

  StoredWeight own(const nn::Weight& w) {
    unused_.erase(w.name);
    const Tensor t = file_.load(w.name).to(DType::f32);
    train::check_finite(w.name, t, path_);
    nn::check_file_shape(w, t.type());
    StoredWeight out = stored_tensor(t);
    out.decode = [w](Value v) { return nn::decode(w, v); };
    return out;
  }

  StoredWeight sum(const StoredWeight& base, const std::string& stem) {
    const auto s = std::make_shared<Sum>(
        Sum{.base = base, .up = matrix(stem + ".up"), .down = matrix(stem + ".down")});
    const Shape shape = base.type.shape;
    require(!base.transposed && s->up.shape()[1] == s->down.shape()[0] && s->rows() == shape[0] &&
                s->columns() * s->rows() == shape.numel(),
            "control: ", stem, ".up ", s->up.shape(), " and .down ", s->down.shape(),
            " do not change a weight ", shape, " of the denoiser  ", path_);
    return {.type = {DType::f32, shape},
            .read = [s](int64_t at, std::span<uint8_t> out) { s->read(at, out); },
            .host = {},
            .decode = base.decode};
  }

  const io::TensorFile& file_;
  const std::string& path_;
  const WeightStore::Weights& base_;
  std::set<std::string> unused_;
};

}  // namespace

bool is_control_lora(const Component& network) {
  ModelConfig config = network.config;
  return std::ranges::any_of(
      config.fields(), [](const Field& f) { return f.name == "rank" && field_text(f) != "0"; });
}

LoadedComponent open_control_lora(const io::TensorFile& file, const std::string& path,
                                  const Component& network, const LoadedModel& denoiser) {
  require(denoiser.weights != nullptr, "control: the denoiser has no weights");
  require(denoiser.model->name == "ldm_unet",
          "control: a control LoRA changes the U-Net of Stable ", "Diffusion, and not ",
          denoiser.model->name, "  ", path);
  Component whole = network;
  whole.config = counted_as(network.config, denoiser.config);
  Opener opener(file, path, denoiser);
  WeightStore::Weights out;
  for (const nn::Weight& w : weights_of(*whole.model, whole.config))
    out.emplace(w.name, opener.weight(w));
  opener.check_used();
  return {whole, std::make_shared<WeightStore>(std::move(out))};
}

}  // namespace ebb
