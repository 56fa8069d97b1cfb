// Latent: what samplers calculate with. It is a sum of stored vectors times numbers, and adds
// nothing up: that happens once, in the pass that reads the sum (the denoiser's first).
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace ebb {

// A vector that exists: in memory, or on a device. Whoever keeps vectors derives from it.
class StoredLatent {
 public:
  StoredLatent() = default;
  virtual ~StoredLatent() = default;
  StoredLatent(const StoredLatent&) = delete;
  StoredLatent& operator=(const StoredLatent&) = delete;
};

class Latent {
 public:
  struct Term {
    std::shared_ptr<const StoredLatent> vector;
    double factor;
  };

  Latent() = default;  // 0
  explicit Latent(std::shared_ptr<const StoredLatent> vector) { terms_.push_back({vector, 1}); }

  // Every vector once; none has factor 0.
  const std::vector<Term>& terms() const { return terms_; }
  // The vector that it is, with factor 1; null if it is a sum.
  const StoredLatent* alone() const;

  Latent& operator+=(const Latent& other) { return add(other, 1); }
  Latent& operator-=(const Latent& other) { return add(other, -1); }
  Latent& operator*=(double factor);
  Latent& operator/=(double divisor) { return *this *= 1 / divisor; }
  Latent& add(const Latent& other, double factor);

 private:
  std::vector<Term> terms_;
};

// These move what they are given: no vector lives longer for having been in a sum.
inline Latent operator+(Latent a, const Latent& b) {
  a += b;
  return a;
}
inline Latent operator-(Latent a, const Latent& b) {
  a -= b;
  return a;
}
inline Latent operator*(Latent a, double factor) {
  a *= factor;
  return a;
}
inline Latent operator*(double factor, Latent a) { return std::move(a) * factor; }
inline Latent operator/(Latent a, double divisor) { return std::move(a) * (1 / divisor); }
inline Latent operator-(Latent a) { return std::move(a) * -1.0; }

// `sum` said anew from `stored`, the one vector that the sum `read` became when it was read. What
// both sums have in common falls away: a state that is corrected after it was read does not grow.
inline Latent from_stored(const Latent& sum, const Latent& read, const Latent& stored) {
  return stored + (sum - read);
}

}  // namespace ebb
