#include "nn/weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace ebb::nn {
namespace {

RandomKey key_of(const Weight& w, uint64_t seed) {
  return {.seed = seed, .image = fnv1a(w.name), .use = static_cast<uint32_t>(fnv1a("init"))};
}

// Element i of the stream is drawn from block i / 4: threads take parts of whole blocks.
constexpr int64_t part = 1 << 15;

// Calls fill(part of `out`, its first block) for all parts, side by side.
template <class Fill>
void in_parts(std::span<float> out, const Fill& fill) {
  const auto size = static_cast<int64_t>(out.size());
#pragma omp parallel for schedule(static) if (size > part)
  for (int64_t begin = 0; begin < size; begin += part) {
    const auto count = static_cast<size_t>(std::min(part, size - begin));
    fill(out.subspan(static_cast<size_t>(begin), count), static_cast<uint64_t>(begin / 4));
  }
}

void fill_uniform(std::span<float> out, const RandomKey& key, double bound) {
  in_parts(out, [&](std::span<float> some, uint64_t block) {
    ebb::fill_uniform(key, block, some);
    for (float& v : some) v = static_cast<float>(bound * (2.0 * v - 1.0));
  });
}

void fill_normal(std::span<float> out, const RandomKey& key, double deviation) {
  in_parts(out, [&](std::span<float> some, uint64_t block) {
    ebb::fill_normal(key, block, some);
    for (float& v : some) v = static_cast<float>(deviation * v);
  });
}

// [1,side*side,D]: a half of D for the column and then one for the row, each [sin, cos] of
// position * 10000^(-i/(D/4)) (DiT, after Vaswani et al. 2017).
void fill_sin_cos_2d(const Weight& w, std::span<float> out) {
  const int64_t tokens = w.shape[1], width = w.shape[2], quarter = width / 4;
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(tokens))));
  require(side * side == tokens && width % 4 == 0, w.name,
          ": positions must form a square and the width divide by 4  ", w.shape);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < width; ++i) {
      const auto position = static_cast<double>(i < width / 2 ? t % side : t / side);
      const int64_t k = i % (width / 2);
      const double f =
          std::pow(10000.0, -static_cast<double>(k % quarter) / static_cast<double>(quarter));
      const double angle = position * f;
      out[static_cast<size_t>(t * width + i)] =
          static_cast<float>(k < quarter ? std::sin(angle) : std::cos(angle));
    }
}

// Copies a [a,b,c,d] array to [a,c,b,d].
Tensor swap_middle(const Tensor& t, int64_t a, int64_t b, int64_t c, int64_t d) {
  const Tensor f = t.dtype() == DType::f32 ? t : t.to(DType::f32);
  Tensor out(DType::f32, t.shape());
  const float* from = f.span<float>().data();
  float* to = out.span<float>().data();
  for (int64_t i = 0; i < a; ++i)
    for (int64_t j = 0; j < b; ++j)
      for (int64_t k = 0; k < c; ++k) {
        const float* source = from + ((i * b + j) * c + k) * d;
        float* target = to + ((i * c + k) * b + j) * d;
        if (d == 1)
          *target = *source;  // filters: a call for each would take as long as the rest
        else
          std::copy_n(source, d, target);
      }
  return out;
}

constexpr int64_t qkv_tensors = 3;

// The tensors of a file as the network has them, and back; shapes are left to the caller.
Tensor reordered(const Weight& w, const Tensor& t, bool to_file) {
  const Shape& s = w.shape;
  const int64_t qkv_interleave = w.info.qkv_interleave;
  require(!w.info.channels_last || qkv_interleave == 1, w.name,
          ": filters have no turns of q, k and v (", qkv_interleave, ")  ", s);
  if (w.info.channels_last) {
    const int64_t taps = s[1] * s[2], channels = s[3];
    return to_file ? swap_middle(t, s[0], taps, channels, 1)
                   : swap_middle(t, s[0], channels, taps, 1);
  }
  if (qkv_interleave == 1) return t;
  require(qkv_interleave > 0 && s.rank() > 0 && s[0] % (qkv_interleave * qkv_tensors) == 0, w.name,
          ": rows must divide into q, k and v of each turn (", qkv_interleave, ")  ", s);
  const int64_t rest = s.numel() / (qkv_interleave * qkv_tensors);
  return to_file ? swap_middle(t, 1, qkv_tensors, qkv_interleave, rest)
                 : swap_middle(t, 1, qkv_interleave, qkv_tensors, rest);
}

Shape without_ones(Shape s) {
  std::vector<int64_t> sizes = s.sizes();
  while (!sizes.empty() && sizes.back() == 1) sizes.pop_back();
  return Shape(sizes);
}

// What binding found wrong, up to ten of a kind.
class Complaints {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (count_++ < 10) text_ += "\n    " + str(parts...);
  }
  std::string text(std::string_view kind) const {
    if (count_ == 0) return "";
    const std::string more = count_ > 10 ? str("\n    and ", count_ - 10, " more") : "";
    return str("\n  ", kind, " (", count_, "):", text_, more);
  }

 private:
  int64_t count_ = 0;
  std::string text_;
};

}  // namespace

std::vector<Weight> weights_of(const Graph& g) {
  std::vector<Weight> out;
  for (const Source& s : g.sources())
    if (s.kind != Source::Kind::input)
      out.push_back({s.name, g.type(s.value).shape, s.info, s.kind == Source::Kind::param});
  return out;
}

int64_t count_elements(const std::vector<Weight>& weights) {
  int64_t n = 0;
  for (const Weight& w : weights) n += w.shape.numel();
  return n;
}

Tensor initial_tensor(const Weight& w, uint64_t seed) {
  Tensor t(DType::f32, w.shape);
  const auto out = t.span<float>();
  const std::string& init = w.info.init;
  if (init == "ones") {
    std::fill(out.begin(), out.end(), 1.0f);
  } else if (init == "uniform") {
    fill_uniform(out, key_of(w, seed), w.info.scale);
  } else if (init == "normal") {
    fill_normal(out, key_of(w, seed), w.info.scale);
  } else if (init == "sin_cos_2d") {
    fill_sin_cos_2d(w, out);
  } else {
    require(init == "zeros", w.name, ": unknown initial value '", init, "'");
  }
  return w.info.qkv_interleave == 1 ? t : reordered(w, t, false);
}

Tensors initial_tensors(const std::vector<Weight>& weights, uint64_t seed) {
  Tensors out;
  for (const Weight& w : weights) out.emplace(w.name, initial_tensor(w, seed));
  return out;
}

FileShapes without_prefix(const FileShapes& tensors, std::string_view prefix) {
  FileShapes out;
  for (const auto& [name, shape] : tensors)
    if (name.starts_with(prefix)) out.emplace(name.substr(prefix.size()), shape);
  return out;
}

Shape file_shape(const Weight& w) {
  if (!w.info.file_shape.sizes().empty()) return w.info.file_shape;
  if (!w.info.channels_last) return w.shape;
  return {w.shape[0], w.shape[3], w.shape[1], w.shape[2]};
}

Tensor from_file(const Weight& w, const Tensor& t) {
  const Shape want = file_shape(w);
  require(without_ones(t.shape()) == without_ones(want), w.name, ": expected ", want,
          "  file: ", t.type());
  return reordered(w, t.dtype() == DType::f32 ? t : t.to(DType::f32), false).reshape(w.shape);
}

Tensor to_file(const Weight& w, const Tensor& t) {
  require(t.shape() == w.shape, w.name, ": expected ", w.shape, "  tensor: ", t.type());
  return reordered(w, t, true).reshape(file_shape(w));
}

Tensors load_weights(const std::vector<Weight>& weights, const FileTensors& file) {
  Complaints missing, unused, misshapen;
  FileShapes left = file.shapes;
  std::vector<const Weight*> computed;
  for (const Weight& w : weights) {
    const auto it = left.find(file.prefix + w.name);
    if (it == left.end()) {
      if (w.trained || w.info.init != "sin_cos_2d")
        missing.add(file.prefix, w.name, file_shape(w));
      else
        computed.push_back(&w);
      continue;
    }
    if (without_ones(it->second) != without_ones(file_shape(w)))
      misshapen.add(it->first, ": expected ", file_shape(w), ", file has ", it->second);
    left.erase(it);
  }
  for (const auto& [name, shape] : left) {
    const bool inside = name.starts_with(file.prefix);
    const std::string_view rest = std::string_view(name).substr(inside ? file.prefix.size() : 0);
    if (!inside || !file.ignored || !file.ignored(rest)) unused.add(name, shape);
  }
  const std::string wrong =
      missing.text("missing") + unused.text("unused") + misshapen.text("misshapen");
  require(wrong.empty(), "weights: the file's tensors must be those of the network", wrong);

  Tensors out;
  for (const Weight* w : computed) out.emplace(w->name, initial_tensor(*w, 0));
  for (const Weight& w : weights)
    if (!out.contains(w.name)) out.emplace(w.name, from_file(w, file.load(file.prefix + w.name)));
  return out;
}

}  // namespace ebb::nn
