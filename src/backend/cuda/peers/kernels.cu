#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "backend/cuda/peers/kernels.h"

namespace ebb::cuda::peers {
namespace {

constexpr int threads = 256;
constexpr int max_entries = 256;  // of a launch: parameters of up to 32 KB, since CUDA 12.1
constexpr int accesses = 4;       // of a thread
constexpr int64_t per_block = int64_t{threads} * accesses;

struct Sum {
  const void* own;
  void* out;
  int64_t offset, count;
  int first_block;
  bool keep_in_slot, vectors;
};

struct Move {
  void* to;
  const void* from;
  int64_t count;  // bytes
  int first_block;
  bool vectors;
};

template <class Entry>
struct Params {
  Slots slots;
  int entries;
  Entry entry[max_entries];
};

// The entry that this block has a part of.
template <class Entry>
__device__ __forceinline__ const Entry& own_entry(const Params<Entry>& p) {
  int n = 0, end = p.entries;
  while (end - n > 1) {
    const int middle = (n + end) / 2;
    (static_cast<int>(blockIdx.x) >= p.entry[middle].first_block ? n : end) = middle;
  }
  return p.entry[n];
}

// Calls wide(i) for accesses of `pack` elements, from element i on, and single(i) for what remains,
// or for all where addresses allow no wide ones.
template <class Entry>
__device__ __forceinline__ void for_own_part(const Entry& e, int pack, const auto& wide,
                                             const auto& single) {
  const int64_t whole = e.vectors ? e.count / pack : 0;
  const int64_t units = whole + (e.count - whole * pack);
  const int64_t from = (static_cast<int>(blockIdx.x) - e.first_block) * per_block + threadIdx.x;
#pragma unroll
  for (int a = 0; a < accesses; ++a) {
    const int64_t unit = from + a * threads;
    if (unit < whole)
      wide(unit * pack);
    else if (unit < units)
      single(whole * pack + unit - whole);
  }
}

// `Count` elements from element i on, of all ranks in their order.
template <class T, int Count>
__device__ __forceinline__ void add_up(const Slots& slots, const Sum& e, int64_t i) {
  using Access = Vec<T, Count>;
  float total[Count] = {};
  for (int r = 0; r < slots.ranks; ++r) {
    const void* const term =
        r == slots.rank ? e.own
                        : static_cast<const void*>(slots.first + r * slots.bytes + e.offset);
    const auto x = floats_of(*reinterpret_cast<const Access*>(static_cast<const T*>(term) + i));
#pragma unroll
    for (int k = 0; k < Count; ++k) total[k] = r == 0 ? x.v[k] : total[k] + x.v[k];
  }
  Access out;
#pragma unroll
  for (int k = 0; k < Count; ++k) out.v[k] = from_float<T>(total[k]);
  *reinterpret_cast<Access*>(static_cast<T*>(e.out) + i) = out;
  if (!e.keep_in_slot) return;
  std::byte* const slot = slots.first + slots.rank * slots.bytes + e.offset;
  *reinterpret_cast<Access*>(reinterpret_cast<T*>(slot) + i) = out;
}

// grid: the blocks of all entries, one behind the other.
template <class T>
__global__ __launch_bounds__(threads) void sum_of_ranks(const __grid_constant__ Params<Sum> p) {
  begin();
  const Sum& e = own_entry(p);
  for_own_part(
      e, wide<T>, [&](int64_t i) { add_up<T, wide<T>>(p.slots, e, i); },
      [&](int64_t i) { add_up<T, 1>(p.slots, e, i); });
}

__global__ __launch_bounds__(threads) void move_bytes(const __grid_constant__ Params<Move> p) {
  begin();
  const Move& e = own_entry(p);
  const auto as = [&]<class Access>(Access, int64_t i) {
    *reinterpret_cast<Access*>(static_cast<std::byte*>(e.to) + i) =
        *reinterpret_cast<const Access*>(static_cast<const std::byte*>(e.from) + i);
  };
  for_own_part(
      e, wide<std::byte>, [&](int64_t i) { as(uint4{}, i); }, [&](int64_t i) { as(char{}, i); });
}

bool are_aligned(const void* a, const void* b) {
  return (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % alignment == 0;
}

// Runs `kernel` over entries, whose blocks lie one behind the other. `pack`: elements of an access.
template <class Entry>
void enqueue(const char* name, void (*kernel)(Params<Entry>), Params<Entry>& p, int64_t pack,
             CudaDevice& device) {
  int64_t blocks = 0;
  for (int n = 0; n < p.entries; ++n) {
    Entry& e = p.entry[n];
    e.first_block = static_cast<int>(blocks);
    const int64_t of = e.vectors ? pack : 1;
    blocks += blocks_for(e.count / of + e.count % of, per_block);
  }
  device.finish_before_next();  // what came before may be no kernel
  launch(name, kernel, {.grid = static_cast<unsigned>(blocks), .block = threads}, p, device);
}

}  // namespace

void enqueue_sums(std::span<const Link::Sum> sums, const Slots& slots, CudaDevice& device) {
  for (size_t i = 0; i < sums.size();) {
    const DType dtype = sums[i].dtype;
    Params<Sum> p{.slots = slots};
    for (; i < sums.size() && sums[i].dtype == dtype && p.entries < max_entries; ++i) {
      const Link::Sum& s = sums[i];
      p.entry[p.entries++] = {
          s.own, s.out, s.offset, s.count, 0, s.keep_in_slot, are_aligned(s.own, s.out)};
    }
    visit_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      enqueue("sum_of_ranks", sum_of_ranks<T>, p, wide<T>, device);
    });
  }
}

void enqueue_moves(std::span<const Link::Move> moves, CudaDevice& device) {
  for (size_t i = 0; i < moves.size();) {
    Params<Move> p{};
    for (; i < moves.size() && p.entries < max_entries; ++i) {
      const Link::Move& m = moves[i];
      p.entry[p.entries++] = {m.to, m.from, m.bytes, 0, are_aligned(m.to, m.from)};
    }
    enqueue("move_bytes", move_bytes, p, wide<std::byte>, device);
  }
}

}  // namespace ebb::cuda::peers
