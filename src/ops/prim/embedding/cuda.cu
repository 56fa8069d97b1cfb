#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "backend/cuda/kit/fault.cuh"
#include "ir/kernel.h"
#include "ops/prim/embedding/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 256;

struct Params {
  const char* table;
  const int64_t* ids;
  char* out;
  int64_t rows, count, units;  // count: of ids; units: of a row
  Fault* fault;
};

// out[i, :] = table[ids[i], :], in units of U; zeros and a fault where an id is out of range.
// grid: one thread a unit.  needs: addresses and rows aligned to U.
template <class U>
__global__ __launch_bounds__(threads) void embedding_rows(const __grid_constant__ Params p) {
  begin();
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.count * p.units) return;
  const int64_t n = i / p.units, k = i - n * p.units, id = p.ids[n];
  const bool known = id >= 0 && id < p.rows;
  if (!known && k == 0) report(p.fault, id_out_of_range, id, p.rows);
  U unit = {};
  if (known) unit = reinterpret_cast<const U*>(p.table)[id * p.units + k];
  reinterpret_cast<U*>(p.out)[i] = unit;
}

using RowKernel = void (*)(Params);

RowKernel kernel_of(int64_t bytes) {
  switch (bytes) {
    case 1: return embedding_rows<uint8_t>;
    case 2: return embedding_rows<uint16_t>;
    case 4: return embedding_rows<uint32_t>;
    case 8: return embedding_rows<uint2>;
    default: return embedding_rows<uint4>;
  }
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const int64_t element = size_of(s.in[0].dtype), bytes = s.in[0].shape[1] * element;
  int64_t unit = s.aligned ? Signature::alignment : element;
  while (bytes % unit != 0) unit /= 2;
  const Params p{.rows = s.in[0].shape[0],
                 .count = s.in[1].shape.numel(),
                 .units = bytes / unit,
                 .fault = of(device).fault()};
  return {.run = [p, kernel = kernel_of(unit), &device](const Call& c) {
    Params now = p;
    now.table = static_cast<const char*>(c.in[0]);
    now.ids = static_cast<const int64_t*>(c.in[1]);
    now.out = static_cast<char*>(c.out[0]);
    launch("embedding_rows", kernel,
           {.grid = blocks_for(p.count * now.units, threads), .block = threads}, now, of(device));
  }};
}

}  // namespace

std::vector<Kernel> embedding() {
  return {{.op = "embedding",
           .name = "embedding_rows",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
