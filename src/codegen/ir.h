// Kernel: a GPU kernel as typed values and structured control flow, independent of any target. A
// Builder makes it (builder.h), an emitter prints it in a target's language.
//
// A kernel is a list of instructions. Values are in static single assignment form; what changes is
// in variables, which are read and written. Control flow is `when` and `loop`: a loop ends by its
// `break_unless` alone, which is its first or its last instruction. There is no goto and no return.
//
// Numbers with fewer than 32 bits exist in memory and in words only; arithmetic is in u32, i32, f32
// and, for addresses, u64.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::codegen {

enum class Kind : uint8_t { pred, u32, i32, u64, f32 };

// By group; the operands of each are in the table of ir.cpp.
enum class Op : uint8_t {
  // inputs
  param,     // a field of the parameters, `number` bytes from their start
  pointer,   // the same for an address in the device's memory
  param_at,  // the field at a number of bytes that is a value (+ number)
  pointer_at,
  block_index,   // one-dimensional
  thread_index,  // within the block: subgroup after subgroup, lane after lane
  // Of parts of `number` neighbouring lanes each, a power of two and at most a subgroup; a part of
  // 1
  // is a thread. The thread's place in its part, and the part's in the block.
  lane,
  subgroup_index,
  // integers
  add,
  sub,
  mul,       // also of floats; detail: Contraction
  mul_hi,    // the high half of u32 x u32
  mul_wide,  // u32 x u32 -> u64
  mul_add,   // a b + c
  mul_wide_add,
  shl,
  shr,
  bit_and,
  bit_or,
  bit_xor,
  min,  // of floats: the other one if one is NaN
  max,
  widen,  // u32 -> u64
  low,    // u64 -> u32
  // predicates
  compare,  // detail: Compare; of floats: false for NaN, but `ne` true
  both,
  invert,
  select,  // p ? a : b
  // floats
  fma,
  neg,
  abs,
  copysign,  // the size of a with the sign of b
  floor,
  min_nan,  // NaN if a is; b is a number
  max_nan,
  less,  // a < b as 1 or 0
  // floats, approximate: div to 2.5 ulp, the others to 2, exp2 for -30 < x <= 16 and beyond to a
  // relative 2^-12. A target that is less exact outside [-1, 1] scales by powers of two.
  div,
  rcp,
  sqrt,
  rsqrt,
  exp2,
  // conversions
  bitcast,
  to_float,  // i32, u32, or u64 as a signed number
  unpack,    // the number in a word; detail: DType, number: which | whole << 8
  pack,      // one number, or two of 16 bits, into a word; detail: DType
  // memory; detail: bytes of a unit (1, 2, 4, 8), number: bytes from the address
  load,
  load_when,  // the last operand: where it does not hold, the values are unspecified
  store,
  shared_address,  // of the unit at an index of the array `number`; detail: bytes of a unit
  shared_move,     // an address, `b` bytes on
  load_shared,
  load_shared_when,
  store_shared,
  // synchronisation
  barrier,
  subgroup_barrier,
  shuffle_xor,   // number: mask
  shuffle_down,  // number: distance
  // variables and control flow
  read,
  write,
  when,
  otherwise,
  end_when,
  loop,
  break_unless,
  end_loop,
  // extensions, which a target may lack: see Feature
  dynamic_shared,  // the address of the launch's shared memory, + a number of bytes
  copy_async,      // (shared address, address), number: bytes from both | bytes << 32
  copy_commit,
  copy_wait,
  cluster_rank,
  cluster_arrive,
  cluster_wait,
  transaction_init,  // (shared address, bytes): a barrier that counts bytes; by one thread
  transaction_fence,
  transaction_done,  // of the first phase
  remote_address,    // of a shared address in block b of the cluster
  remote_store,      // (remote address, value, remote barrier)
};

enum class Compare : uint8_t { lt, le, gt, ge, eq, ne };

// Whether a product and a sum may be contracted to a fused multiply-add.
enum class Contraction : uint8_t { none, allowed };

// What an extension needs.
enum class Feature : uint8_t { none, dynamic_shared, async_copy, cluster };

struct OpInfo {
  Op op;
  std::string_view name;
  // Kinds of the result (_: none, *: those of `values`), then of the operands: p u i l f, or a: all
  // of these are the same kind, n: any kind; s: u32 that is a shared address; *: any number of any.
  std::string_view signature;
  Feature needs = Feature::none;
};
const OpInfo& info_of(Op op);

struct Instruction {
  Op op;
  uint8_t detail = 0;
  uint8_t results = 0, operands = 0;
  int32_t result = -1;        // the first; they are consecutive values
  int32_t first_operand = 0;  // in Kernel::operands
  int64_t number = 0;
  bool operator==(const Instruction&) const = default;
};

struct Value {
  enum class Class : uint8_t { defined, constant, variable };
  Kind kind = Kind::u32;
  Class of = Class::defined;
  uint64_t bits = 0;  // of a constant
  bool constant() const { return of == Class::constant; }
  bool operator==(const Value&) const = default;
};

struct Kernel {
  std::string name;
  int subgroup = 32;             // threads, that it is written for
  int threads = 256;             // of a block, at most
  int blocks_per_processor = 0;  // at least, by registers; 0: no bound
  int64_t parameter_bytes = 0;
  std::vector<int64_t> shared_bytes;  // by array
  bool dynamic_shared = false;
  std::vector<Instruction> code;
  std::vector<int32_t> operands;
  std::vector<Value> values;

  int32_t operand(const Instruction& i, int k) const {
    return operands[static_cast<size_t>(i.first_operand + k)];
  }
  const Value& value(int32_t id) const { return values[static_cast<size_t>(id)]; }
  bool operator==(const Kernel&) const = default;
};

// Where the region that an instruction opens ends: of `when` and `loop`, the index of their
// end; of `otherwise`, of its end_when. Else -1. `loop_of`: by instruction, the innermost loop
// around it (the index of its `loop`), or -1.
struct Regions {
  explicit Regions(const Kernel& kernel);
  std::vector<int32_t> end, loop_of, other;  // other: of a `when`, its `otherwise` or -1
};

// By value: whether all threads of a block have the same.
std::vector<bool> uniform_values(const Kernel& kernel);

// Throws Error where a kernel breaks a rule: types, use before definition or outside of the region
// of the definition, control flow, barriers and shuffles where only some threads are.
void verify(const Kernel& kernel);

// For people and golden files: `%5:f32 = fma %3 %4 1.5`.
std::string print(const Kernel& kernel);

}  // namespace ebb::codegen
