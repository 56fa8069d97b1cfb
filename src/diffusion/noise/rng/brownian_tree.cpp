#include "diffusion/noise/rng/brownian_tree.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "diffusion/noise/rng/seed_sequence.h"

namespace ebb {
namespace {

constexpr size_t pool_size = 24;
// Number of nodes whose values are cached between queries: more than one path down.
constexpr size_t kept = 64;

// To six decimals, the nearest of them to the exact value.
double rounded(double t) {
  char text[400];
  const auto written = std::to_chars(text, text + sizeof text, t, std::chars_format::fixed, 6);
  double out = t;
  std::from_chars(text, written.ptr, out);
  return out;
}

}  // namespace

struct BrownianTree::Node {
  double start = 0, end = 0, middle = 0;
  uint64_t key = 0, depth = 0;  // its place: the halves of `key` are 2 key and 2 key + 1
  Node* parent = nullptr;
  std::unique_ptr<Node> left = nullptr, right = nullptr;
  std::vector<float> value = {};  // W(end) - W(start); empty: not known
  uint64_t used = 0;
};

BrownianTree::BrownianTree(Range range, uint64_t seed, size_t size, SeedNormals normals)
    : seed_(seed), size_(size), normals_(std::move(normals)), drawn_(size) {
  require(range.start < range.end, "brownian: needs two noise levels (", range.start, " to ",
          range.end, ")");
  root_ = std::make_unique<Node>(Node{.start = rounded(range.start), .end = rounded(range.end)});
  normals_(SeedSequence{.entropy = {seed}, .pool_size = pool_size}.generate(1)[0], drawn_);
  const auto deviation = static_cast<float>(std::sqrt(range.end - range.start));
  for (const double z : drawn_) root_->value.push_back(static_cast<float>(z) * deviation);
}

BrownianTree::~BrownianTree() = default;
BrownianTree::BrownianTree(BrownianTree&&) noexcept = default;

void BrownianTree::split(Node& node) const {
  node.middle = rounded(0.5 * (node.end + node.start));
  require(node.start < node.middle && node.middle < node.end,
          "brownian: noise levels are too large for millionths (", node.end, ")");
  node.left = std::make_unique<Node>(Node{.start = node.start,
                                          .end = node.middle,
                                          .key = 2 * node.key,
                                          .depth = node.depth + 1,
                                          .parent = &node});
  node.right = std::make_unique<Node>(Node{.start = node.middle,
                                           .end = node.end,
                                           .key = 2 * node.key + 1,
                                           .depth = node.depth + 1,
                                           .parent = &node});
}

// The nodes that together are [a, b], from left to right.
void BrownianTree::cover(Node& node, double a, double b, std::vector<Node*>& out) const {
  if (a >= b) return;
  if (a == node.start && b == node.end) {
    out.push_back(&node);
    return;
  }
  if (!node.left) split(node);
  cover(*node.left, a, std::min(b, node.middle), out);
  cover(*node.right, std::max(a, node.middle), b, out);
}

const std::vector<float>& BrownianTree::value(Node& node) {
  node.used = time_;
  if (!node.value.empty()) return node.value;
  Node& parent = *node.parent;
  const std::vector<float>& whole = value(parent);
  const SeedSequence place{{seed_}, {parent.key, parent.depth}, pool_size};
  normals_(place.generate(1)[0], drawn_);

  const double left = parent.middle - parent.start, right = parent.end - parent.middle;
  const double scale = 1 / (parent.end - parent.start);
  const auto share = static_cast<float>(left), per = static_cast<float>(scale);
  const auto deviation = static_cast<float>(std::sqrt(left * right * scale));
  std::vector<float>&l = parent.left->value, &r = parent.right->value;
  for (Node* child : {parent.left.get(), parent.right.get()}) {
    if (child->value.empty()) known_.push_back(child);
    child->value.resize(size_);
    child->used = time_;
  }
  for (size_t i = 0; i < size_; ++i) {
    l[i] = share * whole[i] * per + deviation * static_cast<float>(drawn_[i]);
    r[i] = whole[i] - l[i];
  }
  return node.value;
}

// Drops the least recently used values: they can be recomputed.
void BrownianTree::forget() {
  if (known_.size() <= kept) return;
  std::stable_sort(known_.begin(), known_.end(),
                   [](const Node* a, const Node* b) { return a->used > b->used; });
  for (size_t i = kept; i < known_.size(); ++i) std::vector<float>().swap(known_[i]->value);
  known_.resize(kept);
}

void BrownianTree::increment(double a, double b, std::span<float> out) {
  ++time_;
  const auto inside = [this](double t) { return std::clamp(t, root_->start, root_->end); };
  std::vector<Node*> nodes;
  cover(*root_, rounded(inside(a)), rounded(inside(b)), nodes);
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t k = 0; k < nodes.size(); ++k) {
    const std::vector<float>& w = value(*nodes[k]);
    for (size_t i = 0; i < size_; ++i) out[i] = k == 0 ? w[i] : out[i] + w[i];
  }
  forget();
}

}  // namespace ebb
