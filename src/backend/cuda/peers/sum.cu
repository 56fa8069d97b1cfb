#include "backend/cuda/error.h"
#include "backend/cuda/kit/elements.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/peers/sum.h"

namespace ebb::cuda::peers {
namespace {

constexpr int threads = 256;
constexpr int most = 48;     // sums of a launch: parameters are at most 4 KB
constexpr int accesses = 4;  // of a thread
constexpr int64_t per_block = int64_t{threads} * accesses;

struct Entry {
  const void* own;
  void* out;
  int64_t offset, count;
  int first_block;
  bool kept, vectors;
};

struct Params {
  Slots slots;
  int entries;
  Entry entry[most];
};

// `Count` elements from element i on, of all ranks in their order.
template <class T, int Count>
__device__ __forceinline__ void add_up(const Slots& slots, const Entry& e, int64_t i) {
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
  if (!e.kept) return;
  std::byte* const slot = slots.first + slots.rank * slots.bytes + e.offset;
  *reinterpret_cast<Access*>(reinterpret_cast<T*>(slot) + i) = out;
}

// grid: the blocks of all entries, one behind the other.
template <class T>
__global__ __launch_bounds__(threads) void sum_of_ranks(const __grid_constant__ Params p) {
  begin();
  int n = 0;
  while (n + 1 < p.entries && static_cast<int>(blockIdx.x) >= p.entry[n + 1].first_block) ++n;
  const Entry& e = p.entry[n];
  const int64_t whole = e.vectors ? e.count / wide<T> : 0;  // accesses of 16 bytes
  const int64_t units = whole + (e.count - whole * wide<T>);
  const int64_t from = (static_cast<int>(blockIdx.x) - e.first_block) * per_block + threadIdx.x;
#pragma unroll
  for (int a = 0; a < accesses; ++a) {
    const int64_t unit = from + a * threads;
    if (unit < whole)
      add_up<T, wide<T>>(p.slots, e, unit * wide<T>);
    else if (unit < units)
      add_up<T, 1>(p.slots, e, whole * wide<T> + unit - whole);
  }
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % alignment == 0; }

void enqueue(std::span<const Link::Sum> sums, const Slots& slots, cudaStream_t stream) {
  Params p{.slots = slots, .entries = static_cast<int>(sums.size())};
  int64_t blocks = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    const Link::Sum& s = sums[i];
    const bool vectors = is_aligned(s.own) && is_aligned(s.out);
    const int64_t pack = vectors ? alignment / size_of(s.dtype) : 1;
    p.entry[i] = {s.own, s.out, s.offset, s.count, static_cast<int>(blocks), s.kept, vectors};
    blocks += blocks_for(s.count / pack + s.count % pack, per_block);
  }
  visit_float(sums[0].dtype, [&](auto zero) {
    sum_of_ranks<decltype(zero)><<<static_cast<unsigned>(blocks), threads, 0, stream>>>(p);
  });
  check(cudaGetLastError(), "sum_of_ranks");
}

}  // namespace

void enqueue_sums(std::span<const Link::Sum> sums, const Slots& slots, cudaStream_t stream) {
  for (size_t i = 0; i < sums.size();) {
    size_t end = i + 1;
    while (end < sums.size() && end - i < most && sums[end].dtype == sums[i].dtype) ++end;
    enqueue(sums.subspan(i, end - i), slots, stream);
    i = end;
  }
}

}  // namespace ebb::cuda::peers
