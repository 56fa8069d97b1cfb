#include "backend/cpu/amx_gemm.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/simd/amx.h"
#include "base/round_up.h"

namespace ebb::cpu {
namespace {

constexpr int64_t kColumns = 32;          // of a panel: two tiles
constexpr int64_t kDepth = 384;           // channels of a panel at most: 24 KiB, of the first cache
constexpr int64_t kChunkBytes = 1 << 20;  // of activations, that stay in the second cache
constexpr int64_t kLine = 64;

// Pointers to memory that begins on a cache line.
uint16_t* aligned(void* scratch) {
  const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(scratch));
  return reinterpret_cast<uint16_t*>(rounded_up(at, kLine));
}

}  // namespace

bool amx_takes(const AmxProblem& p) { return amx_kernels() && p.k >= 16 && p.k % 2 == 0; }

AmxMatmul::AmxMatmul(const AmxProblem& p)
    : p_(p), amx_(amx_kernels()), taps_(p.kh * p.kw), threads_(omp_get_max_threads()) {
  depth_ = rounded_up(p.k, kTileDepth);
  place_tiles();
  in_place_ = is_dense() && p.k == depth_ && p.images * p.h * p.w == positions_;
  divide();
  for (int64_t t = 0; t < taps_; ++t) shifts_.push_back(shift(t) * depth_);
}

// Whether the kernel reads the pixels of the result, as a matmul does.
bool AmxMatmul::is_dense() const {
  return taps_ == 1 && p_.stride == 1 && p_.top + p_.left + p_.bottom + p_.right == 0;
}

// The copy is one row of positions: what pads a row on the right pads the next one on the left, and
// so with images. So the tap (r,s) of the position i is i + r * row + s for all, and a tile may
// reach over the end of a row.
void AmxMatmul::place_tiles() {
  row_ = p_.w + std::max(p_.left, p_.right);
  height_ = p_.h + std::max(p_.top, p_.bottom);
  const int64_t out_w = p_.out_w(), size = p_.out_h() * out_w;
  if (is_dense()) {
    tiles_ = ceil_div(p_.images * size, kTileRows);
    positions_ = tiles_ * kTileRows;
    return;
  }
  if (p_.images * size == 0) return;
  for (int64_t pixel = 0; pixel < size; ++pixel) {
    const int64_t at = (pixel / out_w * row_ + pixel % out_w) * p_.stride;
    const int64_t from = starts_.empty() ? at : starts_.back();
    const bool fits = (at - from) % p_.stride == 0 && at - from < kTileRows * p_.stride;
    if (starts_.empty() || !fits) starts_.push_back(at);
  }
  tiles_ = p_.images * static_cast<int64_t>(starts_.size());
  starts_.push_back(height_ * row_);
  positions_ = position(tiles_ - 1) + (kTileRows - 1) * p_.stride + shift(taps_ - 1) + 1;
}

// Positions from the kernel's first pixel to another one.
int64_t AmxMatmul::shift(int64_t tap) const { return tap / p_.kw * row_ + tap % p_.kw; }

// Of the first row of a tile, in a as it is read, at the kernel's first pixel.
int64_t AmxMatmul::position(int64_t tile) const {
  if (starts_.empty()) return tile * kTileRows;
  const auto count = static_cast<int64_t>(starts_.size()) - 1;
  return tile / count * height_ * row_ + starts_[static_cast<size_t>(tile % count)];
}

// The pixels of the result that a tile's rows compute; -1 where a row is none.
void AmxMatmul::pixels(int64_t tile, int64_t* to) const {
  const int64_t out_w = p_.out_w(), out_h = p_.out_h();
  if (starts_.empty()) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      const int64_t pixel = tile * kTileRows + i;
      to[i] = pixel < p_.images * out_h * out_w ? pixel : -1;
    }
    return;
  }
  const auto count = static_cast<int64_t>(starts_.size()) - 1;
  const auto local = static_cast<size_t>(tile % count);
  const int64_t first = tile / count * out_h * out_w;
  int64_t y = starts_[local] / row_, x = starts_[local] % row_, at = starts_[local];
  for (int64_t i = 0; i < kTileRows; ++i, x += p_.stride, at += p_.stride) {
    for (; x >= row_; x -= row_) ++y;
    const int64_t p = y / p_.stride, q = x / p_.stride;
    const bool is_one = at < starts_[local + 1] && y % p_.stride == 0 && x % p_.stride == 0 &&
                        p < out_h && q < out_w;
    to[i] = is_one ? first + p * out_w + q : -1;
  }
}

void AmxMatmul::divide() {
  panels_ = ceil_div(p_.o, kColumns);
  panel_ = rounded_up(ceil_div(depth_, ceil_div(depth_, kDepth)), kTileDepth);
  // enough chunks for all threads, as long as a panel is packed for many tiles
  const int64_t wanted = ceil_div(4 * threads_, std::max<int64_t>(panels_, 1));
  // What a panel reads again for every pixel of the kernel, or all that every panel reads.
  const int64_t channels = taps_ > 1 ? panel_ : depth_;
  const int64_t most = std::max<int64_t>(8, kChunkBytes / (kTileRows * channels * 2));
  chunk_ = std::clamp(ceil_div(tiles_, wanted), int64_t{4}, most);
  chunk_ = rounded_up(ceil_div(tiles_, std::max<int64_t>(1, ceil_div(tiles_, chunk_))), 2);
  chunks_ = tiles_ == 0 ? 0 : ceil_div(tiles_, chunk_);
  copy_bytes_ = in_place_ ? 0 : rounded_up(positions_ * depth_ * 2, kLine);
  own_bytes_ =
      rounded_up(taps_ * kColumns * panel_ * 2 + (chunk_ * kTileRows + 1) * kColumns * 4, 4096);
  scratch_bytes_ = copy_bytes_ + threads_ * own_bytes_ + kLine;
}

// Positions [row * row_, (row + 1) * row_), as far as there are so many.
void AmxMatmul::copy_row(const GemmArgs& args, uint16_t* to, int64_t row) const {
  const int64_t begin = row * row_, end = std::min(begin + row_, positions_);
  const int64_t y = row % height_ - p_.top, n = row / height_;
  const bool has_pixels = n < p_.images && y >= 0 && y < p_.h;
  const int64_t first = std::min(begin + p_.left, end);
  const int64_t last = has_pixels ? std::min(first + p_.w, end) : first;
  std::fill(to + begin * depth_, to + first * depth_, uint16_t{0});
  const auto* from = static_cast<const uint16_t*>(args.a) + (n * p_.h + y) * p_.w * p_.k;
  for (int64_t i = first; i < last; ++i, from += p_.k) {
    uint16_t* const at = to + i * depth_;
    std::memcpy(at, from, static_cast<size_t>(p_.k) * 2);
    std::fill(at + p_.k, at + depth_, uint16_t{0});
  }
  std::fill(to + last * depth_, to + end * depth_, uint16_t{0});
}

// The columns of one panel, and the scratch memory of a thread.
struct AmxMatmul::Panel {
  const GemmArgs& args;
  const uint16_t* a;
  int64_t column, count;  // the first one, and how many
  uint16_t* weights;      // packed
  float *bias, *sums;
};

AmxMatmul::Panel AmxMatmul::panel(const GemmArgs& args, const uint16_t* a, int64_t column) const {
  char* const own = reinterpret_cast<char*>(aligned(args.scratch)) + copy_bytes_ +
                    omp_get_thread_num() * own_bytes_;
  auto* const bias = reinterpret_cast<float*>(own + taps_ * kColumns * panel_ * 2);
  const int64_t count = std::min(kColumns, p_.o - column);
  std::fill_n(bias, kColumns, 0.0f);
  if (args.bias)
    visit_dtype(p_.bias, [&](auto zero) {
      const auto* const from = static_cast<const decltype(zero)*>(args.bias) + column;
      for (int64_t j = 0; j < count; ++j) bias[j] = static_cast<float>(from[j]);
    });
  return {args, a, column, count, reinterpret_cast<uint16_t*>(own), bias, bias + kColumns};
}

// Channels from k on, of every pixel of the kernel.
void AmxMatmul::pack(const Panel& to, int64_t k) const {
  const auto* const from = static_cast<const uint16_t*>(to.args.weights) + to.column * taps_ * p_.k;
  const int64_t width = std::min(panel_, p_.k - k), size = rounded_up(width, kTileDepth);
  for (int64_t t = 0; t < taps_; ++t)
    amx_->pack_right({.rows = to.count,
                      .width = width,
                      .from = from + t * p_.k + k,
                      .step = taps_ * p_.k,
                      .to = to.weights + t * size * kTileRows,
                      .to_step = taps_ * size * kTileRows});
}

// One or two tiles, to `sums`.
void AmxMatmul::multiply(const Panel& p, Tiles tiles, int64_t k, float* sums) const {
  const int64_t deep = ceil_div(std::min(panel_, p_.k - k), kTileDepth);
  const int64_t first = position(tiles.first), last = position(tiles.first + tiles.count - 1);
  amx_->gemm({.m = tiles.count,
              .n = ceil_div(p.count, kTileRows),
              .k = deep,
              .a = {.first = p.a + first * depth_ + k,
                    .row = p_.stride * depth_,
                    .next = kTileDepth,
                    .step = (last - first) * depth_},
              .b = p.weights,
              .b_step = taps_ * deep * kTileSize,
              .taps = taps_,
              .shifts = shifts_.data(),
              .c = sums,
              .c_row = kColumns,
              .accumulate = k > 0});
}

// Asks for the memory of the result, to be there when the tiles have been multiplied.
void AmxMatmul::prefetch(const Panel& p, std::span<const int64_t> pixels) const {
  const auto* const to = static_cast<const uint16_t*>(p.args.c) + p.column;
  for (const int64_t pixel : pixels)
    if (pixel >= 0) __builtin_prefetch(to + pixel * p_.o, 1);
}

void AmxMatmul::write(const Panel& p, std::span<const int64_t> pixels, const float* sums) const {
  const auto* const residual = static_cast<const uint16_t*>(p.args.residual);
  amx_->write({.rows = static_cast<int64_t>(pixels.size()),
               .columns = p.count,
               .sums = sums,
               .bias = p.bias,
               .pixels = pixels.data(),
               .residual = residual ? residual + p.column : nullptr,
               .residual_rows = p_.residual_rows,
               .to = static_cast<uint16_t*>(p.args.c) + p.column,
               .step = p_.o});
}

// A panel and a chunk of tiles.
void AmxMatmul::block(const GemmArgs& args, const uint16_t* a, int64_t index) const {
  const Panel p = panel(args, a, index % panels_ * kColumns);
  const int64_t begin = index / panels_ * chunk_, end = std::min(begin + chunk_, tiles_);
  int64_t rows[2 * kTileRows];
  for (int64_t k = 0; k < p_.k; k += panel_) {
    const bool last = k + panel_ >= p_.k;
    pack(p, k);
    for (int64_t i = begin; i < end; i += 2) {
      const Tiles tiles{i, std::min<int64_t>(2, end - i)};
      const std::span<const int64_t> filled(rows, static_cast<size_t>(tiles.count * kTileRows));
      float* const sums = p.sums + (i - begin) * kTileRows * kColumns;
      if (last) {
        for (int64_t j = 0; j < tiles.count; ++j) pixels(i + j, rows + j * kTileRows);
        prefetch(p, filled);
      }
      multiply(p, tiles, k, sums);
      if (last) write(p, filled, sums);
    }
  }
}

void AmxMatmul::run(const GemmArgs& args) const {
  const auto* a = static_cast<const uint16_t*>(args.a);
  uint16_t* const copy = aligned(args.scratch);
  if (!in_place_) a = copy;
#pragma omp parallel num_threads(threads_)
  {
    if (!in_place_) {
#pragma omp for
      for (int64_t row = 0; row < ceil_div(positions_, std::max<int64_t>(row_, 1)); ++row)
        copy_row(args, copy, row);
    }
    amx_->begin();
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < panels_ * chunks_; ++i) block(args, a, i);
    amx_->end();
  }
}

}  // namespace ebb::cpu
