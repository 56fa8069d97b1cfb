// Builder: writes a Kernel with typed values and operators.
//
//   Builder b("scale", target);
//   const U64 data = b.pointer(pointers);
//   const U32 at = mul_add(b.block_index(), 256, b.thread_index());
//   b.when(at < b.number(count), [&] {
//     const Address x{data + mul_wide(at, 4)};
//     const F32 y[] = {b.element(b.load(DType::f32, 1, x), 0) * 2.0f};
//     b.store(DType::f32, y, x);
//   });
//   const Kernel kernel = b.finish(256, 0);
//
// Floats: + - * are rounded to nearest even and never contracted; sum(), difference() and product()
// may be contracted with each other. fma() may be a product and a sum where a target has no fused
// one. Subnormal numbers may be flushed to zero by approximate functions.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "codegen/ir.h"
#include "codegen/parameters.h"
#include "codegen/target.h"
#include "core/dtype.h"

namespace ebb::codegen {

class Builder;

// A value of any kind; none if default-constructed.
struct Any {
  Builder* builder = nullptr;
  int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
};

// A value of kind K.
template <Kind K>
struct Typed : Any {
  Typed() = default;
  explicit Typed(Any v) : Any(v) {}
};
using Pred = Typed<Kind::pred>;
using U32 = Typed<Kind::u32>;
using I32 = Typed<Kind::i32>;
using U64 = Typed<Kind::u64>;
using F32 = Typed<Kind::f32>;

// A variable of kind K.
template <Kind K>
class Var {
 public:
  Var() = default;
  explicit Var(Any v) : v_(v) {}
  Typed<K> get() const;
  void set(Typed<K> value) const;
  explicit operator bool() const { return static_cast<bool>(v_); }

 private:
  Any v_;
};

// `count` neighbours in memory as they were loaded, packed in words.
struct Words {
  DType dtype = DType::f32;
  int count = 0;
  std::vector<Any> words;
};

// The same as variables: what is loaded ahead of its use.
struct WordsVar {
  DType dtype = DType::f32;
  int count = 0;
  std::vector<Any> words;  // variables
};

// Bytes in the device's memory, touched where `when` holds (or always).
struct Address {
  U64 base;
  int64_t offset = 0;
  Pred when = {};
};

// Bytes in the memory of a thread block. The number is the target's own.
struct SharedAddress {
  U32 base;
  int64_t offset = 0;
  Pred when = {};
};

// An array of units of `unit` bytes in the memory of a thread block.
struct SharedArray {
  int32_t array = -1;
  int unit = 4;
};

class Builder {
 public:
  Builder(std::string name, const Target& target) : target_(target) {
    kernel_.name = std::move(name);
    kernel_.subgroup = target.subgroup;
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  const Target& target() const { return target_; }
  Parameters& parameters() { return parameters_; }

  // Verified. `threads`: of a block, at most; blocks_per_processor: at least that many must have
  // room by their registers. parameter_bytes: 0 for those of parameters(), of all uses.
  Kernel finish(int threads, int blocks_per_processor, int64_t parameter_bytes = 0);

  // Before anything else: the launch computes `uses` of the kernel, each with parameters() of its
  // own (see SharedLaunch) and blocks that count from 0. What follows is for the block's use.
  // `alternate`: neighbouring blocks are of one number and of all uses, a power of two of as many
  // blocks each; else the uses follow one another.
  void share_launch(int uses, bool alternate);

  // ---- inputs and constants
  U32 u32(uint32_t v) { return U32(constant(Kind::u32, v)); }
  I32 i32(int32_t v) { return I32(constant(Kind::i32, static_cast<uint32_t>(v))); }
  U64 u64(uint64_t v) { return U64(constant(Kind::u64, v)); }
  F32 f32(float v);
  // A field of the parameter struct, `offset` bytes from its start.
  template <Kind K>
  Typed<K> param(int64_t offset) {
    if (use_at_) return param_at<K>(use_at_, offset);
    return Typed<K>(make(Op::param, K, {}, 0, offset));
  }
  U64 param_pointer(int64_t offset) {
    if (use_at_) return param_pointer_at(use_at_, offset);
    return U64(make(Op::pointer, Kind::u64, {}, 0, offset));
  }
  // The field `offset` bytes behind byte `at`, which is the same for all threads of a block.
  template <Kind K>
  Typed<K> param_at(U32 at, int64_t offset) {
    return Typed<K>(make(Op::param_at, K, {at}, 0, offset));
  }
  U64 param_pointer_at(U32 at, int64_t offset) {
    return U64(make(Op::pointer_at, Kind::u64, {at}, 0, offset));
  }
  // A u32 field with this value. Sizes are parameters, so that shapes share a kernel.
  U32 number(int64_t value);
  // A pointer field, set at each launch; its offset is appended to `pointers`.
  U64 pointer(std::vector<int64_t>& pointers);
  U32 block_index() { return use_block_ ? use_block_ : U32(make(Op::block_index, Kind::u32, {})); }
  U32 thread_index() { return U32(make(Op::thread_index, Kind::u32, {})); }
  // The thread's place in a part of `lanes` neighbours of its subgroup, and the part's in the
  // block; lanes: a power of two, at most a subgroup; 0: a subgroup.
  U32 lane(int lanes = 0);
  U32 subgroup_index(int lanes = 0);

  // ---- control flow. Values that a body makes stay in it; variables carry results out.
  void when(Pred p, const std::function<void()>& body);  // no predicate: always
  void when(Pred p, const std::function<void()>& body, const std::function<void()>& otherwise);
  // The body runs until break_unless(p) fails, which is its first or its last instruction.
  void loop(const std::function<void()>& body);
  void break_unless(Pred p) { put(Op::break_unless, {p}); }
  // The body for begin, begin + step, ... below end.
  void for_range(U32 begin, U32 end, U32 step, const std::function<void(U32)>& body);

  template <Kind K>
  Var<K> var(Typed<K> start) {
    const Var<K> v(variable(K));
    v.set(start);
    return v;
  }
  // A variable that has no value yet.
  template <Kind K>
  Var<K> unset() {
    return Var<K>(variable(K));
  }
  WordsVar var(const Words& start);
  // Variables that have no value yet, as load() would fill them.
  WordsVar words_var(DType dtype, int count);
  void set(const WordsVar& v, const Words& words);

  // ---- memory. Vectors are aligned to their size or, above 16 bytes, to 16.
  Words load(DType dtype, int count, const Address& at);
  Words load(DType dtype, int count, const SharedAddress& at);
  F32 element(const Words& w, int index);
  F32 element(const WordsVar& w, int index);
  void store(DType dtype, std::span<const F32> values, const Address& at);
  F32 rounded(F32 x, DType dtype);  // to the nearest of 16 bits, as a store rounds
  void store(std::span<const F32> values, const SharedAddress& at);
  // Bytes as they are: 1, 2, 4 or 8 a unit.
  std::vector<Any> load_units(int unit, Kind kind, int count, const Address& at);
  void store_units(int unit, std::span<const Any> units, const SharedAddress& at);

  // ---- the memory of a thread block
  SharedArray shared_array(int unit, int64_t count);
  SharedAddress at(SharedArray a, U32 index);
  SharedAddress move(const SharedAddress& a, U32 bytes);  // bytes on
  SharedAddress dynamic_shared(U32 offset);  // of the memory that the launch gives; an extension
  void barrier() { put(Op::barrier, {}); }
  void subgroup_barrier() { put(Op::subgroup_barrier, {}); }
  F32 shuffle_xor(F32 v, int mask) { return F32(make(Op::shuffle_xor, Kind::f32, {v}, 0, mask)); }
  F32 shuffle_down(F32 v, int by) { return F32(make(Op::shuffle_down, Kind::f32, {v}, 0, by)); }

  // ---- one instruction. Throws Error where the target lacks it.
  Any make(Op op, Kind result, std::initializer_list<Any> operands, int detail = 0,
           int64_t number = 0);
  void put(Op op, std::initializer_list<Any> operands, int detail = 0, int64_t number = 0);

 private:
  template <Kind K>
  friend class Var;
  Any constant(Kind kind, uint64_t bits);
  Any variable(Kind kind);
  std::vector<Any> load_vectors(Op op, Any base, int64_t offset, Pred when, int unit, int units,
                                Kind kind);
  void store_vectors(Op op, Any base, int64_t offset, Pred when, int unit,
                     std::span<const Any> units);
  void add(Op op, std::span<const Any> operands, std::span<const Kind> results, int detail,
           int64_t number);
  F32 unpacked(DType dtype, Any word, int which, bool whole);
  int part(int lanes) const;

  Target target_;
  Kernel kernel_;
  Parameters parameters_;
  int uses_ = 1;
  U32 use_at_, use_block_;  // of several uses: where the parameters of the block's are; the block
};

template <Kind K>
Typed<K> Var<K>::get() const {
  return Typed<K>(v_.builder->make(Op::read, K, {v_}));
}
template <Kind K>
void Var<K>::set(Typed<K> value) const {
  v_.builder->put(Op::write, {v_, value});
}

// ---- operators ------------------------------------------------------------------------------

template <Kind K>
using Number =
    std::conditional_t<K == Kind::f32, float,
                       std::conditional_t<K == Kind::u32, uint32_t,
                                          std::conditional_t<K == Kind::i32, int32_t, uint64_t>>>;

template <Kind K>
Typed<K> literal(const Any& with, Number<K> v) {
  Builder& b = *with.builder;
  if constexpr (K == Kind::f32)
    return b.f32(v);
  else if constexpr (K == Kind::u32)
    return b.u32(v);
  else if constexpr (K == Kind::i32)
    return b.i32(v);
  else
    return b.u64(v);
}

template <Kind K>
Typed<K> binary(Op op, Typed<K> a, Typed<K> b, int detail = 0) {
  return Typed<K>(a.builder->make(op, K, {a, b}, detail));
}

#define EBB_OPERATOR(symbol, op)                      \
  template <Kind K>                                   \
  Typed<K> operator symbol(Typed<K> a, Typed<K> b) {  \
    return binary(op, a, b);                          \
  }                                                   \
  template <Kind K>                                   \
  Typed<K> operator symbol(Typed<K> a, Number<K> b) { \
    return binary(op, a, literal<K>(a, b));           \
  }
EBB_OPERATOR(+, Op::add)
EBB_OPERATOR(-, Op::sub)
EBB_OPERATOR(*, Op::mul)
EBB_OPERATOR(&, Op::bit_and)
EBB_OPERATOR(|, Op::bit_or)
EBB_OPERATOR(^, Op::bit_xor)
#undef EBB_OPERATOR

template <Kind K>
Typed<K> operator<<(Typed<K> a, int by) {
  return Typed<K>(a.builder->make(Op::shl, K, {a, a.builder->u32(static_cast<uint32_t>(by))}));
}
template <Kind K>
Typed<K> operator>>(Typed<K> a, int by) {
  return Typed<K>(a.builder->make(Op::shr, K, {a, a.builder->u32(static_cast<uint32_t>(by))}));
}
inline U32 operator>>(U32 a, U32 by) { return binary(Op::shr, a, by); }

#define EBB_COMPARISON(symbol, how)                                                       \
  template <Kind K>                                                                       \
  Pred operator symbol(Typed<K> a, Typed<K> b) {                                          \
    return Pred(a.builder->make(Op::compare, Kind::pred, {a, b}, static_cast<int>(how))); \
  }                                                                                       \
  template <Kind K>                                                                       \
  Pred operator symbol(Typed<K> a, Number<K> b) {                                         \
    return a symbol literal<K>(a, b);                                                     \
  }
EBB_COMPARISON(<, Compare::lt)
EBB_COMPARISON(<=, Compare::le)
EBB_COMPARISON(>, Compare::gt)
EBB_COMPARISON(>=, Compare::ge)
EBB_COMPARISON(==, Compare::eq)
EBB_COMPARISON(!=, Compare::ne)
#undef EBB_COMPARISON

template <Kind K>
Typed<K> min(Typed<K> a, Typed<K> b) {
  return binary(Op::min, a, b);
}
template <Kind K>
Typed<K> max(Typed<K> a, Typed<K> b) {
  return binary(Op::max, a, b);
}
template <Kind K>
Typed<K> select(Pred p, Typed<K> yes, Typed<K> no) {
  return Typed<K>(p.builder->make(Op::select, K, {p, yes, no}));
}

// Both of what there is; no predicate holds always.
inline Pred both(Pred a, Pred b) {
  if (!a || !b) return a ? a : b;
  return Pred(a.builder->make(Op::both, Kind::pred, {a, b}));
}
inline Pred invert(Pred p) { return Pred(p.builder->make(Op::invert, Kind::pred, {p})); }

// a b + c
inline U32 mul_add(U32 a, U32 b, U32 c) {
  return U32(a.builder->make(Op::mul_add, Kind::u32, {a, b, c}));
}
inline U32 mul_add(U32 a, int64_t b, U32 c) {
  return mul_add(a, a.builder->u32(static_cast<uint32_t>(b)), c);
}
// Products of u32 as u64; c may be none.
inline U64 mul_wide(U32 a, U32 b) { return U64(a.builder->make(Op::mul_wide, Kind::u64, {a, b})); }
inline U64 mul_wide(U32 a, int64_t b) {
  return mul_wide(a, a.builder->u32(static_cast<uint32_t>(b)));
}
inline U64 mul_wide_add(U32 a, U32 b, U64 c) {
  if (!c) return mul_wide(a, b);
  return U64(a.builder->make(Op::mul_wide_add, Kind::u64, {a, b, c}));
}
inline U32 mul_hi(U32 a, U32 b) { return binary(Op::mul_hi, a, b); }
inline U64 widen(U32 a) { return U64(a.builder->make(Op::widen, Kind::u64, {a})); }
inline U32 low(U64 a) { return U32(a.builder->make(Op::low, Kind::u32, {a})); }

// Floats that may be contracted.
inline F32 sum(F32 a, F32 b) {
  return binary(Op::add, a, b, static_cast<int>(Contraction::allowed));
}
inline F32 difference(F32 a, F32 b) {
  return binary(Op::sub, a, b, static_cast<int>(Contraction::allowed));
}
inline F32 product(F32 a, F32 b) {
  return binary(Op::mul, a, b, static_cast<int>(Contraction::allowed));
}
inline F32 unary(Op op, F32 a) { return F32(a.builder->make(op, Kind::f32, {a})); }
inline F32 operator-(F32 a) { return unary(Op::neg, a); }
inline F32 abs(F32 a) { return unary(Op::abs, a); }
inline F32 floor(F32 a) { return unary(Op::floor, a); }
inline F32 copysign(F32 size, F32 sign) { return binary(Op::copysign, size, sign); }
inline F32 fma(F32 a, F32 b, F32 c) { return F32(a.builder->make(Op::fma, Kind::f32, {a, b, c})); }
inline F32 fma(F32 a, F32 b, float c) { return fma(a, b, a.builder->f32(c)); }
inline F32 fma(F32 a, float b, F32 c) { return fma(a, a.builder->f32(b), c); }

inline F32 as_f32(U32 bits) { return F32(bits.builder->make(Op::bitcast, Kind::f32, {bits})); }
inline F32 as_f32(I32 bits) { return F32(bits.builder->make(Op::bitcast, Kind::f32, {bits})); }
inline U32 as_u32(F32 v) { return U32(v.builder->make(Op::bitcast, Kind::u32, {v})); }
inline I32 as_i32(F32 v) { return I32(v.builder->make(Op::bitcast, Kind::i32, {v})); }
inline I32 as_i32(U32 v) { return I32(v.builder->make(Op::bitcast, Kind::i32, {v})); }
inline U32 as_u32(I32 v) { return U32(v.builder->make(Op::bitcast, Kind::u32, {v})); }
inline F32 to_f32(I32 v) { return F32(v.builder->make(Op::to_float, Kind::f32, {v})); }
inline F32 to_f32(U32 v) { return F32(v.builder->make(Op::to_float, Kind::f32, {v})); }

}  // namespace ebb::codegen
