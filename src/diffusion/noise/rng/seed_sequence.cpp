#include "diffusion/noise/rng/seed_sequence.h"

#include <algorithm>

namespace ebb {
namespace {

// A hash whose constant moves on with every use.
class Hash {
 public:
  Hash(uint32_t start, uint32_t factor) : constant_(start), factor_(factor) {}

  uint32_t operator()(uint32_t v) {
    v ^= constant_;
    constant_ *= factor_;
    v *= constant_;
    return v ^ v >> 16;
  }

 private:
  uint32_t constant_, factor_;
};

uint32_t mix(uint32_t a, uint32_t b) {
  const uint32_t t = 0xca01f9ddu * a - 0x4973f715u * b;
  return t ^ t >> 16;
}

// The little-endian words of the integers, at least one each.
std::vector<uint32_t> words_of(const std::vector<uint64_t>& integers) {
  std::vector<uint32_t> out;
  for (const uint64_t v : integers) {
    out.push_back(static_cast<uint32_t>(v));
    if (v >> 32) out.push_back(static_cast<uint32_t>(v >> 32));
  }
  return out;
}

std::vector<uint32_t> mixed(const std::vector<uint32_t>& entropy, size_t pool_size) {
  Hash hash(0x43b0d7e5u, 0x931e8875u);
  std::vector<uint32_t> pool(pool_size);
  for (size_t i = 0; i < pool_size; ++i) pool[i] = hash(i < entropy.size() ? entropy[i] : 0);
  for (size_t from = 0; from < pool_size; ++from)
    for (size_t to = 0; to < pool_size; ++to)
      if (from != to) pool[to] = mix(pool[to], hash(pool[from]));
  for (size_t from = pool_size; from < entropy.size(); ++from)
    for (uint32_t& to : pool) to = mix(to, hash(entropy[from]));
  return pool;
}

}  // namespace

std::vector<uint32_t> SeedSequence::generate(size_t words) const {
  std::vector<uint32_t> all = words_of(entropy);
  if (!spawn_key.empty()) {
    all.resize(std::max(all.size(), pool_size));
    const std::vector<uint32_t> key = words_of(spawn_key);
    all.insert(all.end(), key.begin(), key.end());
  }
  const std::vector<uint32_t> pool = mixed(all, pool_size);
  Hash hash(0x8b51f9ddu, 0x58f38dedu);
  std::vector<uint32_t> out(words);
  for (size_t i = 0; i < words; ++i) out[i] = hash(pool[i % pool_size]);
  return out;
}

}  // namespace ebb
