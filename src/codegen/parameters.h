// Parameters: the parameter struct of a kernel on the host, and what goes into it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ebb::codegen {

// Offsets of the struct's fields, and the struct itself.
class Parameters {
 public:
  int64_t add(int64_t size) {  // bytes; also its alignment
    bytes_.resize((bytes_.size() + static_cast<size_t>(size) - 1) / static_cast<size_t>(size) *
                      static_cast<size_t>(size) +
                  static_cast<size_t>(size));
    return static_cast<int64_t>(bytes_.size()) - size;
  }
  template <class T>
  int64_t add_value(T value) {
    const int64_t at = add(sizeof(T));
    set(at, value);
    return at;
  }
  template <class T>
  void set(int64_t offset, T value) {
    std::copy_n(reinterpret_cast<const char*>(&value), sizeof(T), bytes_.begin() + offset);
  }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  void* data() { return bytes_.data(); }
  const std::vector<char>& bytes() const { return bytes_; }
  // Those of `part`, and bytes up to a multiple of 8.
  void append(const Parameters& part) {
    bytes_.insert(bytes_.end(), part.bytes_.begin(), part.bytes_.end());
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
  }

 private:
  std::vector<char> bytes_;
};

// The parameter struct of a launch that several uses of a kernel share: the bytes from use to use
// (u32), the first block of each use but the first (u32 each), and the struct of each. Of one use:
// its struct.
class SharedLaunch {
 public:
  static constexpr int64_t stride_at = 0;
  static int64_t first_block_at(int use) { return 4 * int64_t{use}; }
  static int64_t header_bytes(int uses) { return uses > 1 ? up(4 * int64_t{uses}) : 0; }
  static int64_t bytes(int uses, int64_t use_bytes) { return use_at(uses, uses, use_bytes); }
  // Where the struct of a use begins.
  static int64_t use_at(int use, int uses, int64_t use_bytes) {
    return header_bytes(uses) + use * up(use_bytes);
  }

  SharedLaunch(int uses, int64_t use_bytes) {
    while (parameters_.size() < header_bytes(uses)) parameters_.add_value(uint32_t{0});
    if (uses > 1) parameters_.set(stride_at, static_cast<uint32_t>(up(use_bytes)));
  }
  void add(const Parameters& use, int64_t blocks) {
    if (added_ > 0) parameters_.set(first_block_at(added_), static_cast<uint32_t>(blocks_));
    parameters_.append(use);
    blocks_ += blocks;
    ++added_;
  }
  int64_t blocks() const { return blocks_; }
  Parameters& parameters() { return parameters_; }

 private:
  static int64_t up(int64_t bytes) { return (bytes + 7) / 8 * 8; }
  int64_t blocks_ = 0;
  int added_ = 0;
  Parameters parameters_;
};

}  // namespace ebb::codegen
