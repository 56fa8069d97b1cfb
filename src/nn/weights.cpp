#include "nn/weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"

namespace ebb::nn {
namespace {

RandomKey key_of(const Weight& w, uint64_t seed) {
  return {.seed = seed, .image = fnv1a(w.name), .use = static_cast<uint32_t>(fnv1a("init"))};
}

// Element i of the stream is drawn from block i / 4: threads draw chunks of full blocks.
constexpr int64_t chunk = 1 << 15;

// Calls fill(chunk of `out`, its first block) for all chunks, in parallel.
template <class Fill>
void in_chunks(std::span<float> out, const Fill& fill) {
  const auto size = static_cast<int64_t>(out.size());
#pragma omp parallel for schedule(static) if (size > chunk)
  for (int64_t begin = 0; begin < size; begin += chunk) {
    const auto count = static_cast<size_t>(std::min(chunk, size - begin));
    fill(out.subspan(static_cast<size_t>(begin), count), static_cast<uint64_t>(begin / 4));
  }
}

void fill_uniform(std::span<float> out, const RandomKey& key, double bound) {
  in_chunks(out, [&](std::span<float> some, uint64_t block) {
    ebb::fill_uniform(key, block, some);
    for (float& v : some) v = static_cast<float>(bound * (2.0 * v - 1.0));
  });
}

void fill_normal(std::span<float> out, const RandomKey& key, double deviation) {
  in_chunks(out, [&](std::span<float> some, uint64_t block) {
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
Tensor swap_middle(const Tensor& t, const std::array<int64_t, 4>& sizes) {
  const auto [a, b, c, d] = sizes;
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

// The tensors of a file as the network has them, and back; shapes are left to the caller.
Tensor reordered(const Weight& w, const Tensor& t, bool to_file) {
  auto order = file_order(w);
  if (!order) return t;
  if (to_file) std::swap((*order)[1], (*order)[2]);
  return swap_middle(t, *order);
}

// Of a matrix in f32.
Tensor transposed(const Tensor& t) {
  const int64_t rows = t.shape()[0], columns = t.shape()[1];
  return swap_middle(t, {1, rows, columns, 1}).reshape({columns, rows});
}

// Of the tensor that has the weight in it.
Shape shape_at(const FilePlace& place, const Weight& w) {
  std::vector<int64_t> sizes = file_shape(w).sizes();
  if (place.transposed) std::swap(sizes.at(0), sizes.at(1));
  if (place.parts > 1) sizes.at(0) *= place.parts;
  return Shape(sizes);
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

int64_t count_elements(const Weights& weights) {
  int64_t n = 0;
  for (const Weight& w : weights) n += w.shape.numel();
  return n;
}

std::set<std::string> without_decay(const Weights& weights) {
  std::set<std::string> out;
  for (const Weight& w : weights)
    if (w.trained && !w.spec.decay) out.insert(w.name);
  return out;
}

Tensor initial_tensor(const Weight& w, uint64_t seed) {
  Tensor t(DType::f32, w.shape);
  const auto out = t.span<float>();
  const std::string& init = w.spec.init;
  if (init == "ones") {
    std::fill(out.begin(), out.end(), 1.0f);
  } else if (init == "uniform") {
    fill_uniform(out, key_of(w, seed), w.spec.scale);
  } else if (init == "normal") {
    fill_normal(out, key_of(w, seed), w.spec.scale);
  } else if (init == "sin_cos_2d") {
    fill_sin_cos_2d(w, out);
  } else {
    require(init == "zeros", w.name, ": unknown initial value '", init, "'");
  }
  return w.spec.qkv_interleave == 1 ? t : reordered(w, t, false);
}

Tensors initial_tensors(const Weights& weights, uint64_t seed) {
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

std::optional<std::array<int64_t, 4>> file_order(const Weight& w) {
  constexpr int64_t qkv_tensors = 3;
  const Shape& s = w.shape;
  const int64_t groups = w.spec.qkv_interleave;
  require(!w.spec.channels_last || groups == 1, w.name, ": filters have no turns of q, k and v (",
          groups, ")  ", s);
  if (w.spec.channels_last) return std::array{s[0], s[3], s[1] * s[2], int64_t{1}};
  if (groups == 1) return {};
  require(groups > 0 && s.rank() > 0 && s[0] % (groups * qkv_tensors) == 0, w.name,
          ": rows must divide into q, k and v of each turn (", groups, ")  ", s);
  return std::array{int64_t{1}, groups, qkv_tensors, s.numel() / (groups * qkv_tensors)};
}

Shape file_shape(const Weight& w) {
  if (!w.spec.file_shape.sizes().empty()) return w.spec.file_shape;
  if (!w.spec.channels_last) return w.shape;
  return {w.shape[0], w.shape[3], w.shape[1], w.shape[2]};
}

void check_file_shape(const Weight& w, const Type& t) {
  const Shape want = file_shape(w);
  require(without_ones(t.shape) == without_ones(want), w.name, ": expected ", want, "  file: ", t);
}

Tensor from_file(const Weight& w, const Tensor& t) {
  check_file_shape(w, t.type());
  return reordered(w, t.dtype() == DType::f32 ? t : t.to(DType::f32), false).reshape(w.shape);
}

Tensor from_file(const Weight& w, const FilePlace& place, const Tensor& t) {
  const int64_t rows = t.shape()[0] / place.parts;
  const Tensor part = place.parts > 1 ? t.rows(place.part * rows, (place.part + 1) * rows) : t;
  return from_file(w, place.transposed ? transposed(part) : part);
}

Tensor to_file(const Weight& w, const Tensor& t) {
  require(t.shape() == w.shape, w.name, ": expected ", w.shape, "  tensor: ", t.type());
  return reordered(w, t, true).reshape(file_shape(w));
}

FilePlace FileTensors::place(const std::string& weight) const {
  FilePlace out = places ? places(weight) : FilePlace{.name = weight};
  out.name = prefix + out.name;
  return out;
}

std::vector<const Weight*> match_weights(const Weights& weights, const FileTensors& file) {
  Complaints missing, unused, misshapen;
  std::set<std::string> used;
  std::vector<const Weight*> computed;
  for (const Weight& w : weights) {
    const FilePlace place = file.place(w.name);
    const Shape want = shape_at(place, w);
    const auto it = file.shapes.find(place.name);
    if (it == file.shapes.end()) {
      if (w.trained || w.spec.init != "sin_cos_2d")
        missing.add(place.name, want);
      else
        computed.push_back(&w);
      continue;
    }
    if (without_ones(it->second) != without_ones(want))
      misshapen.add(it->first, ": expected ", want, ", file has ", it->second);
    used.insert(it->first);
  }
  for (const auto& [name, shape] : file.shapes) {
    const bool inside = name.starts_with(file.prefix);
    if (used.contains(name) || (!inside && !file.alone)) continue;
    const std::string_view rest = std::string_view(name).substr(inside ? file.prefix.size() : 0);
    if (!inside || !file.ignored || !file.ignored(rest)) unused.add(name, shape);
  }
  const std::string wrong =
      missing.text("missing") + unused.text("unused") + misshapen.text("misshapen");
  require(wrong.empty(), "weights: the file's tensors must be those of the network", wrong);
  return computed;
}

Tensors load_weights(const Weights& weights, const FileTensors& file,
                     const std::function<Tensor(const std::string&)>& load) {
  Tensors out;
  for (const Weight* w : match_weights(weights, file)) out.emplace(w->name, initial_tensor(*w, 0));
  for (const Weight& w : weights)
    if (!out.contains(w.name)) {
      const FilePlace place = file.place(w.name);
      out.emplace(w.name, from_file(w, place, load(place.name)));
    }
  return out;
}

}  // namespace ebb::nn
