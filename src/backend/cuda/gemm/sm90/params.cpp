#include "backend/cuda/gemm/sm90/params.h"

#include <algorithm>

#include "backend/cuda/kit/tma.h"
#include "base/round_up.h"

namespace ebb::cuda::gemm {
namespace {

constexpr int64_t step = 64;  // values of k

Format format_of(DType t) { return t == DType::f16 ? Format::f16 : Format::bf16; }
int narrow(int64_t v) { return static_cast<int>(v); }
int steps_of(int64_t k) { return narrow(ceil_div(k, step)); }
int blocks_of(const Choice& c) {
  return c.cluster_split_k ? c.split_k : c.multicast == Multicast::none ? 1 : 2;
}

// ---- operands ----------------------------------------------------------------------------------

// A matrix of `rows` x k of a batch, as it is stored.
struct Matrix {
  const void* data;
  int64_t rows, k, count;
  bool transposed;
};

CUtensorMap matrix_map(const Problem& p, const Matrix& m, int tile, bool half) {
  const int64_t inner = m.transposed ? m.rows : m.k, outer = m.transposed ? m.k : m.rows;
  const int box = m.transposed ? narrow(step) : tile;
  return tiled_map(
      {.data = m.data,
       .format = format_of(p.type),
       .size = {inner, outer, m.count, 1},
       .stride = {inner, inner * outer, 0}},
      {.inner = m.transposed && narrow_rows(tile) ? 32 : 64, .outer = half ? box / 2 : box});
}

// Weights [out, tap, in], a matrix for each tap.
CUtensorMap weights_map(const Problem& p, const Operands& o, int tile, bool half) {
  const bool rotated = p.form != Form::fprop;
  const int64_t rows = rotated ? p.k : p.n, c = rotated ? p.n : p.k;
  const int64_t taps = p.taps() * p.images.up * p.images.up;
  const int box = rotated ? narrow(step) : tile;
  return tiled_map({.data = o.b,
                    .format = format_of(p.type),
                    .size = {c, rows, taps, 1},
                    .stride = {taps * c, c, 0}},
                   {.inner = 64, .outer = half ? box / 2 : box});
}

CUtensorMap pixels_map(const Problem& p, const void* data, int pixels) {
  const Images& i = p.images;
  return images_map({.data = data,
                     .format = format_of(p.type),
                     .n = i.n,
                     .h = i.h,
                     .w = i.w,
                     .c = i.c,
                     .stride = i.stride,
                     .top = i.top,
                     .left = i.left,
                     .bottom = i.bottom,
                     .right = i.right},
                    pixels);
}

void set_maps(Params& q, const Problem& p, const Choice& c, const Operands& o) {
  const bool half_a = c.multicast == Multicast::a, half_b = c.multicast == Multicast::b;
  if (a_images(p.form))
    q.a = pixels_map(p, o.a, half_a ? c.tile_m / 2 : c.tile_m);
  else
    q.a = matrix_map(p, {o.a, p.m, p.k, p.repeat_a ? 1 : p.batch, a_transposed(p.form)}, c.tile_m,
                     half_a);
  if (b_images(p.form))
    q.b = pixels_map(p, o.b, half_b ? 32 : 64);
  else if (a_images(p.form))
    q.b = weights_map(p, o, c.tile_n, half_b);
  else
    q.b = matrix_map(p, {o.b, p.n, p.k, p.repeat_b ? 1 : p.batch, b_transposed(p.form)}, c.tile_n,
                     half_b || p.half() > 0);
}

// The products behind the steps of the first.
void set_further_products(SumParams& q, const Problem& p, const Choice& c, const Operands& o) {
  const bool half_b = c.multicast == Multicast::b || p.half() > 0;
  int first = q.k_blocks * q.taps.by;
  for (size_t i = 0; i < std::size(q.more); ++i) {
    const int64_t k = p.more_k[i];
    q.more[i].first = first;
    first += steps_of(k);
    if (k == 0) continue;
    q.more[i].a =
        matrix_map(p, {o.more[i].a, p.m, k, 1, false}, c.tile_m, c.multicast == Multicast::a);
    q.more[i].b = matrix_map(p, {o.more[i].b, p.n, k, 1, b_transposed(p.form)}, c.tile_n, half_b);
  }
}

void set_result(Params& q, const Problem& p, const Operands& o) {
  q.out = o.out;
  q.kept = p.keep ? o.kept : nullptr;
  q.post = p.post;
  q.activation = p.activation;
  q.half = narrow(p.half());
  q.gate_first = p.gate_first;
  q.partials = static_cast<float*>(o.workspace);
  q.bias = o.bias;
  q.bias_type = p.bias_type;
  q.residual = o.residual;
  q.grad_at = o.grad_at;
  q.scale = p.scale_rows > 0 ? o.scale : nullptr;
  q.scale_pitch = narrow(p.scale_pitch);
  q.scale_rows = FastDiv(p.scale_rows);
  q.residual_type = p.residual_type;
  q.residual_rows = p.residual ? narrow(p.residual_rows) : 0;
  q.out_matrix = p.m * p.n;
  constexpr int64_t vector = 16;  // bytes
  const int64_t inner = p.form == Form::wgrad ? p.images.c : p.n;
  const bool vectors = inner * size_of(p.out) % vector == 0;
  const bool floats = p.out == DType::f32;
  q.store = floats ? (vectors ? Store::float_subtiles : Store::floats)
                   : (vectors ? Store::subtiles : Store::elements);
}

// Tiles that work on the same rows, those past the last column too.
int64_t tiles_along_n(const Problem& p, const Choice& c) {
  return groups(p, c).n * (c.multicast == Multicast::a ? 2 : 1);
}

int64_t partials_bytes(const Problem& p, const Choice& c) {
  if (c.split_k == 1 || c.cluster_split_k) return 0;
  const Groups g = groups(p, c);
  const int64_t rest = std::max<int64_t>(0, g.m * g.n * p.batch - c.data_parallel);
  return rest * c.split_k * blocks_of(c) * c.tile_m * c.tile_n * size_of(DType::f32);
}

// Rows of factors are read as the bias is: a tile needs one.
bool can_scale(const Problem& p) {
  return p.form == Form::nt && p.post == Post::add && p.batch == 1 && p.out == p.type &&
         p.scale_rows % 128 == 0;
}

}  // namespace

Params params_of(const Problem& p, const Choice& c, const Operands& o) {
  Params q = {};
  const Images& i = p.images;
  const int64_t channel_blocks = ceil_div(i.c, step);
  q.m = narrow(p.m);
  q.n = narrow(p.n);
  q.multicast = c.multicast;
  q.groups_m = narrow(groups(p, c).m);
  q.groups_n = narrow(groups(p, c).n);
  constexpr int rows_at_once = 2048;  // of A; the rest of a wave of blocks lies along n
  const int64_t raster =
      std::max(1, rows_at_once / (c.tile_m * (c.multicast == Multicast::b ? 2 : 1)));
  q.raster = FastDiv(raster);
  q.last_raster = FastDiv((q.groups_m - 1) % raster + 1);
  q.tiles = FastDiv(int64_t{q.groups_m} * q.groups_n);
  q.raster_tiles = FastDiv(raster * q.groups_n);
  q.k_blocks = steps_of(p.k);
  const int taps = a_images(p.form) || b_images(p.form) ? narrow(p.taps()) : 1;
  q.taps = FastDiv(taps);
  q.steps = a_images(p.form) ? q.k_blocks * taps : q.k_blocks;
  for (const int64_t k : p.more_k) q.steps += steps_of(k);
  q.split_steps = q.steps / c.split_k;
  q.longer_splits = q.steps % c.split_k;
  const int tiles = q.groups_m * q.groups_n * narrow(p.batch);
  q.data_parallel = c.split_k > 1 ? std::min(c.data_parallel, tiles) : tiles;
  q.rest = FastDiv(tiles - q.data_parallel);
  q.split_k = c.split_k;
  q.work_units = c.cluster_split_k ? tiles : q.data_parallel + q.rest.by * q.split_k;
  q.cluster = blocks_of(c);
  q.cluster_split_k = c.cluster_split_k;
  q.a_batch = p.repeat_a ? 0 : 1;
  q.b_batch = p.repeat_b ? 0 : 1;
  q.out_w = FastDiv(i.out_w);
  q.out_h = narrow(i.out_h);
  q.out_hw = FastDiv(i.out_h * i.out_w);
  q.stride = i.stride;
  q.top = i.top;
  q.left = i.left;
  q.kw = FastDiv(i.kw);
  q.up = FastDiv(i.up);
  q.up_top = i.up_top;
  q.up_left = i.up_left;
  q.channels = narrow(i.c);
  q.channel_blocks = FastDiv(channel_blocks);
  if (p.row_sums) {
    q.row_sums = reinterpret_cast<float*>(static_cast<char*>(o.workspace) + partials_bytes(p, c));
    q.row_sum_tiles = narrow(tiles_along_n(p, c));
  }
  set_maps(q, p, c, o);
  set_result(q, p, o);
  return q;
}

SumParams sum_params_of(const Problem& p, const Choice& c, const Operands& o) {
  SumParams q = {params_of(p, c, o), {}};
  set_further_products(q, p, c, o);
  return q;
}

void set_l2_prefetch(Params& q, const Problem& p, const Operands& o, int64_t blocks) {
  constexpr int64_t most = 5 << 20;  // more would be in the way of what is read first
  constexpr int64_t line = 128, vector = 16;
  if (a_images(p.form) || b_images(p.form)) return;
  const int64_t each = p.k * size_of(p.type);
  const int64_t a = p.m * each * (p.repeat_a ? 1 : p.batch);
  const int64_t b = p.n * each * (p.repeat_b ? 1 : p.batch);
  if (a + b > most) return;
  const auto prefetch = [&](const void* data, int64_t bytes) {
    return L2Prefetch{
        .data = static_cast<const char*>(data),
        .bytes = bytes / vector * vector,
        .bytes_per_cta = static_cast<uint32_t>(ceil_div(bytes, blocks * line) * line)};
  };
  q.prefetch_a = prefetch(o.a, a);
  q.prefetch_b = prefetch(o.b, b);
}

Groups groups(const Problem& p, const Choice& c) {
  const bool halves = p.half() > 0;  // a tile has as many columns of each
  const int64_t columns = p.form == Form::wgrad ? p.taps() * ceil_div(p.images.c, step) * step
                                                : (halves ? p.half() : p.n);
  const int tile_n = halves ? c.tile_n / 2 : c.tile_n;
  return {ceil_div(p.m, c.tile_m * (c.multicast == Multicast::b ? 2 : 1)),
          ceil_div(columns, tile_n * (c.multicast == Multicast::a ? 2 : 1))};
}

int64_t workspace_bytes(const Problem& p, const Choice& c) {
  const int64_t rows = p.row_sums ? 2 * tiles_along_n(p, c) * c.split_k * p.m : 0;
  return partials_bytes(p, c) + rows * size_of(DType::f32);
}

bool can_finish(const Problem& p) {
  if (p.row_sums && (!sums_rows(p.form) || p.batch != 1)) return false;
  if (p.scale_rows > 0 && !can_scale(p)) return false;
  if (!p.residual && p.post == Post::add) return true;
  if (a_transposed(p.form) || p.form == Form::phases) return false;
  if ((p.post == Post::gate) != (p.form == Form::gated)) return false;
  if (p.form == Form::gated && (p.batch != 1 || p.n % 16 != 0)) return false;
  if (p.post != Post::add)  // 16-byte vectors
    return !p.residual && p.out == p.type && p.n % 8 == 0;
  if (p.residual_rows == 1)  // 16-byte vectors
    return p.residual_type == p.type && p.out == p.type && p.n % 8 == 0;
  // a warp's 16 rows share one, which is read by pairs
  return p.residual_rows % 16 == 0 && (p.batch == 1 || p.m % 16 == 0) && p.n % 2 == 0 &&
         (p.residual_type == p.type || p.residual_type == DType::f32);
}

bool can_load(const Problem& p) {
  constexpr int64_t most = int64_t{1} << 31;
  const auto rows_fit = [](int64_t inner) { return inner % 8 == 0; };
  if (p.type != DType::bf16 && p.type != DType::f16) return false;
  if (p.out != DType::f32 && p.out != p.type) return false;
  if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.batch <= 0) return false;
  if (p.m >= most || p.n >= most || p.k >= most || p.batch >= most) return false;
  if (!rows_fit(a_transposed(p.form) ? p.m : a_images(p.form) ? p.images.c : p.k)) return false;
  if (!rows_fit(b_transposed(p.form) ? p.n : p.k)) return false;
  if (p.more_k[0] > 0 && (!sums_products(p.form) || p.batch > 1)) return false;
  if (!rows_fit(p.more_k[0]) || !rows_fit(p.more_k[1])) return false;
  if (!a_images(p.form) && !b_images(p.form)) return true;
  const Images& i = p.images;
  const auto corner = [](int v) { return v >= -128 && v <= 127; };
  return rows_fit(i.c) && i.stride <= 8 && i.kh <= 128 && i.kw <= 128 && corner(-i.top) &&
         corner(-i.left) && corner(i.bottom) && corner(i.right);
}

}  // namespace ebb::cuda::gemm
