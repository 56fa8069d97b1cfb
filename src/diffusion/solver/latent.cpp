#include "diffusion/solver/latent.h"

#include <algorithm>

namespace ebb {

const StoredLatent* Latent::alone() const {
  return terms_.size() == 1 && terms_[0].factor == 1 ? terms_[0].vector.get() : nullptr;
}

Latent& Latent::operator*=(double factor) {
  if (factor == 0) terms_.clear();
  for (Term& t : terms_) t.factor *= factor;
  return *this;
}

Latent& Latent::add(const Latent& other, double factor) {
  if (&other == this) return *this *= 1 + factor;
  for (const Term& t : other.terms_) {
    const auto same = [&](const Term& mine) { return mine.vector == t.vector; };
    const auto mine = std::find_if(terms_.begin(), terms_.end(), same);
    if (mine != terms_.end())
      mine->factor += factor * t.factor;
    else
      terms_.push_back({t.vector, factor * t.factor});
  }
  std::erase_if(terms_, [](const Term& t) { return t.factor == 0; });
  return *this;
}

}  // namespace ebb
