#include "backend/cuda/ptx/emit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "codegen/registers.h"

namespace ebb::cuda {
namespace {

using codegen::Instruction;
using codegen::Kernel;
using codegen::Kind;
using codegen::Op;

// Registers by what they hold; b16 are the emitter's own.
enum Bank : uint8_t { predicates, words, wides, floats, halves, banks };
constexpr std::string_view prefixes[banks] = {"%p", "%r", "%l", "%f", "%h"};
constexpr std::string_view bank_types[banks] = {".pred", ".b32", ".b64", ".f32", ".b16"};

Bank bank_of(Kind kind) {
  switch (kind) {
    case Kind::pred: return predicates;
    case Kind::u64: return wides;
    case Kind::f32: return floats;
    default: return words;
  }
}
// Types of instructions: arithmetic, and bits.
std::string_view type(Kind kind) {
  constexpr std::string_view names[] = {".pred", ".u32", ".s32", ".u64", ".f32"};
  return names[static_cast<size_t>(kind)];
}
std::string_view bits(Kind kind) { return bank_types[bank_of(kind)]; }

std::string hex(uint64_t v) {
  std::string s(8, '0');
  for (size_t i = 8; i-- > 0; v >>= 4) s[i] = "0123456789ABCDEF"[v & 15];
  return s;
}

std::string_view vector_suffix(int n) { return n == 4 ? ".v4" : n == 2 ? ".v2" : ""; }

// Instructions that differ in their name and types alone.
struct Plain {
  Op op;
  std::string_view name;
  bool typed = false;  // its type follows, that of bits for `bits`
  bool of_bits = false;
};
constexpr Plain plain[] = {
    {Op::mul_hi, "mul.hi.u32"},
    {Op::mul_wide, "mul.wide.u32"},
    {Op::mul_add, "mad.lo.u32"},
    {Op::mul_wide_add, "mad.wide.u32"},
    {Op::shl, "shl", true, true},
    {Op::shr, "shr", true},
    {Op::bit_and, "and", true, true},
    {Op::bit_or, "or", true, true},
    {Op::bit_xor, "xor", true, true},
    {Op::min, "min", true},
    {Op::max, "max", true},
    {Op::widen, "cvt.u64.u32"},
    {Op::low, "cvt.u32.u64"},
    {Op::both, "and.pred"},
    {Op::invert, "not.pred"},
    {Op::fma, "fma.rn.f32"},
    {Op::neg, "neg.f32"},
    {Op::abs, "abs.f32"},
    {Op::floor, "cvt.rmi.f32.f32"},
    {Op::less, "set.lt.f32.f32"},
    {Op::div, "div.full.f32"},
    {Op::rcp, "rcp.approx.ftz.f32"},
    {Op::sqrt, "sqrt.approx.f32"},
    {Op::rsqrt, "rsqrt.approx.f32"},
    {Op::exp2, "ex2.approx.ftz.f32"},
    {Op::shared_move, "add.u32"},
    {Op::remote_address, "mapa.shared::cluster.u32"},
    {Op::read, "mov", true, true},
};

class Emitter {
 public:
  Emitter(const Kernel& kernel, int capability)
      : k_(kernel),
        capability_(capability),
        regions_(kernel),
        shared_(kernel),
        uniform_(codegen::uniform_values(kernel)),
        names_(kernel.values.size()) {}

  std::string run() {
    for (size_t v = 0; v < names_.size(); ++v)
      if (k_.values[v].of == codegen::Value::Class::variable) names_[v] = fresh(k_.values[v].kind);
    for (at_ = 0; at_ < k_.code.size(); ++at_)
      if (!shared_.vanishes[at_]) emit(k_.code[at_]);
    return whole();
  }

 private:
  // ---- names
  std::string fresh(Bank bank) { return joined(prefixes[bank], used_[bank]++); }
  std::string fresh(Kind kind) { return fresh(bank_of(kind)); }
  const std::string& name(int32_t value) {
    value = shared_.same_as[static_cast<size_t>(value)];
    std::string& n = names_[static_cast<size_t>(value)];
    if (!n.empty()) return n;
    const codegen::Value& v = k_.value(value);
    if (!v.constant())
      n = fresh(v.kind);
    else if (v.kind == Kind::f32)
      n = "0f" + hex(v.bits);
    else if (v.kind == Kind::i32)
      n = joined(static_cast<int32_t>(v.bits));
    else
      n = joined(v.bits);
    return n;
  }
  const std::string& in(const Instruction& i, int k) { return name(k_.operand(i, k)); }
  const std::string& out(const Instruction& i) { return name(i.result); }
  Kind kind_in(const Instruction& i, int k) const { return k_.value(k_.operand(i, k)).kind; }
  Kind kind_out(const Instruction& i) const { return k_.value(i.result).kind; }
  // An operand that must not be a number written into the instruction.
  std::string reg(const Instruction& i, int k) {
    const codegen::Value& v = k_.value(k_.operand(i, k));
    if (!v.constant()) return in(i, k);
    std::string r = fresh(v.kind);
    line("mov", bits(v.kind), " ", r, ", ", in(i, k));
    return r;
  }

  // ---- text
  template <class... Parts>
  void line(const Parts&... parts) {
    body_ += "  ";
    body_ += guard_;
    (append(body_, parts), ...);
    body_ += ";\n";
  }
  void label(size_t at) { body_ += joined("L", at, ":\n"); }
  void with_operands(std::string_view instruction, const Instruction& i) {
    std::string text(instruction);
    text += ' ';
    if (i.results > 0) text += out(i);
    for (int k = 0; k < i.operands; ++k) {
      if (k > 0 || i.results > 0) text += ", ";
      text += in(i, k);
    }
    line(text);
  }

  void emit(const Instruction& i) {
    for (const Plain& p : plain)
      if (p.op == i.op) {
        const Kind kind = kind_out(i);
        return with_operands(joined(p.name, !p.typed    ? ""
                                            : p.of_bits ? bits(kind)
                                                        : type(kind)),
                             i);
      }
    if (i.op <= Op::subgroup_index) return input(i);
    if (i.op <= Op::to_float) return arithmetic(i);
    if (i.op == Op::unpack) return unpack(i);
    if (i.op == Op::pack) return pack(i);
    if (i.op <= Op::store_shared) return memory(i);
    if (i.op <= Op::shuffle_down) return synchronisation(i);
    if (i.op <= Op::end_loop) return control(i);
    extension(i);
  }

  void input(const Instruction& i) {
    const std::string_view d = bits(kind_out(i));
    switch (i.op) {
      case Op::param: return line("ld.param", d, " ", out(i), ", [params+", i.number, "]");
      case Op::pointer: {
        const std::string generic = fresh(wides);
        line("ld.param.b64 ", generic, ", [params+", i.number, "]");
        return line("cvta.to.global.u64 ", out(i), ", ", generic);
      }
      case Op::param_at:
      case Op::pointer_at: {
        const std::string table = fresh(wides), at = fresh(wides);
        line("mov.u64 ", table, ", params");
        line("mad.wide.u32 ", at, ", ", reg(i, 0), ", 1, ", table);
        line("ld.param", d, " ", out(i), ", [", at, "+", i.number, "]");
        if (i.op == Op::pointer_at) line("cvta.to.global.u64 ", out(i), ", ", out(i));
        return;
      }
      case Op::block_index: return line("mov.u32 ", out(i), ", %ctaid.x");
      case Op::thread_index:
        line("mov.u32 ", out(i), ", %tid.x");
        // seen everywhere, and in a register that no variable shares
        if (regions_open_ == 0 && shared_.same_as[static_cast<size_t>(i.result)] == i.result)
          thread_ = out(i);
        return;
      default: return part(i);  // lane, subgroup_index
    }
  }

  // Blocks are one-dimensional, so that lanes are the low bits of the thread's number.
  void part(const Instruction& i) {
    std::string thread = thread_;
    if (thread.empty()) {
      thread = fresh(words);
      line("mov.u32 ", thread, ", %tid.x");
    }
    if (i.op == Op::lane) return line("and.b32 ", out(i), ", ", thread, ", ", i.number - 1);
    line("shr.u32 ", out(i), ", ", thread, ", ", std::countr_zero(static_cast<uint64_t>(i.number)));
  }

  // ---- arithmetic
  void arithmetic(const Instruction& i) {
    switch (i.op) {
      case Op::add:
      case Op::sub:
      case Op::mul: {
        const bool is_float = kind_out(i) == Kind::f32;
        const bool exact = is_float && i.detail == 0;
        const std::string_view low = i.op == Op::mul && !is_float ? ".lo" : "";
        return with_operands(joined(info_of(i.op).name, low, exact ? ".rn" : "", type(kind_out(i))),
                             i);
      }
      case Op::compare: return compare(i);
      case Op::select:
        return line("selp", bits(kind_out(i)), " ", out(i), ", ", in(i, 1), ", ", in(i, 2), ", ",
                    in(i, 0));
      case Op::copysign: return line("copysign.f32 ", out(i), ", ", in(i, 1), ", ", in(i, 0));
      case Op::min_nan:
      case Op::max_nan: return extreme(i, i.op == Op::min_nan ? "min" : "max");
      case Op::to_float: {
        const Kind from = kind_in(i, 0);
        return line("cvt.rn.f32", from == Kind::u64 ? ".s64" : type(from), " ", out(i), ", ",
                    reg(i, 0));
      }
      default: return line("mov.b32 ", out(i), ", ", reg(i, 0));  // bitcast
    }
  }

  void compare(const Instruction& i) {
    constexpr std::string_view names[] = {"lt", "le", "gt", "ge", "eq", "ne"};
    const auto how = static_cast<codegen::Compare>(i.detail);
    const Kind kind = kind_in(i, 0);
    const bool unordered = kind == Kind::f32 && how == codegen::Compare::ne;
    with_operands(joined("setp.", names[i.detail], unordered ? "u" : "", type(kind)), i);
  }

  // The smaller or larger number; NaN if one is.
  void extreme(const Instruction& i, std::string_view which) {
    if (capability_ >= 80) return with_operands(joined(which, ".NaN.f32"), i);
    const std::string better = fresh(predicates);
    line("setp.", which == "min" ? "lt" : "gt", ".f32 ", better, ", ", in(i, 1), ", ", in(i, 0));
    line("selp.f32 ", out(i), ", ", in(i, 1), ", ", in(i, 0), ", ", better);
  }

  // ---- numbers in words
  void unpack(const Instruction& i) {
    const int64_t which = i.number & 255;
    const bool whole = i.number >> 8 != 0;
    const std::string from = reg(i, 0);
    switch (static_cast<DType>(i.detail)) {
      case DType::bf16: {
        const std::string shifted = fresh(words);
        if (which == 0)
          line("shl.b32 ", shifted, ", ", from, ", 16");
        else
          line("and.b32 ", shifted, ", ", from, ", 0xffff0000");
        return line("mov.b32 ", out(i), ", ", shifted);
      }
      case DType::f16: {
        const std::string low = fresh(halves), high = fresh(halves);
        line("mov.b32 {", low, ", ", high, "}, ", from);
        return line("cvt.f32.f16 ", out(i), ", ", which == 0 ? low : high);
      }
      case DType::u8: {
        std::string byte = from;
        if (!whole) {
          byte = fresh(words);
          line("bfe.u32 ", byte, ", ", from, ", ", 8 * which, ", 8");
        }
        return line("cvt.rn.f32.u32 ", out(i), ", ", byte);
      }
      case DType::i64: return line("cvt.rn.f32.s64 ", out(i), ", ", from);
      default: return line("cvt.rn.f32.s32 ", out(i), ", ", from);
    }
  }

  void pack(const Instruction& i) {
    const auto dtype = static_cast<DType>(i.detail);
    const std::string_view half = dtype == DType::bf16 ? "bf16" : "f16";
    switch (dtype) {
      case DType::i32: return line("cvt.rzi.s32.f32 ", out(i), ", ", reg(i, 0));
      case DType::i64: return line("cvt.rzi.s64.f32 ", out(i), ", ", reg(i, 0));
      case DType::u8: return line("cvt.rzi.u32.f32 ", out(i), ", ", reg(i, 0));
      default: break;
    }
    if (i.operands == 2 && capability_ >= 80) {
      const std::string high = reg(i, 1), low = reg(i, 0);
      return line("cvt.rn.", half, "x2.f32 ", out(i), ", ", high, ", ", low);
    }
    std::array<std::string, 2> parts;
    for (int k = 0; k < i.operands; ++k) {
      std::string& h = parts[static_cast<size_t>(k)];
      h = fresh(halves);
      if (dtype == DType::bf16 && capability_ < 80)
        line("cvt.u16.u32 ", h, ", ", rounded_to_bf16(reg(i, k)));
      else
        line("cvt.rn.", half, ".f32 ", h, ", ", reg(i, k));
    }
    line("mov.b32 ", out(i), ", {", parts[0], ", ", i.operands == 2 ? parts[1] : parts[0], "}");
  }

  // To nearest even; NaN stays NaN.
  std::string rounded_to_bf16(const std::string& x) {
    const std::string odd = fresh(words), sum = fresh(words), nan = fresh(predicates);
    line("mov.b32 ", sum, ", ", x);
    line("bfe.u32 ", odd, ", ", sum, ", 16, 1");
    line("add.u32 ", sum, ", ", sum, ", ", odd);
    line("add.u32 ", sum, ", ", sum, ", 0x7fff");
    line("setp.nan.f32 ", nan, ", ", x, ", ", x);
    line("selp.b32 ", sum, ", 0x7fff0000, ", sum, ", ", nan);
    line("shr.u32 ", sum, ", ", sum, ", 16");
    return sum;
  }

  // ---- memory
  static std::string_view unit_type(int unit, Kind kind) {
    return unit == 1 ? ".u8" : unit == 2 ? ".u16" : bits(kind);
  }
  void memory(const Instruction& i) {
    const bool in_block = i.op >= Op::shared_address;
    const std::string_view space = in_block ? ".shared" : ".global";
    if (i.op == Op::shared_address) {
      const std::string array = fresh(words);
      line("mov.u32 ", array, ", shared", i.number);
      return line("mad.lo.u32 ", out(i), ", ", reg(i, 0), ", ", static_cast<int>(i.detail), ", ",
                  array);
    }
    if (i.op == Op::store || i.op == Op::store_shared) {
      std::string values;
      const int n = i.operands - 1;
      for (int k = 1; k <= n; ++k) values += joined(k > 1 ? ", " : "", reg(i, k));
      return line("st", space, vector_suffix(n), unit_type(i.detail, kind_in(i, 1)), " [", in(i, 0),
                  "+", i.number, "], ", n > 1 ? "{" + values + "}" : values);
    }
    std::string values;
    for (int32_t r = 0; r < i.results; ++r) values += joined(r > 0 ? ", " : "", name(i.result + r));
    const bool when = i.op == Op::load_when || i.op == Op::load_shared_when;
    line(when ? joined("@", in(i, 1), " ") : "", "ld", space, vector_suffix(i.results),
         unit_type(i.detail, kind_out(i)), " ", i.results > 1 ? "{" + values + "}" : values, ", [",
         in(i, 0), "+", i.number, "]");
  }

  void synchronisation(const Instruction& i) {
    switch (i.op) {
      case Op::barrier: return line("bar.sync 0");
      case Op::subgroup_barrier: return line("bar.warp.sync -1");
      default:
        return line("shfl.sync.", i.op == Op::shuffle_xor ? "bfly" : "down", ".b32 ", out(i), ", ",
                    reg(i, 0), ", ", i.number, ", 31, -1");
    }
  }

  // ---- variables and control flow

  // A short region is predicated instead of jumped over.
  bool is_short(size_t when) const {
    constexpr int most = 8;
    int n = 0;
    for (size_t k = when + 1; k < static_cast<size_t>(regions_.end[when]); ++k) {
      const Op op = k_.code[k].op;
      if ((op >= Op::barrier && op <= Op::shuffle_down) || (op > Op::write && op <= Op::end_loop) ||
          op == Op::load_when || op == Op::load_shared_when)
        return false;
      n += shared_.vanishes[k] ? 0 : 1;
    }
    return n <= most;
  }
  std::string_view jump(const Instruction& i) const {
    return uniform_[static_cast<size_t>(k_.operand(i, 0))] ? " bra.uni L" : " bra L";
  }

  void control(const Instruction& i) {
    if (i.op == Op::when || i.op == Op::loop) ++regions_open_;
    if (i.op == Op::end_when || i.op == Op::end_loop) --regions_open_;
    switch (i.op) {
      case Op::write: return line("mov", bits(kind_in(i, 0)), " ", in(i, 0), ", ", in(i, 1));
      case Op::when:
        if (is_short(at_)) {
          guard_ = joined("@", reg(i, 0), " ");
          guarded_ = regions_.end[at_];
          return;
        }
        return line("@!", reg(i, 0), jump(i),
                    regions_.other[at_] >= 0 ? regions_.other[at_] : regions_.end[at_]);
      case Op::otherwise: line("bra L", regions_.end[at_]); return label(at_);
      case Op::end_when:
        if (guarded_ == static_cast<int32_t>(at_)) return guard_.clear();
        return label(at_);
      case Op::loop: return label(at_);
      case Op::break_unless: {
        const int32_t loop = regions_.loop_of[at_];
        const bool last = k_.code[at_ + 1].op == Op::end_loop;
        return line(last ? "@" : "@!", in(i, 0), jump(i),
                    last ? loop : regions_.end[static_cast<size_t>(loop)]);
      }
      default:
        if (k_.code[at_ - 1].op != Op::break_unless) line("bra L", begin_of_loop());
        return label(at_);
    }
  }
  int32_t begin_of_loop() const {
    const auto it = std::find(regions_.end.begin(), regions_.end.end(), static_cast<int32_t>(at_));
    return static_cast<int32_t>(it - regions_.end.begin());
  }

  // ---- extensions
  void extension(const Instruction& i) {
    switch (i.op) {
      case Op::dynamic_shared: {
        const std::string memory = fresh(words);
        line("mov.u32 ", memory, ", dynamic");
        return line("add.u32 ", out(i), ", ", memory, ", ", in(i, 0));
      }
      case Op::copy_async: {
        const int64_t offset = i.number & 0xffffffff, bytes = i.number >> 32;
        return line("cp.async.", bytes == 16 ? "cg" : "ca", ".shared.global [", in(i, 0), "+",
                    offset, "], [", in(i, 1), "+", offset, "], ", bytes);
      }
      case Op::copy_commit: return line("cp.async.commit_group");
      case Op::copy_wait: return line("cp.async.wait_group 0");
      case Op::cluster_rank: return line("mov.u32 ", out(i), ", %cluster_ctarank");
      case Op::cluster_arrive: return line("barrier.cluster.arrive.relaxed.aligned");
      case Op::cluster_wait: return line("barrier.cluster.wait.acquire.aligned");
      case Op::transaction_init:
        line("mbarrier.init.shared.b64 [", in(i, 0), "], 1");
        return line("mbarrier.arrive.expect_tx.shared.b64 _, [", in(i, 0), "], ", in(i, 1));
      case Op::transaction_fence: return line("fence.mbarrier_init.release.cluster");
      case Op::transaction_done:
        return line("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ", out(i), ", [",
                    in(i, 0), "], 0");
      case Op::remote_store:
        return line("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [", in(i, 0),
                    "], ", reg(i, 1), ", [", in(i, 2), "]");
      default: fail("ptx: unknown instruction (", info_of(i.op).name, ")");
    }
  }

  // ---- the whole
  std::string whole() const {
    const int target = capability_ >= 90 ? 90 : capability_ >= 80 ? 80 : 75;
    std::string s = joined(".version 8.1\n.target sm_", target, "\n.address_size 64\n");
    if (k_.dynamic_shared) s += ".extern .shared .align 16 .b8 dynamic[];\n";
    s += joined(".visible .entry ", k_.name, "(.param .align 8 .b8 params[",
                std::max<int64_t>(k_.parameter_bytes, 8), "])\n.maxntid ", k_.threads, "\n");
    if (k_.blocks_per_processor > 0) s += joined(".minnctapersm ", k_.blocks_per_processor, "\n");
    s += "{\n";
    for (size_t b = 0; b < banks; ++b)
      if (used_[b] > 0)
        s += joined("  .reg ", bank_types[b], " ", prefixes[b], "<", used_[b], ">;\n");
    for (size_t a = 0; a < k_.shared_bytes.size(); ++a)
      s += joined("  .shared .align 16 .b8 shared", a, "[", k_.shared_bytes[a], "];\n");
    if (target >= 90) s += "  griddepcontrol.wait;\n";  // kernels start before the last one's end
    return s + body_ + "  ret;\n}\n";
  }

  const Kernel& k_;
  int capability_;
  codegen::Regions regions_;
  codegen::SharedRegisters shared_;
  std::vector<bool> uniform_;
  std::vector<std::string> names_;  // by value
  size_t at_ = 0;
  int used_[banks] = {};
  int32_t guarded_ = -1;  // the end of the region under guard_
  int regions_open_ = 0;
  std::string thread_;  // the register of the thread's number
  std::string guard_, body_;
};

}  // namespace

codegen::Target target_of(int capability) {
  return {.subgroup = 32,
          .dynamic_shared = true,
          .async_copy = capability >= 80,
          .cluster = capability >= 90};
}

std::string emit_ptx(const Kernel& kernel, int capability) {
  require(kernel.subgroup == 32, "ptx: a kernel for subgroups of ", kernel.subgroup, " threads  ",
          kernel.name);
  return Emitter(kernel, capability).run();
}

}  // namespace ebb::cuda
