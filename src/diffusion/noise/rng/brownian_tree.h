// A Brownian path that is independent of the order of queries: torchsde's BrownianTree (Li et al.
// 2020, "Scalable gradients for stochastic differential equations").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ebb {

// Writes the standard normal noise of a seed.
using SeedNormals = std::function<void(uint64_t seed, std::span<double> out)>;

// W on [start, end], bisected down to millionths. A node stores the increment of W over it; its
// seed determines how the increment divides between its halves.
class BrownianTree {
 public:
  struct Range {
    double start, end;
  };
  // `size` independent paths.
  BrownianTree(Range range, uint64_t seed, size_t size, SeedNormals normals);
  ~BrownianTree();
  BrownianTree(BrownianTree&&) noexcept;

  // out = W(b) - W(a), a <= b, both clamped to the range; f32.
  void increment(double a, double b, std::span<float> out);

 private:
  struct Node;
  void split(Node& node) const;
  void cover(Node& node, double a, double b, std::vector<Node*>& out) const;
  const std::vector<float>& value(Node& node);
  void forget();

  uint64_t seed_;
  size_t size_;
  SeedNormals normals_;
  std::unique_ptr<Node> root_;
  std::vector<Node*> known_;  // nodes with cached values, except the root
  uint64_t time_ = 0;         // of queries
  std::vector<double> drawn_;
};

}  // namespace ebb
