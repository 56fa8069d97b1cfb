#include "diffusion/solver/host_latents.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "diffusion/solver/not_finite.h"

namespace ebb {
namespace {

// Linear combinations are evaluated in blocks of this many values, in double.
constexpr size_t block = 1024;

template <class T>
bool all_finite(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T v) { return std::isfinite(v); });
}

// A quiet NaN pattern that no arithmetic produces.
template <class T>
constexpr auto unwritten_bits = [] {
  if constexpr (std::is_same_v<T, float>)
    return uint32_t{0x7fc0ebb1};
  else
    return uint64_t{0x7ff8ebb1ebb1ebb1};
}();

// `name`: of the callback's argument.
template <class T>
void check_prediction(const std::vector<T>& values, std::string_view name, double sigma) {
  if (all_finite(values)) return;
  const auto missing = first_unwritten<T>(values);
  require_finite(missing.has_value(),
                 "sample: the denoiser's prediction is not finite at noise level ", sigma, " (",
                 name, ")");
  fail("sample: the denoiser did not write ", name, "[", *missing, "] of ", values.size(),
       " at noise level ", sigma,
       name == "uncond" ? "; this sampler needs the unconditional prediction (guidance other than "
                          "1, or a rule)"
                        : "");
}

}  // namespace

template <class T>
void mark_unwritten(std::span<T> out) {
  std::fill(out.begin(), out.end(), std::bit_cast<T>(unwritten_bits<T>));
}

template <class T>
std::optional<size_t> first_unwritten(std::span<const T> out) {
  using Bits = std::decay_t<decltype(unwritten_bits<T>)>;
  for (size_t i = 0; i < out.size(); ++i)
    if (std::bit_cast<Bits>(out[i]) == unwritten_bits<T>) return i;
  return {};
}

template void mark_unwritten(std::span<float>);
template void mark_unwritten(std::span<double>);
template std::optional<size_t> first_unwritten(std::span<const float>);
template std::optional<size_t> first_unwritten(std::span<const double>);

template <class T>
struct HostLatents<T>::Pool {
  std::vector<std::vector<T>> free;
  size_t alive = 0;
};

template <class T>
struct HostLatents<T>::Vector : StoredLatent {
  explicit Vector(std::shared_ptr<Pool> p) : pool(std::move(p)) {
    pool->free.reserve(pool->free.size() + pool->alive + 1);
    ++pool->alive;
  }
  ~Vector() override {  // there is room: nothing is thrown
    pool->free.push_back(std::move(values));
    --pool->alive;
  }
  std::shared_ptr<Pool> pool;
  std::vector<T> values;
};

template <class T>
HostLatents<T>::HostLatents(size_t size, HostDenoise<T> denoise, NoiseFill noise)
    : size_(size),
      denoise_(std::move(denoise)),
      noise_(std::move(noise)),
      pool_(std::make_shared<Pool>()) {
  require(size > 0, "sample: needs a latent of at least one number");
}

template <class T>
std::shared_ptr<typename HostLatents<T>::Vector> HostLatents<T>::fresh() {
  auto v = std::make_shared<Vector>(pool_);
  if (!pool_->free.empty()) {
    v->values = std::move(pool_->free.back());
    pool_->free.pop_back();
  }
  v->values.resize(size_);
  return v;
}

template <class T>
Latent HostLatents<T>::put(std::span<const T> values) {
  require(values.size() == size_, "sample: needs ", size_, " numbers (got ", values.size(), ")");
  const auto v = fresh();
  std::copy(values.begin(), values.end(), v->values.begin());
  return Latent(v);
}

template <class T>
void HostLatents<T>::read(const Latent& x, std::span<T> out) const {
  std::array<double, block> sum;
  for (size_t at = 0; at < size_; at += block) {
    const size_t n = std::min(block, size_ - at);
    sum.fill(0);
    for (const Latent::Term& t : x.terms()) {
      const T* v = static_cast<const Vector&>(*t.vector).values.data() + at;
      for (size_t i = 0; i < n; ++i) sum[i] += t.factor * static_cast<double>(v[i]);
    }
    for (size_t i = 0; i < n; ++i) out[at + i] = static_cast<T>(sum[i]);
  }
}

template <class T>
Denoised HostLatents<T>::denoise(Latent& x, double sigma, bool with_uncond) {
  if (x.alone() == nullptr) {
    const auto v = fresh();
    read(x, v->values);
    x = Latent(v);
  }
  const auto& values = static_cast<const Vector&>(*x.alone()).values;
  require_finite(all_finite(values), "sample: the state is not finite at noise level ", sigma);
  const auto guided = fresh(), uncond = with_uncond ? fresh() : nullptr;
  mark_unwritten<T>(guided->values);
  if (uncond) mark_unwritten<T>(uncond->values);
  denoise_(values, sigma, guided->values, uncond ? std::span<T>(uncond->values) : std::span<T>());
  check_prediction(guided->values, "denoised", sigma);
  if (uncond) check_prediction(uncond->values, "uncond", sigma);
  return {Latent(guided), uncond ? Latent(uncond) : Latent()};
}

template <class T>
Latent HostLatents<T>::noise(const NoiseDraw& draw, double clip) {
  require(static_cast<bool>(noise_), "sample: this sampler needs a source of noise");
  std::vector<double> z(size_);
  mark_unwritten<double>(z);
  noise_(z, draw);
  const auto missing = first_unwritten<double>(z);
  require(!missing, "sample: the source of noise did not write number ", missing.value_or(0),
          " of ", size_, " of draw ", draw.index);
  if (clip > 0) clip_to_deviations(z, clip);
  const auto v = fresh();
  std::transform(z.begin(), z.end(), v->values.begin(), [](double d) { return static_cast<T>(d); });
  return Latent(v);
}

template <class T>
double HostLatents<T>::distance(const Latent& a, const Latent& b, const Latent& before,
                                Tolerance tolerance) {
  return scaled_distance(values(a), values(b), values(before), tolerance);
}

template <class T>
std::vector<double> HostLatents<T>::values(const Latent& x) {
  std::vector<T> v(size_);
  read(x, v);
  return std::vector<double>(v.begin(), v.end());
}

template <class T>
void HostLatents<T>::check_end(const Latent& x) {
  std::vector<T> v(size_);
  read(x, v);
  require_finite(all_finite(v), "sample: the state is not finite at the end");
}

template class HostLatents<float>;
template class HostLatents<double>;

}  // namespace ebb
