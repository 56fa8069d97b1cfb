// Partitioning of reductions into thread blocks, chunks and vectors.
#include <algorithm>
#include <bit>
#include <numeric>

#include "codegen/loops/reduce_kernel.h"
#include "codegen/loops/work_split.h"
#include "codegen/math.h"

namespace ebb::codegen {
namespace {

constexpr int block_threads = 256, most_padding = 32;
constexpr int64_t shared_floats = 10 << 10;

// Inputs that are read again for every element; what repeats stays in registers or caches.
bool streams(const ReduceForm& f, size_t i) {
  const std::vector<int64_t>& s = f.space.strides[i];
  return f.expr.uses(static_cast<int64_t>(i)) && std::find(s.begin(), s.end(), 0) == s.end();
}

// Elements of a vector: 16 bytes of the widest tensor that streams.
int vector_along(const ReduceForm& f) {
  std::vector<DType> along;
  for (size_t i = 0; i < f.in.size(); ++i)
    if (streams(f, i)) along.push_back(f.in[i]);
  if (along.empty()) along.push_back(DType::f32);
  return static_cast<int>(std::gcd<int64_t, int64_t>(vector_of(along), f.space.sizes.back()));
}

int count_loads(const ReduceForm& f) {
  int n = 0;
  for (size_t i = 0; i < f.in.size(); ++i) n += streams(f, i);
  return n;
}

int cost_of_vector(const ReduceForm& f, int vector) {
  int n = 0;
  for (const Expr::Instruction& i : f.expr.code())
    n += instructions_of(i.op, f.narrow ? Precision::narrow : Precision::full);
  return n * vector;
}

void cut_rows(const ReduceForm& f, const Target& target, ReduceLayout& l) {
  const int64_t vectors = f.run() / l.vector;
  constexpr int64_t serial = 4, few = 64, many = 1024;  // vectors per output
  const int subgroup = target.subgroup, part = std::min(8, subgroup);
  l.lanes = vectors <= serial ? 1
            : vectors <= few  ? part
            : vectors <= many ? subgroup
                              : block_threads;
  // few outputs: more threads for each
  const int64_t wanted = int64_t{target.sm_count} * 1024;
  if (l.lanes == part && f.kept() * part < wanted && vectors >= subgroup) l.lanes = subgroup;
  if (l.lanes == subgroup && f.kept() * subgroup < wanted && vectors >= block_threads)
    l.lanes = block_threads;
  if (l.lanes == block_threads) {
    const int64_t blocks = int64_t{target.sm_count} * 8;
    const int64_t least = int64_t{block_threads} * l.steps * 2;  // vectors worth a block
    l.chunks = std::clamp<int64_t>(blocks / std::max<int64_t>(f.kept(), 1), 1,
                                   std::max<int64_t>(1, vectors / least));
  }
  l.per_chunk = ceil_div(vectors, l.chunks);
  l.chunks = ceil_div(vectors, l.per_chunk);
}

// Thread blocks so many vectors across, and as many chunks as are co-resident.
void cut_columns(const ReduceForm& f, const Target& target, int64_t across, ReduceLayout& l) {
  constexpr int64_t resident = 1024;  // threads of a SM
  const int64_t vectors = f.inner() / l.vector, run = f.run();
  l.tiles = ceil_div(vectors, across);
  l.across = static_cast<int>(ceil_div(vectors, l.tiles));
  l.tiles = ceil_div(vectors, l.across);
  const auto down = static_cast<uint64_t>(std::max(1, block_threads / l.across));
  l.down =
      static_cast<int>(std::min(std::bit_floor(down), std::bit_ceil(static_cast<uint64_t>(run))));
  const int64_t at_once = target.sm_count * (resident / (int64_t{l.across} * l.down));
  const int64_t least = int64_t{l.down} * l.steps * 2;  // run indices worth a block
  const int64_t most = std::max<int64_t>(1, run / least);
  l.per_chunk = ceil_div(run, std::clamp<int64_t>(at_once / (f.kept() * l.tiles), 1, most));
  l.chunks = ceil_div(run, l.per_chunk);
}

// A few cache lines across. Or one, where a block then takes the whole run, which saves the launch
// that adds up chunks. Of few elements also a part of one, for the same.
void cut_columns(const ReduceForm& f, const Target& target, ReduceLayout& l) {
  constexpr int64_t wide = 32, line = 8, sector = 2;  // vectors
  constexpr int64_t few = int64_t{1} << 20, serial = 16;
  const ReduceLayout uncut = l;
  cut_columns(f, target, f.run() >= wide ? wide : int64_t{block_threads}, l);
  if (l.chunks == 1) return;
  for (int64_t across = line; across >= sector; across /= 2) {
    ReduceLayout narrow = uncut;
    cut_columns(f, target, across, narrow);
    const bool is_short =
        f.space.numel(0, f.space.rank()) <= few && f.run() <= serial * narrow.down;
    if (!is_short && (across < line || narrow.chunks > 1)) continue;
    narrow.chunks = 1;
    narrow.per_chunk = f.run();
    l = narrow;
    return;
  }
}

// Registers of a thread's values, about: accumulators and coefficients of columns, loads under way.
int64_t registers_of(const ReduceForm& f, const ReduceLayout& l) {
  int64_t n = f.rows() ? 0 : l.vector * static_cast<int64_t>(f.expr.results().size());
  for (size_t i = 0; i < f.in.size(); ++i) {
    if (!f.expr.uses(static_cast<int64_t>(i)) || f.space.strides[i].back() == 0) continue;
    n += streams(f, i) ? l.steps * l.vector * size_of(f.in[i]) / 4 : l.vector;
  }
  return n;
}

}  // namespace

ReduceLayout layout_of(const ReduceForm& f, const Target& target) {
  ReduceLayout l;
  l.vector = f.unaligned ? 1 : vector_along(f);
  const auto results = static_cast<int64_t>(f.expr.results().size());
  while (!f.rows() && l.vector > 1 &&
         results * l.vector * (block_threads + most_padding / l.vector) > shared_floats)
    l.vector /= 2;
  l.steps = steps_of(count_loads(f), cost_of_vector(f, l.vector) * 2 / 3);
  constexpr int64_t most_registers = 40;
  if (registers_of(f, l) > most_registers && l.vector > 2) {
    l.vector /= 2;
    l.steps *= 2;
  }
  f.rows() ? cut_rows(f, target, l) : cut_columns(f, target, l);
  while (l.steps > 1 && int64_t{l.steps / 2} * (f.rows() ? l.lanes : l.down) >= l.per_chunk)
    l.steps /= 2;
  return l;
}

}  // namespace ebb::codegen
