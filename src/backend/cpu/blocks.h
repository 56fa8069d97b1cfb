// Expressions over blocks: how the CPU evaluates an Expr on broadcast tensors. Blocks are small
// enough for every intermediate value to stay in the first-level cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/simd/loops.h"
#include "core/shape.h"
#include "ir/expr.h"
#include "ir/iteration_space.h"

namespace ebb::cpu {

// An Expr as a list of loops over blocks, with registers ("slots") that are reused once dead.
class Tape {
 public:
  explicit Tape(const Expr& e);

  struct Op {
    MapLoop loop;
    int32_t d, a, b, c;  // slots
  };
  std::vector<Op> ops;
  int32_t slots = 0;
  std::vector<int32_t> input_slot;  // -1: unused
  std::vector<int32_t> input_last;  // the last op that reads the input
  std::vector<int32_t> result_slot;
  std::vector<int32_t> result_op;  // the op that makes it; -1: an input or a constant
  struct Constant {
    int32_t slot;
    float value;
  };
  std::vector<Constant> constants;
};

// The inputs of one thread, brought into blocks of f32 as the tape wants them.
// A block is `count` indices of dim `split` times all of the later dims.
class BlockReader {
 public:
  BlockReader(const IterationSpace& space, std::span<const Type> types, int64_t split)
      : space_(space), types_(types), split_(split) {}

  // For input k: a pointer to its values in the block that starts at `index` of the dims up to and
  // including `split`; `scratch` is used unless they lie in memory as they are. `seen` is the
  // offset and count that scratch holds, to skip what is there already.
  struct Seen {
    int64_t offset = -1, count = -1;
  };
  const float* read(size_t k, const void* base, std::span<const int64_t> index, int64_t count,
                    float* scratch, Seen& seen) const;

 private:
  void gather(size_t k, const void* base, int64_t offset, int64_t count, float* d) const;
  const IterationSpace& space_;
  std::span<const Type> types_;
  int64_t split_;
};

// Writes n values as `dtype`.
void store(void* d, DType dtype, int64_t offset, const float* s, int64_t n);

// Elements a block may have.
int64_t block_elements(const Tape& tape);

}  // namespace ebb::cpu
