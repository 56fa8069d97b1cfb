// The names and numbers that a Denoiser and its graph share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "diffusion/denoiser.h"

namespace ebb::denoising {

// {N,H,W,C}. Throws Error for options that go together in no graph.
Shape batch_shape(const DenoiserOptions& o);

inline int64_t branches_of(const DenoiserOptions& o) { return std::ssize(o.branches); }

// The kinds of branches but cond, whose predictions a run can store.
inline std::vector<Branch> others_of(const DenoiserOptions& o) {
  std::vector<Branch> out;
  for (const Branch b : o.branches)
    if (b != Branch::cond && std::ranges::find(out, b) == out.end()) out.push_back(b);
  return out;
}

// Rules on the host read the predictions of all kinds.
inline int64_t vectors_of(const DenoiserOptions& o) {
  return o.vectors + std::max<int64_t>(std::ssize(others_of(o)) - 1, 0);
}

// What a vector becomes; 0: it keeps what it holds.
inline constexpr double takes_x = 1, takes_guided = 2, takes_others = 3;
inline double takes_noise(const DenoiserOptions& o) {
  return takes_others + std::max(1.0, static_cast<double>(others_of(o).size()));
}

inline std::string weight_of(size_t branch) { return str("weight.", branch); }
inline std::string mix_of(size_t k) { return str("mix.", k); }
inline std::string role_of(size_t k) { return str("role.", k); }

}  // namespace ebb::denoising
