#include "support/kernel_interpreter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "core/dtype.h"

namespace ebb::testing {
namespace {

using codegen::Instruction;
using codegen::Kernel;
using codegen::Kind;
using codegen::Op;
using Mask = std::vector<char>;  // by thread

// Separate roundings, whatever the compiler would like.
float rounded(float v) {
  volatile float stored = v;
  return stored;
}
float f(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint64_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }
int32_t i32(uint64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }
bool any(const Mask& m) {
  return std::any_of(m.begin(), m.end(), [](char c) { return c != 0; });
}

// A number as bits of a dtype, and back.
uint64_t packed(DType t, float v) {
  switch (t) {
    case DType::bf16: return std::bit_cast<uint16_t>(bf16(v));
    case DType::f16: return std::bit_cast<uint16_t>(f16(v));
    case DType::u8: return static_cast<uint8_t>(v);
    case DType::i64: return static_cast<uint64_t>(static_cast<int64_t>(v));
    default: return static_cast<uint32_t>(static_cast<int32_t>(v));
  }
}
float unpacked(DType t, uint64_t word, int which) {
  switch (t) {
    case DType::bf16:
      return static_cast<float>(std::bit_cast<bf16>(static_cast<uint16_t>(word >> (16 * which))));
    case DType::f16:
      return static_cast<float>(std::bit_cast<f16>(static_cast<uint16_t>(word >> (16 * which))));
    case DType::u8: return static_cast<float>(word >> (8 * which) & 255);
    case DType::i64: return static_cast<float>(static_cast<int64_t>(word));
    default: return static_cast<float>(i32(word));
  }
}

class Cluster {
 public:
  Cluster(const Kernel& kernel, const void* parameters, const HostLaunch& launch, int first_block)
      : k_(kernel),
        regions_(kernel),
        parameters_(static_cast<const char*>(parameters)),
        l_(launch),
        first_block_(first_block),
        threads_(static_cast<size_t>(launch.threads * launch.cluster)),
        values_(kernel.values.size()),
        known_(kernel.values.size()) {
    int64_t bytes = 0;
    for (const int64_t size : kernel.shared_bytes) {
      arrays_.push_back(bytes);
      bytes += size;
    }
    dynamic_ = bytes;
    shared_.assign(static_cast<size_t>(launch.cluster),
                   std::vector<char>(static_cast<size_t>(bytes + launch.shared)));
    for (size_t v = 0; v < values_.size(); ++v) {
      values_[v].assign(threads_, kernel.values[v].bits);
      known_[v].assign(threads_, kernel.values[v].constant());
    }
  }

  void run() {
    Mask all(threads_, 1);
    body(0, k_.code.size(), all);
  }

 private:
  // ---- control flow
  void body(size_t first, size_t end, Mask& mask) {
    for (size_t c = first; c < end; ++c) {
      const Instruction& i = k_.code[c];
      if (l_.vanishes && (*l_.vanishes)[c]) continue;
      if (i.op == Op::when) {
        choose(c, mask);
        c = static_cast<size_t>(regions_.end[c]);
      } else if (i.op == Op::loop) {
        Mask inside = mask;
        while (any(inside)) body(c + 1, static_cast<size_t>(regions_.end[c]), inside);
        c = static_cast<size_t>(regions_.end[c]);
      } else if (i.op == Op::break_unless) {
        for (size_t t = 0; t < threads_; ++t)
          if (mask[t]) mask[t] = in(i, 0, t) != 0;
      } else {
        step(i, mask);
      }
    }
  }
  void choose(size_t at, const Mask& mask) {
    const auto end = static_cast<size_t>(regions_.end[at]);
    const auto other = regions_.other[at] < 0 ? end : static_cast<size_t>(regions_.other[at]);
    Mask yes = mask, no = mask;
    for (size_t t = 0; t < threads_; ++t) {
      if (!mask[t]) continue;
      yes[t] = in(k_.code[at], 0, t) != 0;
      no[t] = !yes[t];
    }
    if (any(yes)) body(at + 1, other, yes);
    if (other != end && any(no)) body(other + 1, end, no);
  }

  // ---- values
  size_t place(int32_t value) const {
    return static_cast<size_t>(l_.same_as ? (*l_.same_as)[static_cast<size_t>(value)] : value);
  }
  uint64_t in(const Instruction& i, int k, size_t t) const {
    const size_t v = place(k_.operand(i, k));
    require(known_[v][t], "interpreter: a thread has no value (value ", v, ", thread ", t, ", ",
            info_of(i.op).name, ")");
    return values_[v][t];
  }
  float x(const Instruction& i, int k, size_t t) const { return f(in(i, k, t)); }
  void put(int32_t value, size_t t, uint64_t bits) {
    const size_t v = place(value);
    values_[v][t] = k_.value(value).kind == Kind::u64 ? bits : bits & 0xffffffff;
    known_[v][t] = 1;
  }
  Kind kind(const Instruction& i, int k) const { return k_.value(k_.operand(i, k)).kind; }
  size_t block(size_t t) const { return t / static_cast<size_t>(l_.threads); }
  size_t thread(size_t t) const { return t % static_cast<size_t>(l_.threads); }  // of its block

  // All threads read before any writes: a result may live where an operand does.
  void step(const Instruction& i, const Mask& mask) {
    if (i.op == Op::load || i.op == Op::load_when || i.op == Op::load_shared ||
        i.op == Op::load_shared_when || i.op == Op::store || i.op == Op::store_shared)
      return memory(i, mask);
    std::vector<uint64_t> out(threads_);
    for (size_t t = 0; t < threads_; ++t)
      if (mask[t]) out[t] = one(i, t);
    for (size_t t = 0; t < threads_ && i.results > 0; ++t)
      if (mask[t]) put(i.result, t, out[t]);
  }

  uint64_t one(const Instruction& i, size_t t) {
    if (i.op == Op::write) {
      put(k_.operand(i, 0), t, in(i, 1, t));
      return 0;
    }
    if (i.op >= Op::dynamic_shared) return extension(i, t);
    if (i.results == 0) return 0;  // barriers
    if (i.op == Op::param || i.op == Op::param_at || i.op == Op::pointer || i.op == Op::pointer_at)
      return parameter(i, t);
    if (k_.value(i.result).kind == Kind::f32) return bits_of(of_float(i, t));
    return of_bits(i, t);
  }

  uint64_t parameter(const Instruction& i, size_t t) const {
    const bool indexed = i.op == Op::param_at || i.op == Op::pointer_at;
    const char* from = parameters_ + i.number + (indexed ? in(i, 0, t) : 0);
    uint64_t v = 0;
    std::memcpy(&v, from, k_.value(i.result).kind == Kind::u64 ? 8 : 4);
    return v;
  }

  // ---- memory
  char* at(const Instruction& i, size_t t, int64_t offset, int64_t bytes) {
    const uint64_t address = in(i, 0, t);
    const uint64_t past = (address + static_cast<uint64_t>(offset)) % static_cast<uint64_t>(bytes);
    require(past == 0, "interpreter: a thread's access must lie at a multiple of its size (", bytes,
            " bytes, ", past, " past one)");
    if (i.op == Op::load || i.op == Op::load_when || i.op == Op::store)
      return reinterpret_cast<char*>(address) + offset;
    return shared(block(t), static_cast<int64_t>(address) + offset, bytes);
  }
  char* shared(size_t block, int64_t offset, int64_t bytes) {
    std::vector<char>& m = shared_[block];
    require(offset >= 0 && offset + bytes <= static_cast<int64_t>(m.size()),
            "interpreter: a thread reaches beyond its block's memory (byte ", offset, " of ",
            m.size(), ")");
    return m.data() + offset;
  }
  void memory(const Instruction& i, const Mask& mask) {
    const bool when = i.op == Op::load_when || i.op == Op::load_shared_when;
    const bool store = i.op == Op::store || i.op == Op::store_shared;
    const int units = store ? i.operands - 1 : i.results;
    for (size_t t = 0; t < threads_; ++t) {
      if (!mask[t]) continue;
      constexpr uint64_t unspecified = 0x7fc0dead;  // NaN
      if (when && in(i, 1, t) == 0) {
        for (int u = 0; u < units; ++u) put(i.result + u, t, unspecified);
        continue;
      }
      uint64_t v[4] = {};
      char* const from = at(i, t, i.number, int64_t{units} * i.detail);
      for (int u = 0; u < units; ++u) {
        char* const unit = from + u * i.detail;
        if (store) {
          v[u] = in(i, u + 1, t);
          std::memcpy(unit, &v[u], i.detail);
        } else {
          std::memcpy(&v[u], unit, i.detail);
        }
      }
      for (int u = 0; !store && u < units; ++u) put(i.result + u, t, v[u]);
    }
  }

  // ---- extensions: copies and remote stores are done at once
  uint64_t extension(const Instruction& i, size_t t) {
    constexpr int block_shift = 24;  // of a remote address
    switch (i.op) {
      case Op::dynamic_shared: return static_cast<uint64_t>(dynamic_) + in(i, 0, t);
      case Op::copy_async: {
        const int64_t offset = i.number & 0xffffffff, bytes = i.number >> 32;
        std::memcpy(shared(block(t), static_cast<int64_t>(in(i, 0, t)) + offset, bytes),
                    reinterpret_cast<const char*>(in(i, 1, t)) + offset,
                    static_cast<size_t>(bytes));
        return 0;
      }
      case Op::cluster_rank: return block(t);
      case Op::transaction_done: return 1;
      case Op::remote_address: return in(i, 0, t) | in(i, 1, t) << block_shift;
      case Op::remote_store: {
        const uint64_t to = in(i, 0, t);
        const float v = x(i, 1, t);
        std::memcpy(shared(to >> block_shift, to & ((1 << block_shift) - 1), 4), &v, 4);
        return 0;
      }
      default: return 0;
    }
  }

  // ---- arithmetic
  float off(float v) const {
    const int by = l_.arithmetic.approximate;
    for (int n = 0; n < std::abs(by); ++n)
      if (v != 0 && std::isfinite(v) && v != 1)
        v = std::nextafter(v, by > 0 ? INFINITY : -INFINITY);
    return v;
  }
  float other_lane(const Instruction& i, size_t t) const {
    const auto lanes = static_cast<size_t>(k_.subgroup);
    const auto n = static_cast<size_t>(i.number);
    const size_t lane = thread(t) % lanes;
    const size_t from = i.op == Op::shuffle_xor ? lane ^ n : lane + n < lanes ? lane + n : lane;
    return x(i, 0, t - lane + from);
  }

  float of_float(const Instruction& i, size_t t) const {
    const float a = x_or_zero(i, 0, t), b = x_or_zero(i, 1, t);
    switch (i.op) {
      case Op::add: return rounded(a + b);
      case Op::sub: return rounded(a - b);
      case Op::mul: return rounded(a * b);
      case Op::fma: {
        const float c = x(i, 2, t);
        return l_.arithmetic.fused ? std::fma(a, b, c) : rounded(rounded(a * b) + c);
      }
      case Op::min: return std::fmin(a, b);
      case Op::max: return std::fmax(a, b);
      case Op::min_nan: return b < a ? b : a;
      case Op::max_nan: return b > a ? b : a;
      case Op::neg: return -a;
      case Op::abs: return std::abs(a);
      case Op::copysign: return std::copysign(a, b);
      case Op::floor: return std::floor(a);
      case Op::less: return a < b ? 1.0f : 0.0f;
      case Op::div: return off(a / b);
      case Op::rcp: return off(1 / a);
      case Op::sqrt: return off(std::sqrt(a));
      case Op::rsqrt: return off(static_cast<float>(1 / std::sqrt(double{a})));
      case Op::exp2: {
        const bool beyond = a <= -30 || a > 16;
        return off(static_cast<float>(std::exp2(double{a}))) *
               (beyond ? 1 + l_.arithmetic.exp2_beyond : 1);
      }
      case Op::select: return x(i, in(i, 0, t) != 0 ? 1 : 2, t);
      case Op::to_float: return converted(kind(i, 0), in(i, 0, t));
      case Op::unpack: return unpacked(static_cast<DType>(i.detail), in(i, 0, t), i.number & 255);
      case Op::shuffle_xor:
      case Op::shuffle_down: return other_lane(i, t);
      case Op::read:
      case Op::bitcast: return a;
      default: fail("interpreter: unknown instruction (", info_of(i.op).name, ")");
    }
  }
  // Of operands that a select may not need, 0.
  float x_or_zero(const Instruction& i, int k, size_t t) const {
    return k < i.operands && i.op != Op::select ? x(i, k, t) : 0.0f;
  }
  static float converted(Kind kind, uint64_t v) {
    if (kind == Kind::u64) return static_cast<float>(static_cast<int64_t>(v));
    return kind == Kind::i32 ? static_cast<float>(i32(v))
                             : static_cast<float>(static_cast<uint32_t>(v));
  }

  uint64_t of_bits(const Instruction& i, size_t t) const {
    if (i.op == Op::select) return in(i, in(i, 0, t) != 0 ? 1 : 2, t);
    const uint64_t a = i.operands > 0 ? in(i, 0, t) : 0, b = i.operands > 1 ? in(i, 1, t) : 0;
    const bool is_signed = i.operands > 0 && kind(i, 0) == Kind::i32;
    switch (i.op) {
      case Op::block_index: return static_cast<uint64_t>(first_block_) + block(t);
      case Op::thread_index: return thread(t);
      case Op::lane: return thread(t) % static_cast<size_t>(i.number);
      case Op::subgroup_index: return thread(t) / static_cast<size_t>(i.number);
      case Op::add:
      case Op::shared_move: return a + b;
      case Op::sub: return a - b;
      case Op::mul:
      case Op::mul_wide: return a * b;
      case Op::mul_hi: return a * b >> 32;
      case Op::mul_add:
      case Op::mul_wide_add: return a * b + in(i, 2, t);
      case Op::shl: return a << b;
      case Op::shr: return is_signed ? static_cast<uint32_t>(i32(a) >> b) : a >> b;
      case Op::bit_and:
      case Op::both: return a & b;
      case Op::bit_or: return a | b;
      case Op::bit_xor: return a ^ b;
      case Op::min: return is_signed ? (i32(a) < i32(b) ? a : b) : std::min(a, b);
      case Op::max: return is_signed ? (i32(a) > i32(b) ? a : b) : std::max(a, b);
      case Op::invert: return a == 0 ? 1 : 0;
      case Op::compare: return compared(i, t) ? 1 : 0;
      case Op::pack: {
        const auto dtype = static_cast<DType>(i.detail);
        const uint64_t low = packed(dtype, f(a));
        return i.operands == 2 ? low | packed(dtype, f(b)) << 16 : low;
      }
      case Op::shared_address:
        return static_cast<uint64_t>(arrays_[static_cast<size_t>(i.number)]) + a * i.detail;
      default: return a;  // copies
    }
  }
  template <class T>
  static bool holds(codegen::Compare how, T a, T b) {
    switch (how) {
      case codegen::Compare::lt: return a < b;
      case codegen::Compare::le: return a <= b;
      case codegen::Compare::gt: return a > b;
      case codegen::Compare::ge: return a >= b;
      case codegen::Compare::eq: return a == b;
      default: return a != b;
    }
  }
  bool compared(const Instruction& i, size_t t) const {
    const auto how = static_cast<codegen::Compare>(i.detail);
    const uint64_t a = in(i, 0, t), b = in(i, 1, t);
    if (kind(i, 0) == Kind::f32) return holds(how, f(a), f(b));
    return kind(i, 0) == Kind::i32 ? holds(how, i32(a), i32(b)) : holds(how, a, b);
  }

  const Kernel& k_;
  codegen::Regions regions_;
  const char* parameters_;
  HostLaunch l_;
  int first_block_;
  size_t threads_;
  std::vector<int64_t> arrays_;  // bytes from the start of a block's memory
  int64_t dynamic_ = 0;
  std::vector<std::vector<char>> shared_;      // by block
  std::vector<std::vector<uint64_t>> values_;  // by value, by thread
  std::vector<Mask> known_;
};

}  // namespace

void interpret(const Kernel& kernel, const void* parameters, const HostLaunch& launch) {
  for (int block = 0; block < launch.blocks; block += launch.cluster)
    Cluster(kernel, parameters, launch, block).run();
}

}  // namespace ebb::testing
