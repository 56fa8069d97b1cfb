// Ptx: builds the text of one generated kernel, as an assembler would: registers, instructions,
// vectors in memory. The driver compiles it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "core/dtype.h"

namespace ebb::cuda {

enum class RegKind : uint8_t { f32, b32, b64, b16, f64, predicate };
inline constexpr int reg_kinds = 6;

struct Reg {
  RegKind kind = RegKind::f32;
  int32_t id = -1;  // -1: none
  explicit operator bool() const { return id >= 0; }
};
void append_to(std::string& text, const Reg& r);  // %f7
std::ostream& operator<<(std::ostream& out, const Reg& r);

// An argument of a float instruction: a register, or a number written into the instruction.
struct Operand {
  Operand(Reg r) : reg(r) {}         // NOLINT: registers read as operands in code
  Operand(float v) : constant(v) {}  // NOLINT: and so do numbers
  Reg reg;
  float constant = 0;
  bool is_constant() const { return !reg; }
};
void append_to(std::string& text, const Operand& v);  // %f7 or 0f3F800000
std::ostream& operator<<(std::ostream& out, const Operand& v);

// `count` neighbours in memory as they were loaded, packed in registers.
struct Packed {
  DType dtype = DType::f32;
  int count = 0;
  std::vector<Reg> words;
};

// Where a vector lies: [base + offset], touched where `when` holds (or always).
struct Address {
  Reg base;
  int64_t offset = 0;  // bytes
  Reg when = {};
  bool shared = false;  // in the block's memory; else in the device's
};

class Ptx {
 public:
  explicit Ptx(int capability) : capability_(capability) {}

  int capability() const { return capability_; }
  Reg reg(RegKind kind) { return {kind, used_[static_cast<size_t>(kind)]++}; }

  // One instruction from its parts.
  template <class... Parts>
  void line(const Parts&... parts) {
    body_ += "  ";
    (append(body_, parts), ...);
    body_ += ";\n";
    ++instructions_;
  }
  // `op` with a new register as its destination.
  template <class... Parts>
  Reg make(RegKind kind, std::string_view op, const Parts&... arguments) {
    const Reg d = reg(kind);
    body_ += "  ";
    append(body_, op);
    body_ += ' ';
    append(body_, d);
    ((body_ += ", ", append(body_, arguments)), ...);
    body_ += ";\n";
    ++instructions_;
    return d;
  }
  template <class... Parts>
  Reg f32(std::string_view op, const Parts&... arguments) {
    return make(RegKind::f32, op, arguments...);
  }
  template <class... Parts>
  Reg b32(std::string_view op, const Parts&... arguments) {
    return make(RegKind::b32, op, arguments...);
  }
  template <class... Parts>
  Reg b64(std::string_view op, const Parts&... arguments) {
    return make(RegKind::b64, op, arguments...);
  }
  template <class... Parts>
  Reg test(std::string_view op, const Parts&... arguments) {
    return make(RegKind::predicate, op, arguments...);
  }

  std::string new_label() { return joined("L", labels_++); }
  void bind(const std::string& label) { body_ += label + ":\n"; }
  int instructions() const { return instructions_; }

  // A field of the kernel's parameter struct, `offset` bytes from its start.
  Reg parameter(RegKind kind, int64_t offset);
  Reg pointer_parameter(int64_t offset);  // as a global address

  // In a register, whatever it was.
  Reg in_register(const Operand& v);

  // Vectors are aligned to their size or, above 16 bytes, to 16.
  Packed load(DType dtype, int count, const Address& at);
  void reload(const Packed& p, const Address& at);  // into the same registers
  Operand element(const Packed& p, int index);      // as f32
  void store(DType dtype, std::span<const Operand> values, const Address& at);

  // The kernel: one parameter struct of `parameter_bytes`, blocks of `threads`.
  struct Entry {
    std::string_view name;
    int64_t parameter_bytes = 0;
    int threads = 256;
    int ctas_per_sm = 0;          // at least, by registers; 0: no bound
    int64_t shared_floats = 0;    // `shared`, f32
    bool dynamic_shared = false;  // `dynamic`: as many bytes as the launch gives
  };
  std::string text(const Entry& entry) const;

 private:
  std::string when(const Address& at) const;
  Reg widen(const Packed& p, int index);
  Reg narrowed(DType dtype, const Operand& v);  // for a store of one element

  int capability_;
  int used_[reg_kinds] = {};
  int labels_ = 0, instructions_ = 0;
  std::string body_;
};

// Offsets of a parameter struct's fields, and the struct itself on the host.
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

 private:
  std::vector<char> bytes_;
};

// Division of numbers below 2^31 by a number that only the host knows: (2 n * multiplier) / 2^32 >>
// shift.
struct Reciprocal {
  uint32_t multiplier = 0, shift = 0;
  explicit Reciprocal(int64_t d);
};
// n / d with the Reciprocal's two fields in registers.
Reg quotient(Ptx& p, Reg n, Reg multiplier, Reg shift);

}  // namespace ebb::cuda
