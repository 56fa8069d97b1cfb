// Collectives as copies between the memories of devices that reach each other's: copy engines move
// the bytes, and no thread block waits for another device. A sum is in f32, in the order of the
// ranks, and rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "core/communicator.h"

namespace ebb::cuda::peers {

// What a rank tells all others, by a flag for each at each of them.
enum class Flag : uint8_t {
  free,    // it has read all that it wants of the slots, theirs and its own
  full,    // what it puts into slots is there
  summed,  // its sum is
};
constexpr int flags = 3;

// What an exchange needs of the devices. Each rank has staging memory that all of them reach, a
// slot for every rank, and a packing buffer for every rank that it alone reaches, as large as a
// slot. What these functions enqueue runs in order.
class Link {
 public:
  struct Move {
    void* to = nullptr;
    const void* from = nullptr;
    int64_t bytes = 0;
  };
  // out = the terms of all ranks, added in their order: `own`, and what lies `offset` bytes into
  // the slots that the others filled.
  struct Sum {
    DType dtype = DType::f32;
    const void* own = nullptr;
    int64_t offset = 0;
    void* out = nullptr;
    int64_t count = 0;
    bool keep_in_slot = false;  // in this rank's own, too
  };

  virtual ~Link() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t ranks() const = 0;
  virtual int64_t slot_bytes() const = 0;  // a multiple of `alignment`
  // Where this rank addresses the slot of `writer` in the staging memory of `owner`.
  virtual std::byte* slot(int64_t owner, int64_t writer) const = 0;
  virtual std::byte* packing(int64_t rank) const = 0;
  // By a copy engine; either side may be another rank's.
  virtual void copy(const Move& move) = 0;
  // By thread blocks, all at once; both sides are this rank's.
  virtual void move(std::span<const Move> moves) = 0;
  virtual void sum(std::span<const Sum> sums) = 0;
  // Behind all before it, raises this rank's flag at every other; then waits until all of theirs
  // are raised here, and lowers them. A flag that is raised is waited for before it is raised
  // again, also in a graph that is replayed. At the beginning `free` is raised everywhere.
  struct Sync {
    std::optional<Flag> raise = {}, wait = {};
  };
  virtual void sync(const Sync& s) = 0;
  virtual std::string description() const = 0;
};

// Of terms and of offsets in slots, in bytes.
constexpr int64_t alignment = 16;

std::unique_ptr<Communicator> communicator(std::unique_ptr<Link> link);

}  // namespace ebb::cuda::peers
