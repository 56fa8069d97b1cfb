// One thread's evaluation of a tape, block by block.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "backend/cpu/blocks.h"

namespace ebb::cpu {

class Evaluator {
 public:
  // `memory` holds bytes(tape, elements) bytes; `in` are the tensors' addresses.
  Evaluator(const Tape& tape, const BlockReader& reader, std::span<void* const> in, float* memory,
            int64_t elements)
      : tape_(tape),
        reader_(reader),
        in_(in),
        seen_(in.size()),
        own_(static_cast<size_t>(tape.slots)) {
    for (int32_t s = 0; s < tape.slots; ++s) own_[static_cast<size_t>(s)] = memory + s * elements;
    slot_.assign(own_.begin(), own_.end());
    for (const Tape::Constant& c : tape.constants)
      loops().fill(own_[static_cast<size_t>(c.slot)], c.value, elements);
  }

  static int64_t bytes(const Tape& tape, int64_t elements) {
    return static_cast<int64_t>(sizeof(float)) * tape.slots * elements;
  }

  // Results are made in `memory` from now on (until the next call) instead of the slot's own.
  void redirect(int32_t slot, float* memory) { slot_[static_cast<size_t>(slot)] = memory; }

  // Evaluates the block at `index` (see BlockReader); n is its number of elements.
  void run(std::span<const int64_t> index, int64_t count, int64_t n) {
    for (size_t k = 0; k < in_.size(); ++k) {
      const int32_t s = tape_.input_slot[k];
      if (s < 0) continue;
      // Loops only read their arguments; inputs are never results of loops.
      slot_[static_cast<size_t>(s)] = const_cast<float*>(
          reader_.read(k, in_[k], index, count, own_[static_cast<size_t>(s)], seen_[k]));
    }
    const auto at = [&](int32_t s) { return slot_[static_cast<size_t>(s)]; };
    for (const Tape::Op& op : tape_.ops) op.loop(at(op.d), at(op.a), at(op.b), at(op.c), n);
  }

  // Copies the slot's values of the block into its own memory, before theirs is written over.
  void keep(int32_t slot, int64_t n) {
    float* own = own_[static_cast<size_t>(slot)];
    const float* now = slot_[static_cast<size_t>(slot)];
    if (now != own) std::memcpy(own, now, static_cast<size_t>(n) * sizeof(float));
    slot_[static_cast<size_t>(slot)] = own;
  }

  const float* result(size_t k) const { return slot_[static_cast<size_t>(tape_.result_slot[k])]; }

 private:
  const Tape& tape_;
  const BlockReader& reader_;
  std::span<void* const> in_;
  std::vector<BlockReader::Seen> seen_;
  std::vector<float*> own_, slot_;
};

// Below so many elements a pass takes less time than waking the other threads.
inline constexpr int64_t worth_threads = 16384;

// The dim at which blocks of at most `elements` are cut, not before `first`, and how many of its
// indices go into one.
struct Split {
  int64_t dim = 0, count = 1;
  int64_t inner = 1;  // elements of all later dims
};
Split make_split(const IterationSpace& space, int64_t first, int64_t elements);

// Advances over blocks: `index` of dims [0, split.dim] from block number `b`; returns the count.
int64_t block_index(const IterationSpace& space, const Split& split, int64_t b,
                    std::span<int64_t> index);
int64_t blocks_of(const IterationSpace& space, const Split& split);

}  // namespace ebb::cpu
