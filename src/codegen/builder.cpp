#include "codegen/builder.h"

#include <bit>

#include "base/error.h"

namespace ebb::codegen {
namespace {

// How a vector of numbers is held in words.
struct Holding {
  int unit = 4, units = 1;  // bytes of a word in memory; words
  Kind kind = Kind::u32;
  bool shared_words = false;  // several numbers in a word
};

Holding holding_of(DType dtype, int count) {
  const auto size = static_cast<int>(size_of(dtype));
  Holding h{.shared_words = size < 4 && count * size % 4 == 0};
  h.kind = dtype == DType::f32 ? Kind::f32 : size == 8 ? Kind::u64 : Kind::u32;
  h.unit = h.shared_words ? 4 : size;
  h.units = count * size / h.unit;
  return h;
}

// Of units from the i-th on: how many one access takes.
int access(int unit, int left) {
  const int most = std::min(unit < 4 ? 1 : 16 / unit, left);
  return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

}  // namespace

// ---- instructions ------------------------------------------------------------------------------

void Builder::add(Op op, std::span<const Any> operands, std::span<const Kind> results, int detail,
                  int64_t number) {
  require(target_.has(info_of(op).needs), "codegen: the target has no such instruction (",
          info_of(op).name, ")  ", kernel_.name);
  Instruction i{.op = op,
                .detail = static_cast<uint8_t>(detail),
                .results = static_cast<uint8_t>(results.size()),
                .operands = static_cast<uint8_t>(operands.size()),
                .first_operand = static_cast<int32_t>(kernel_.operands.size()),
                .number = number};
  if (!results.empty()) i.result = static_cast<int32_t>(kernel_.values.size());
  for (const Any& v : operands) kernel_.operands.push_back(v.id);
  for (const Kind k : results) kernel_.values.push_back({.kind = k});
  kernel_.code.push_back(i);
}

Any Builder::make(Op op, Kind result, std::initializer_list<Any> operands, int detail,
                  int64_t number) {
  const Kind results[] = {result};
  add(op, {operands.begin(), operands.size()}, results, detail, number);
  return {this, kernel_.code.back().result};
}

void Builder::put(Op op, std::initializer_list<Any> operands, int detail, int64_t number) {
  add(op, {operands.begin(), operands.size()}, {}, detail, number);
}

Any Builder::constant(Kind kind, uint64_t bits) {
  kernel_.values.push_back({.kind = kind, .of = Value::Class::constant, .bits = bits});
  return {this, static_cast<int32_t>(kernel_.values.size()) - 1};
}

Any Builder::variable(Kind kind) {
  kernel_.values.push_back({.kind = kind, .of = Value::Class::variable});
  return {this, static_cast<int32_t>(kernel_.values.size()) - 1};
}

F32 Builder::f32(float v) { return F32(constant(Kind::f32, std::bit_cast<uint32_t>(v))); }

Kernel Builder::finish(int threads, int blocks_per_processor, int64_t parameter_bytes) {
  kernel_.threads = threads;
  kernel_.blocks_per_processor = blocks_per_processor;
  kernel_.parameter_bytes = parameter_bytes > 0 ? parameter_bytes
                            : uses_ == 1        ? parameters_.size()
                                                : SharedLaunch::bytes(uses_, parameters_.size());
  for (const Instruction& i : kernel_.code)
    kernel_.dynamic_shared = kernel_.dynamic_shared || i.op == Op::dynamic_shared;
  verify(kernel_);
  return std::move(kernel_);
}

// ---- inputs ----------------------------------------------------------------------------------

void Builder::share_launch(int uses, bool alternate) {
  require(kernel_.code.empty() && uses > 0, "codegen: ", uses, " uses of a kernel that has begun");
  if (uses == 1) return;
  const U32 block = block_index();
  U32 use = u32(0), own = block;
  if (alternate) {
    const auto n = static_cast<uint32_t>(uses);
    require(std::has_single_bit(n), "codegen: ", uses, " uses cannot alternate");
    use = block & (n - 1);
    own = block >> std::countr_zero(n);
  }
  for (int k = 1; k < uses && !alternate; ++k) {
    const U32 from = param<Kind::u32>(SharedLaunch::first_block_at(k));
    const Pred here = from <= block;
    use = select(here, u32(static_cast<uint32_t>(k)), use);
    own = select(here, block - from, own);
  }
  const U32 stride = param<Kind::u32>(SharedLaunch::stride_at);
  use_at_ = mul_add(use, stride, u32(static_cast<uint32_t>(SharedLaunch::header_bytes(uses))));
  use_block_ = own;
  uses_ = uses;
}

U32 Builder::number(int64_t value) {
  require(0 <= value && value < int64_t{1} << 32, "codegen: a size or stride is too large (", value,
          ")");
  return param<Kind::u32>(parameters_.add_value(static_cast<uint32_t>(value)));
}

U64 Builder::pointer(std::vector<int64_t>& pointers) {
  pointers.push_back(parameters_.add_value(static_cast<void*>(nullptr)));
  return param_pointer(pointers.back());
}

U32 Builder::lane(int lanes) { return U32(make(Op::lane, Kind::u32, {}, 0, part(lanes))); }
U32 Builder::subgroup_index(int lanes) {
  return U32(make(Op::subgroup_index, Kind::u32, {}, 0, part(lanes)));
}

int Builder::part(int lanes) const { return lanes == 0 ? target_.subgroup : lanes; }

// ---- control flow and variables ----------------------------------------------------------------

void Builder::when(Pred p, const std::function<void()>& body) {
  if (!p) return body();
  put(Op::when, {p});
  body();
  put(Op::end_when, {});
}

void Builder::when(Pred p, const std::function<void()>& body,
                   const std::function<void()>& otherwise) {
  put(Op::when, {p});
  body();
  put(Op::otherwise, {});
  otherwise();
  put(Op::end_when, {});
}

void Builder::loop(const std::function<void()>& body) {
  put(Op::loop, {});
  body();
  put(Op::end_loop, {});
}

void Builder::for_range(U32 begin, U32 end, U32 step, const std::function<void(U32)>& body) {
  const Var<Kind::u32> next = var(begin);
  loop([&] {
    const U32 at = next.get();
    break_unless(at < end);
    body(at);
    next.set(at + step);
  });
}

WordsVar Builder::words_var(DType dtype, int count) {
  const Holding h = holding_of(dtype, count);
  WordsVar v{dtype, count, {}};
  for (int i = 0; i < h.units; ++i) v.words.push_back(variable(h.kind));
  return v;
}

void Builder::set(const WordsVar& v, const Words& words) {
  for (size_t i = 0; i < v.words.size(); ++i) put(Op::write, {v.words[i], words.words[i]});
}

WordsVar Builder::var(const Words& start) {
  const WordsVar v = words_var(start.dtype, start.count);
  set(v, start);
  return v;
}

// ---- memory ----------------------------------------------------------------------------------

std::vector<Any> Builder::load_vectors(Op op, Any base, int64_t offset, Pred when, int unit,
                                       int units, Kind kind) {
  const Op with = op == Op::load ? Op::load_when : Op::load_shared_when;
  std::vector<Any> all;
  for (int i = 0; i < units;) {
    const int n = access(unit, units - i);
    const std::vector<Kind> kinds(static_cast<size_t>(n), kind);
    const Any operands[] = {base, when};
    add(when ? with : op, std::span(operands).first(when ? 2 : 1), kinds, unit,
        offset + int64_t{i} * unit);
    for (int k = 0; k < n; ++k) all.push_back({this, kernel_.code.back().result + k});
    i += n;
  }
  return all;
}

void Builder::store_vectors(Op op, Any base, int64_t offset, Pred p, int unit,
                            std::span<const Any> units) {
  when(p, [&] {
    for (size_t i = 0; i < units.size();) {
      const int n = access(unit, static_cast<int>(units.size() - i));
      std::vector<Any> operands = {base};
      operands.insert(operands.end(), units.begin() + static_cast<int64_t>(i),
                      units.begin() + static_cast<int64_t>(i) + n);
      add(op, operands, {}, unit, offset + static_cast<int64_t>(i) * unit);
      i += static_cast<size_t>(n);
    }
  });
}

Words Builder::load(DType dtype, int count, const Address& at) {
  const Holding h = holding_of(dtype, count);
  return {dtype, count,
          load_vectors(Op::load, at.base, at.offset, at.when, h.unit, h.units, h.kind)};
}

Words Builder::load(DType dtype, int count, const SharedAddress& at) {
  const Holding h = holding_of(dtype, count);
  return {dtype, count,
          load_vectors(Op::load_shared, at.base, at.offset, at.when, h.unit, h.units, h.kind)};
}

std::vector<Any> Builder::load_units(int unit, Kind kind, int count, const Address& at) {
  return load_vectors(Op::load, at.base, at.offset, at.when, unit, count, kind);
}

void Builder::store_units(int unit, std::span<const Any> units, const SharedAddress& at) {
  store_vectors(Op::store_shared, at.base, at.offset, at.when, unit, units);
}

F32 Builder::unpacked(DType dtype, Any word, int which, bool whole) {
  if (dtype == DType::f32) return F32(word);
  return F32(make(Op::unpack, Kind::f32, {word}, static_cast<int>(dtype),
                  which | static_cast<int>(whole) << 8));
}

F32 Builder::element(const Words& w, int index) {
  const Holding h = holding_of(w.dtype, w.count);
  const int per_word = h.shared_words ? 4 / static_cast<int>(size_of(w.dtype)) : 1;
  return unpacked(w.dtype, w.words[static_cast<size_t>(index / per_word)], index % per_word,
                  !h.shared_words);
}

F32 Builder::element(const WordsVar& w, int index) {
  const Holding h = holding_of(w.dtype, w.count);
  const int per_word = h.shared_words ? 4 / static_cast<int>(size_of(w.dtype)) : 1;
  const Any now = make(Op::read, h.kind, {w.words[static_cast<size_t>(index / per_word)]});
  return unpacked(w.dtype, now, index % per_word, !h.shared_words);
}

void Builder::store(DType dtype, std::span<const F32> values, const Address& at) {
  const auto size = static_cast<int>(size_of(dtype));
  const bool pairs = size == 2 && values.size() % 2 == 0;
  const Kind kind = dtype == DType::i32 ? Kind::i32 : size == 8 ? Kind::u64 : Kind::u32;
  const size_t step = pairs ? 2 : 1;
  std::vector<Any> words;
  for (size_t i = 0; i < values.size(); i += step) {
    if (dtype == DType::f32) {
      words.push_back(values[i]);
      continue;
    }
    const Any both[] = {values[i], pairs ? values[i + 1] : F32()};
    const Kind result[] = {kind};
    add(Op::pack, std::span(both).first(step), result, static_cast<int>(dtype), 0);
    words.push_back({this, kernel_.code.back().result});
  }
  store_vectors(Op::store, at.base, at.offset, at.when, pairs ? 4 : size, words);
}

F32 Builder::rounded(F32 x, DType dtype) {
  const Any operand[] = {x};
  const Kind word[] = {Kind::u32};
  add(Op::pack, operand, word, static_cast<int>(dtype), 0);
  return unpacked(dtype, {this, kernel_.code.back().result}, 0, true);
}

void Builder::store(std::span<const F32> values, const SharedAddress& at) {
  const std::vector<Any> words(values.begin(), values.end());
  store_vectors(Op::store_shared, at.base, at.offset, at.when, 4, words);
}

// ---- the memory of a thread block
// ----------------------------------------------------------------

SharedArray Builder::shared_array(int unit, int64_t count) {
  kernel_.shared_bytes.push_back(unit * count);
  return {static_cast<int32_t>(kernel_.shared_bytes.size()) - 1, unit};
}

SharedAddress Builder::at(SharedArray a, U32 index) {
  return {U32(make(Op::shared_address, Kind::u32, {index}, a.unit, a.array))};
}

SharedAddress Builder::dynamic_shared(U32 offset) {
  return {U32(make(Op::dynamic_shared, Kind::u32, {offset}))};
}

SharedAddress Builder::move(const SharedAddress& a, U32 bytes) {
  return {U32(make(Op::shared_move, Kind::u32, {a.base, bytes})), a.offset, a.when};
}

}  // namespace ebb::codegen
