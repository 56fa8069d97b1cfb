// A path of Brownian motion that is the same whatever is asked of it, and in which order:
// torchsde's BrownianTree (Li et al. 2020, "Scalable gradients for stochastic differential
// equations").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace ebb {

// Writes the standard normal numbers of a seed.
using SeedNormals = std::function<void(uint64_t seed, std::span<double> out)>;

// W on [start, end], halved again and again down to millionths. A node knows how far W goes along
// it; its seed says how that divides between its halves.
class BrownianTree {
 public:
  struct Range {
    double start, end;
  };
  // `size` paths side by side.
  BrownianTree(Range range, uint64_t seed, size_t size, SeedNormals normals);
  ~BrownianTree();
  BrownianTree(BrownianTree&&) noexcept;

  // out = W(b) - W(a), a <= b, both moved into the range; f32.
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
  std::vector<Node*> known_;  // nodes whose values are kept, but for the root
  uint64_t time_ = 0;         // of queries
  std::vector<double> drawn_;
};

}  // namespace ebb
