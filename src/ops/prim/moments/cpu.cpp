#include <omp.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/blocks.h"
#include "ir/kernel.h"
#include "ops/prim/moments/op.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::loops;

// x is [outer, pixels, channels]; statistics are [outer, groups].
struct Problem {
  int64_t outer = 1, pixels = 1, channels = 1, groups = 1;
  DType dtype = DType::f32;
};

Problem problem_of(const Signature& s) {
  const auto& a = s.as<Moments>();
  const Shape& x = s.in[0].shape;
  Problem p{.channels = x[-1], .groups = a.groups, .dtype = s.in[0].dtype};
  for (int64_t d = 0; d < a.axis; ++d) p.outer *= x[d];
  for (int64_t d = a.axis; d < x.rank() - 1; ++d) p.pixels *= x[d];
  if (a.axis == x.rank() - 1) p.pixels = 1;
  return p;
}

void load(const Problem& p, const void* x, int64_t offset, int64_t n, float* d) {
  if (p.dtype == DType::f32)
    std::memcpy(d, static_cast<const float*>(x) + offset, static_cast<size_t>(n) * 4);
  else if (p.dtype == DType::bf16)
    loops().from_bf16(d, static_cast<const uint16_t*>(x) + offset, n);
  else
    std::transform(static_cast<const f16*>(x) + offset, static_cast<const f16*>(x) + offset + n, d,
                   [](f16 v) { return static_cast<float>(v); });
}

// ---- one pixel a row: two passes over a row that stays in the cache -------------------------

Program prepare_rows(const Problem& p) {
  const int64_t row = p.channels, threads = omp_get_max_threads();
  const bool convert = p.dtype != DType::f32;
  const auto run = [=](const Call& c) {
    auto* mean = static_cast<float*>(c.out[0]);
    auto* var = static_cast<float*>(c.out[1]);
    const int64_t group_channels = row / p.groups;
#pragma omp parallel for schedule(static) if (p.outer * row > 4096) num_threads(threads)
    for (int64_t r = 0; r < p.outer; ++r) {
      float* mine = static_cast<float*>(c.workspace) + omp_get_thread_num() * row;
      if (convert) load(p, c.in[0], r * row, row, mine);
      const float* x = convert ? mine : static_cast<const float*>(c.in[0]) + r * row;
      for (int64_t g = 0; g < p.groups; ++g, x += group_channels) {
        const double m = loops().sum(x, group_channels) / static_cast<double>(group_channels);
        const double d = m - static_cast<double>(static_cast<float>(m));
        mean[r * p.groups + g] = static_cast<float>(m);
        const double squares = loops().sum_squares(x, static_cast<float>(m), group_channels);
        var[r * p.groups + g] =
            static_cast<float>(squares / static_cast<double>(group_channels) - d * d);
      }
    }
  };
  return {convert ? threads * row * 4 : 0, run};
}

// ---- images: sums over chunks of pixels, shifted by the first pixel against cancellation -----

// Pixels a job takes: a constant, so that sums do not depend on the number of threads.
int64_t chunk_pixels(const Problem& p) { return std::max<int64_t>(1, (1 << 15) / p.channels); }

void sum_chunk(const Problem& p, const Call& c, int64_t n, int64_t chunk, double* sums,
               float* scratch) {
  const int64_t C = p.channels, first = chunk * chunk_pixels(p);
  const int64_t last = std::min(p.pixels, first + chunk_pixels(p));
  const int64_t rows = std::max<int64_t>(1, 4096 / C);
  float* shift = scratch;
  float* block = scratch + C;
  load(p, c.in[0], n * p.pixels * C, C, shift);
  std::fill(sums, sums + 2 * C, 0.0);
  for (int64_t at = first; at < last; at += rows) {
    const int64_t count = std::min(rows, last - at), offset = (n * p.pixels + at) * C;
    const float* x = static_cast<const float*>(c.in[0]) + offset;
    if (p.dtype != DType::f32) {
      load(p, c.in[0], offset, count * C, block);
      x = block;
    }
    loops().moment_rows(sums, sums + C, shift, x, count, C);
  }
}

// Joins the channels' sums of all chunks into the groups' mean and variance (Chan et al. 1979).
void finish(const Problem& p, const Call& c, int64_t n, const double* sums, int64_t chunks) {
  const int64_t C = p.channels, group_channels = C / p.groups;
  const double pixels = static_cast<double>(p.pixels),
               count = pixels * static_cast<double>(group_channels);
  std::vector<float> shift(static_cast<size_t>(C));
  load(p, c.in[0], n * p.pixels * C, C, shift.data());
  for (int64_t g = 0; g < p.groups; ++g) {
    double mean = 0, squares = 0;
    std::vector<double> means(static_cast<size_t>(group_channels));
    for (int64_t k = 0; k < group_channels; ++k) {
      double s1 = 0, s2 = 0;
      for (int64_t j = 0; j < chunks; ++j) {
        s1 += sums[j * 2 * C + g * group_channels + k];
        s2 += sums[j * 2 * C + C + g * group_channels + k];
      }
      const double m = s1 / pixels;
      squares += std::max(0.0, s2 - s1 * m);
      means[static_cast<size_t>(k)] =
          static_cast<double>(shift[static_cast<size_t>(g * group_channels + k)]) + m;
      mean += means[static_cast<size_t>(k)] / static_cast<double>(group_channels);
    }
    for (const double m : means) squares += pixels * (m - mean) * (m - mean);
    static_cast<float*>(c.out[0])[n * p.groups + g] = static_cast<float>(mean);
    static_cast<float*>(c.out[1])[n * p.groups + g] = static_cast<float>(squares / count);
  }
}

Program prepare_images(const Problem& p) {
  const int64_t chunks = (p.pixels + chunk_pixels(p) - 1) / chunk_pixels(p);
  const int64_t threads = omp_get_max_threads();
  const int64_t scratch = p.channels + std::max<int64_t>(4096, p.channels);
  const int64_t sums = p.outer * chunks * 2 * p.channels;
  const auto run = [=](const Call& c) {
    auto* all = static_cast<double*>(c.workspace);
    auto* memory = reinterpret_cast<float*>(all + sums);
#pragma omp parallel num_threads(threads) if (p.outer * p.pixels * p.channels > 4096)
    {
#pragma omp for schedule(static)
      for (int64_t j = 0; j < p.outer * chunks; ++j)
        sum_chunk(p, c, j / chunks, j % chunks, all + j * 2 * p.channels,
                  memory + omp_get_thread_num() * scratch);
#pragma omp for schedule(static)
      for (int64_t n = 0; n < p.outer; ++n)
        finish(p, c, n, all + n * chunks * 2 * p.channels, chunks);
    }
  };
  return {sums * 8 + threads * scratch * 4, run};
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const Problem p = problem_of(s);
  return p.pixels == 1 ? prepare_rows(p) : prepare_images(p);
}

bool supports(const Signature& s, const Device&) {
  return is_float(s.in[0].dtype) && s.in[0].shape.numel() > 0;
}

}  // namespace

std::vector<Kernel> moments() {
  return {{.op = "moments", .name = "moments_chunks", .supports = supports, .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
