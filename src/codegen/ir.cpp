#include "codegen/ir.h"

#include "base/error.h"

namespace ebb::codegen {
namespace {

constexpr OpInfo table[] = {
    {Op::param, "param", "*"},
    {Op::pointer, "pointer", "l"},
    {Op::param_at, "param_at", "*u"},
    {Op::pointer_at, "pointer_at", "lu"},
    {Op::block_index, "block_index", "u"},
    {Op::thread_index, "thread_index", "u"},
    {Op::lane, "lane", "u"},
    {Op::subgroup_index, "subgroup_index", "u"},
    {Op::add, "add", "aaa"},
    {Op::sub, "sub", "aaa"},
    {Op::mul, "mul", "aaa"},
    {Op::mul_hi, "mul_hi", "uuu"},
    {Op::mul_wide, "mul_wide", "luu"},
    {Op::mul_add, "mul_add", "uuuu"},
    {Op::mul_wide_add, "mul_wide_add", "luul"},
    {Op::shl, "shl", "aau"},
    {Op::shr, "shr", "aau"},
    {Op::bit_and, "and", "aaa"},
    {Op::bit_or, "or", "aaa"},
    {Op::bit_xor, "xor", "aaa"},
    {Op::min, "min", "aaa"},
    {Op::max, "max", "aaa"},
    {Op::widen, "widen", "lu"},
    {Op::low, "low", "ul"},
    {Op::compare, "compare", "paa"},
    {Op::both, "both", "ppp"},
    {Op::invert, "invert", "pp"},
    {Op::select, "select", "apaa"},
    {Op::fma, "fma", "ffff"},
    {Op::neg, "neg", "ff"},
    {Op::abs, "abs", "ff"},
    {Op::copysign, "copysign", "fff"},
    {Op::floor, "floor", "ff"},
    {Op::min_nan, "min_nan", "fff"},
    {Op::max_nan, "max_nan", "fff"},
    {Op::less, "less", "fff"},
    {Op::div, "div", "fff"},
    {Op::rcp, "rcp", "ff"},
    {Op::sqrt, "sqrt", "ff"},
    {Op::rsqrt, "rsqrt", "ff"},
    {Op::exp2, "exp2", "ff"},
    {Op::bitcast, "bitcast", "*n"},
    {Op::to_float, "to_float", "fn"},
    {Op::unpack, "unpack", "fn"},
    {Op::pack, "pack", "**"},
    {Op::load, "load", "*l"},
    {Op::load_when, "load_when", "*lp"},
    {Op::store, "store", "_l*"},
    {Op::shared_address, "shared_address", "uu"},
    {Op::shared_move, "shared_move", "uuu"},
    {Op::load_shared, "load_shared", "*u"},
    {Op::load_shared_when, "load_shared_when", "*up"},
    {Op::store_shared, "store_shared", "_u*"},
    {Op::barrier, "barrier", "_"},
    {Op::subgroup_barrier, "subgroup_barrier", "_"},
    {Op::shuffle_xor, "shuffle_xor", "ff"},
    {Op::shuffle_down, "shuffle_down", "ff"},
    {Op::read, "read", "aa"},
    {Op::write, "write", "_aa"},
    {Op::when, "when", "_p"},
    {Op::otherwise, "otherwise", "_"},
    {Op::end_when, "end_when", "_"},
    {Op::loop, "loop", "_"},
    {Op::break_unless, "break_unless", "_p"},
    {Op::end_loop, "end_loop", "_"},
    {Op::dynamic_shared, "dynamic_shared", "uu", Feature::dynamic_shared},
    {Op::copy_async, "copy_async", "_ul", Feature::async_copy},
    {Op::copy_commit, "copy_commit", "_", Feature::async_copy},
    {Op::copy_wait, "copy_wait", "_", Feature::async_copy},
    {Op::cluster_rank, "cluster_rank", "u", Feature::cluster},
    {Op::cluster_arrive, "cluster_arrive", "_", Feature::cluster},
    {Op::cluster_wait, "cluster_wait", "_", Feature::cluster},
    {Op::transaction_init, "transaction_init", "_uu", Feature::cluster},
    {Op::transaction_fence, "transaction_fence", "_", Feature::cluster},
    {Op::transaction_done, "transaction_done", "pu", Feature::cluster},
    {Op::remote_address, "remote_address", "uuu", Feature::cluster},
    {Op::remote_store, "remote_store", "_ufu", Feature::cluster},
};

constexpr bool in_order() {
  for (size_t i = 0; i < std::size(table); ++i)
    if (table[i].op != static_cast<Op>(i)) return false;
  return std::size(table) == static_cast<size_t>(Op::remote_store) + 1;
}
static_assert(in_order(), "the table has every op, in the order of the enum");

bool same_for_all(Op op) {
  return op != Op::thread_index && op != Op::lane && op != Op::subgroup_index && op != Op::load &&
         op != Op::load_when && op != Op::load_shared && op != Op::load_shared_when &&
         op != Op::shuffle_xor && op != Op::shuffle_down && op != Op::transaction_done;
}

}  // namespace

const OpInfo& info_of(Op op) { return table[static_cast<size_t>(op)]; }

Regions::Regions(const Kernel& kernel) {
  const size_t n = kernel.code.size();
  end.assign(n, -1);
  other.assign(n, -1);
  loop_of.assign(n, -1);
  std::vector<int32_t> open, loops;
  for (size_t k = 0; k < n; ++k) {
    const auto at = static_cast<int32_t>(k);
    const Op op = kernel.code[k].op;
    const auto opened_by = [&](Op by) {
      return !open.empty() && kernel.code[static_cast<size_t>(open.back())].op == by;
    };
    if (op == Op::end_loop) {
      require(opened_by(Op::loop), "codegen: a loop ends that has not begun  ", kernel.name);
      end[static_cast<size_t>(open.back())] = at;
      open.pop_back();
      loops.pop_back();
    }
    loop_of[k] = loops.empty() ? -1 : loops.back();
    if (op == Op::when || op == Op::loop) open.push_back(at);
    if (op == Op::loop) loops.push_back(at);
    if (op == Op::otherwise || op == Op::end_when) {
      require(opened_by(Op::when), "codegen: a `when` ends that has not begun  ", kernel.name);
      const auto from = static_cast<size_t>(open.back());
      if (op == Op::otherwise) {
        other[from] = at;
        continue;
      }
      end[from] = at;
      if (other[from] >= 0) end[static_cast<size_t>(other[from])] = at;
      open.pop_back();
    }
  }
  require(open.empty(), "codegen: a region has no end  ", kernel.name);
}

std::vector<bool> uniform_values(const Kernel& kernel) {
  std::vector<bool> uniform(kernel.values.size(), true);
  const auto all = [&](const Instruction& i, int first) {
    for (int k = first; k < i.operands; ++k)
      if (!uniform[static_cast<size_t>(kernel.operand(i, k))]) return false;
    return true;
  };
  // Variables count as uniform until something says otherwise, so values only ever lose it.
  for (bool changed = true; changed;) {
    changed = false;
    const auto clear = [&](int32_t value) {
      changed = changed || uniform[static_cast<size_t>(value)];
      uniform[static_cast<size_t>(value)] = false;
    };
    std::vector<bool> divergent = {false};  // by open region: whether only some threads are here
    for (size_t k = 0; k < kernel.code.size(); ++k) {
      const Instruction& i = kernel.code[k];
      if (i.op == Op::when) divergent.push_back(divergent.back() || !all(i, 0));
      if (i.op == Op::loop) {
        bool some = divergent.back();
        int depth = 0;
        for (size_t j = k + 1; depth >= 0; ++j) {
          const Op inner = kernel.code[j].op;
          if (depth == 0 && inner == Op::break_unless) some = some || !all(kernel.code[j], 0);
          depth += inner == Op::loop ? 1 : inner == Op::end_loop ? -1 : 0;
        }
        divergent.push_back(some);
      }
      if (i.op == Op::end_when || i.op == Op::end_loop) divergent.pop_back();
      if (i.op == Op::write && (divergent.back() || !all(i, 1))) clear(kernel.operand(i, 0));
      for (int32_t r = 0; r < i.results; ++r)
        if (!same_for_all(i.op) || !all(i, 0)) clear(i.result + r);
    }
  }
  return uniform;
}

}  // namespace ebb::codegen
