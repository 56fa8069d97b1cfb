#include "diffusion/solver/host_latents.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace ebb {
namespace {

// Sums are made in blocks of this many numbers, in double.
constexpr size_t block = 1024;

template <class T>
bool all_finite(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T v) { return std::isfinite(v); });
}

}  // namespace

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
  require(all_finite(values), "sample: the state is not finite at noise level ", sigma);
  const auto guided = fresh(), uncond = with_uncond ? fresh() : nullptr;
  denoise_(values, sigma, guided->values, uncond ? std::span<T>(uncond->values) : std::span<T>());
  require(all_finite(guided->values) && (!uncond || all_finite(uncond->values)),
          "sample: the denoiser's answer is not finite at noise level ", sigma);
  return {Latent(guided), uncond ? Latent(uncond) : Latent()};
}

template <class T>
Latent HostLatents<T>::noise(const NoiseDraw& draw, double clip) {
  require(static_cast<bool>(noise_), "sample: this sampler needs a source of noise");
  std::vector<double> z(size_);
  noise_(z, draw);
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
  require(all_finite(v), "sample: the state is not finite at the end");
}

template class HostLatents<float>;
template class HostLatents<double>;

}  // namespace ebb
