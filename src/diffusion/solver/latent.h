// Latent: a lazily evaluated linear combination of stored vectors, in which samplers compute. It is
// evaluated once, when it is read (first by the denoiser).
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace ebb {

// A stored vector: in host memory, or on a device. Storage classes derive from it.
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

  // Every vector once, with a nonzero coefficient.
  const std::vector<Term>& terms() const { return terms_; }
  // The vector, if it is one with coefficient 1; null if it is a combination.
  const StoredLatent* alone() const;

  Latent& operator+=(const Latent& other) { return add(other, 1); }
  Latent& operator-=(const Latent& other) { return add(other, -1); }
  Latent& operator*=(double factor);
  Latent& operator/=(double divisor) { return *this *= 1 / divisor; }
  Latent& add(const Latent& other, double factor);

 private:
  std::vector<Term> terms_;
};

// Operators take by value and move: no vector lives longer for having been an operand.
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

// `sum` rewritten in terms of `stored`, the vector that `read` became when it was evaluated. Common
// terms cancel: a state that is corrected after it was read does not grow.
inline Latent from_stored(const Latent& sum, const Latent& read, const Latent& stored) {
  return stored + (sum - read);
}

}  // namespace ebb
