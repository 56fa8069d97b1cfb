#include "backend/cpu/blocks.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "core/dtype.h"

namespace ebb::cpu {

// ---- tape ----------------------------------------------------------------------------------

Tape::Tape(const Expr& e)
    : input_slot(static_cast<size_t>(e.inputs()), -1),
      input_last(static_cast<size_t>(e.inputs()), -1) {
  const auto& code = e.code();
  std::vector<int32_t> last(code.size(), -1), slot(code.size(), -1), free;
  for (size_t i = 0; i < code.size(); ++i)
    for (const int32_t x : {code[i].a, code[i].b, code[i].c})
      if (x >= 0) last[static_cast<size_t>(x)] = static_cast<int32_t>(i);
  const auto never = static_cast<int32_t>(code.size());
  for (const int32_t r : e.results()) last[static_cast<size_t>(r)] = never;
  result_op.assign(e.results().size(), -1);
  for (size_t i = 0; i < code.size(); ++i) {
    const Expr::Instruction& in = code[i];
    if (in.op == ScalarOp::input) {
      slot[i] = slots++;
      input_slot[static_cast<size_t>(in.value)] = slot[i];
      continue;
    }
    if (in.op == ScalarOp::constant) {
      slot[i] = slots++;
      constants.push_back({slot[i], static_cast<float>(in.value)});
      continue;
    }
    const auto of = [&](int32_t x) { return x < 0 ? 0 : slot[static_cast<size_t>(x)]; };
    const auto op_index = static_cast<int32_t>(ops.size());
    for (const int32_t x : {in.a, in.b, in.c})
      if (x >= 0 && code[static_cast<size_t>(x)].op == ScalarOp::input)
        input_last[static_cast<size_t>(code[static_cast<size_t>(x)].value)] = op_index;
    if (last[i] == never || free.empty()) {
      slot[i] = slots++;
    } else {
      slot[i] = free.back();
      free.pop_back();
    }
    ops.push_back({loops().map[static_cast<size_t>(in.op)], slot[i], of(in.a), of(in.b), of(in.c)});
    for (size_t k = 0; k < e.results().size(); ++k)
      if (e.results()[k] == static_cast<int32_t>(i)) result_op[k] = op_index;
    std::vector<int32_t> dead;
    for (const int32_t x : {in.a, in.b, in.c}) {
      if (x < 0 || last[static_cast<size_t>(x)] != static_cast<int32_t>(i)) continue;
      const ScalarOp made_by = code[static_cast<size_t>(x)].op;
      if (made_by == ScalarOp::input || made_by == ScalarOp::constant) continue;
      if (std::find(dead.begin(), dead.end(), of(x)) == dead.end()) dead.push_back(of(x));
    }
    free.insert(free.end(), dead.begin(), dead.end());
  }
  for (const int32_t r : e.results()) result_slot.push_back(slot[static_cast<size_t>(r)]);
}

int64_t block_elements(const Tape& tape) {
  // 32 KB of slots, the smaller of today's first-level caches
  const int64_t n = 8192 / std::max<int32_t>(tape.slots, 1);
  return std::clamp<int64_t>(n / 64 * 64, 128, 1024);
}

// ---- reading and writing -------------------------------------------------------------------

namespace {

void convert(float* d, const void* base, DType dtype, int64_t offset, int64_t n) {
  if (dtype == DType::f32) {
    std::memcpy(d, static_cast<const float*>(base) + offset, static_cast<size_t>(n) * 4);
  } else if (dtype == DType::bf16) {
    loops().from_bf16(d, static_cast<const uint16_t*>(base) + offset, n);
  } else {
    visit_dtype(dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < n; ++i)
        d[i] = static_cast<float>(static_cast<const T*>(base)[offset + i]);
    });
  }
}

float one_value(const void* base, DType dtype, int64_t offset) {
  float v = 0;
  convert(&v, base, dtype, offset, 1);
  return v;
}

}  // namespace

// Copies the block's values row by row of the last dim.
void BlockReader::gather(size_t k, const void* base, int64_t offset, int64_t count,
                         float* d) const {
  const auto& st = space_.strides[k];
  const int64_t rank = space_.rank(), last = rank - 1;
  const auto size = [&](int64_t dim) {
    return dim == split_ ? count : space_.sizes[static_cast<size_t>(dim)];
  };
  const int64_t row = size(last), step = st[static_cast<size_t>(last)];
  int64_t rows = 1;
  for (int64_t dim = split_; dim < last; ++dim) rows *= size(dim);
  for (int64_t r = 0; r < rows; ++r, d += row) {
    int64_t at = offset, rest = r;
    for (int64_t dim = last - 1; dim >= split_; --dim) {
      at += rest % size(dim) * st[static_cast<size_t>(dim)];
      rest /= size(dim);
    }
    if (step == 1) {
      convert(d, base, types_[k].dtype, at, row);
    } else if (step == 0) {
      loops().fill(d, one_value(base, types_[k].dtype, at), row);
    } else {
      for (int64_t i = 0; i < row; ++i) d[i] = one_value(base, types_[k].dtype, at + i * step);
    }
  }
}

const float* BlockReader::read(size_t k, const void* base, std::span<const int64_t> index,
                               int64_t count, float* scratch, Seen& seen) const {
  const auto& st = space_.strides[k];
  int64_t offset = 0;
  for (int64_t d = 0; d <= split_; ++d)
    offset += index[static_cast<size_t>(d)] * st[static_cast<size_t>(d)];
  bool dense = true;
  int64_t expect = 1;
  for (int64_t d = space_.rank() - 1; d >= split_ && dense; --d) {
    dense = st[static_cast<size_t>(d)] == expect || (d == split_ && count == 1);
    expect *= space_.sizes[static_cast<size_t>(d)];
  }
  if (dense && types_[k].dtype == DType::f32) return static_cast<const float*>(base) + offset;
  if (seen.offset == offset && seen.count >= count) return scratch;  // its first part will do
  seen = {offset, count};
  if (dense)
    convert(scratch, base, types_[k].dtype, offset,
            count * space_.numel(split_ + 1, space_.rank()));
  else
    gather(k, base, offset, count, scratch);
  return scratch;
}

void store(void* d, DType dtype, int64_t offset, const float* s, int64_t n) {
  if (dtype == DType::f32) {
    float* to = static_cast<float*>(d) + offset;
    if (to != s) std::memcpy(to, s, static_cast<size_t>(n) * 4);
  } else if (dtype == DType::bf16) {
    loops().to_bf16(static_cast<uint16_t*>(d) + offset, s, n);
  } else {
    visit_dtype(dtype, [&]<class T>(T) {
      for (int64_t i = 0; i < n; ++i) static_cast<T*>(d)[offset + i] = static_cast<T>(s[i]);
    });
  }
}

}  // namespace ebb::cpu
