#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/evaluator.h"
#include "backend/cpu/map.h"

namespace ebb::cpu {
namespace {

// Work that one job of a split reduction takes, in elements. A constant, so that sums do not
// depend on the number of threads.
constexpr int64_t job_elements = 1 << 16;

}  // namespace

// The space is [kept..., reduced..., inner...]: `kept` leading dims, then a run of reduced dims,
// then inner dims of either kind. Jobs sum the run into a vector of inner size; jobs of the same
// kept index are then added in order, and reduced inner dims folded.
struct ReducePass::State {
  Tape tape;
  std::vector<Type> in;
  Options options;
  IterationSpace space;
  int64_t elements = 0;
  int64_t kept_dims = 0, run_end = 0;  // dims [kept_dims, run_end) are the run
  int64_t kept = 1, inner = 1, numel = 0, outputs = 1;
  int64_t chunks = 1;  // chunks (jobs) per kept index
  Split split;
  bool rows = false;  // blocks of full rows, each row one result
  int threads = 1;

  int64_t accumulators() const { return rows ? 0 : kept * chunks * inner * results(); }
  int64_t results() const { return static_cast<int64_t>(tape.result_slot.size()); }
};

ReducePass::ReducePass(const Expr& expr, const Shape& shape, std::vector<Type> in,
                       const Options& options) {
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()));
  for (const int64_t d : options.dims) reduced[static_cast<size_t>(d)] = true;
  auto s = std::make_shared<State>(State{Tape(expr), std::move(in), options, {}, 0});
  s->space = make_iteration_space(shape, s->in, reduced);
  s->numel = shape.numel();
  const IterationSpace& sp = s->space;
  while (s->kept_dims < sp.rank() && !sp.reduced[static_cast<size_t>(s->kept_dims)]) ++s->kept_dims;
  s->run_end = s->kept_dims;
  while (s->run_end < sp.rank() && sp.reduced[static_cast<size_t>(s->run_end)]) ++s->run_end;
  s->kept = sp.numel(0, s->kept_dims);
  s->inner = sp.numel(s->run_end, sp.rank());
  s->outputs = s->kept;
  for (int64_t d = s->run_end; d < sp.rank(); ++d)
    if (!sp.reduced[static_cast<size_t>(d)]) s->outputs *= sp.sizes[static_cast<size_t>(d)];
  s->elements = block_elements(s->tape);
  const int64_t row = sp.numel(s->kept_dims, sp.rank());
  // nothing to reduce, or one dim at the end that fits into a block: rows
  s->rows = s->run_end == sp.rank() && s->run_end - s->kept_dims <= 1 && s->kept_dims > 0 &&
            row > 0 && row * 2 <= s->elements;
  if (s->kept_dims == sp.rank()) s->rows = true;
  if (s->rows)
    s->split = make_split(sp, std::max<int64_t>(s->kept_dims - 1, 0), s->elements);
  else
    s->split = make_split(sp, s->run_end - 1, s->elements);
  const int64_t work = s->kept > 0 ? s->numel / std::max<int64_t>(s->kept, 1) : 0;
  const int64_t blocks = s->rows || s->kept == 0 ? 1 : blocks_of(sp, s->split) / s->kept;
  s->chunks = std::clamp<int64_t>(work / job_elements, 1,
                                  std::max<int64_t>(1, std::min<int64_t>(64, blocks)));
  if (s->inner > 1 && s->split.dim >= s->run_end)
    s->chunks = 1;  // blocks lie across the inner dims
  s->threads = s->numel < worth_threads ? 1 : omp_get_max_threads();
  state_ = s;
}

ReducePass::~ReducePass() = default;

int64_t ReducePass::workspace() const {
  const State& s = *state_;
  return s.threads * Evaluator::bytes(s.tape, s.elements) + 8 * s.accumulators();
}

namespace {

template <class S>
void put(const S& s, std::span<void* const> out, size_t k, int64_t at, double value) {
  const auto v = static_cast<float>(value);
  if (s.options.out[k] == DType::f32)
    static_cast<float*>(out[k])[at] = v;
  else
    store(out[k], s.options.out[k], at, &v, 1);
}

// ---- rows: a block holds whole rows, each of them one result -------------------------------

template <class S>
void run_rows(const S& s, std::span<void* const> in, std::span<void* const> out, float* memory) {
  const int64_t blocks = blocks_of(s.space, s.split),
                stride = Evaluator::bytes(s.tape, s.elements) / 4;
  const bool nothing = s.kept_dims == s.space.rank();
  const int64_t row = nothing ? 1 : s.space.sizes.back();
#pragma omp parallel num_threads(s.threads)
  {
    const int64_t id = omp_get_thread_num(), team = omp_get_num_threads();
    const BlockReader reader(s.space, s.in, s.split.dim);
    Evaluator eval(s.tape, reader, in, memory + id * stride, s.elements);
    std::vector<int64_t> index(static_cast<size_t>(s.space.rank()));
    for (int64_t b = blocks * id / team; b < blocks * (id + 1) / team; ++b) {
      const int64_t count = block_index(s.space, s.split, b, index), n = count * s.split.inner;
      int64_t offset = 0;
      for (int64_t d = 0; d <= s.split.dim; ++d)
        offset = offset * s.space.sizes[static_cast<size_t>(d)] + index[static_cast<size_t>(d)];
      offset = offset * s.split.inner / row;
      eval.run(index, count, n);
      for (size_t k = 0; k < out.size(); ++k) {
        for (int64_t r = 0; r < n / row; ++r) {
          const float* x = eval.result(k) + r * row;
          put(s, out, k, offset + r,
              s.options.maximum ? loops().max(x, row) : s.options.scale * loops().sum(x, row));
        }
      }
    }
  }
}

// ---- jobs ------------------------------------------------------------------------------------

// Sums the blocks [first, last) into acc, [results, inner].
template <class S>
void run_job(const S& s, Evaluator& eval, int64_t first, int64_t last, double* acc) {
  std::vector<int64_t> index(static_cast<size_t>(s.space.rank()));
  const double start = s.options.maximum ? -std::numeric_limits<double>::infinity() : 0.0;
  std::fill(acc, acc + s.results() * s.inner, start);
  for (int64_t b = first; b < last; ++b) {
    const int64_t count = block_index(s.space, s.split, b, index), n = count * s.split.inner;
    eval.run(index, count, n);
    int64_t at = 0;  // where the block begins within the inner dims
    for (int64_t d = s.run_end; d <= s.split.dim; ++d)
      at = at * s.space.sizes[static_cast<size_t>(d)] + index[static_cast<size_t>(d)];
    at *= s.split.dim >= s.run_end ? s.split.inner : 0;
    const bool within = s.split.dim >= s.run_end;  // the block lies within one index of the run
    for (int64_t k = 0; k < s.results(); ++k) {
      const float* x = eval.result(static_cast<size_t>(k));
      double* a = acc + k * s.inner + at;
      if (s.inner == 1) {
        *a = s.options.maximum ? std::max(*a, loops().max(x, n)) : *a + loops().sum(x, n);
      } else {
        const int64_t rows = within ? 1 : count, width = within ? n : s.inner;
        (s.options.maximum ? loops().max_rows : loops().add_rows)(a, x, rows, width);
      }
    }
  }
}

// Adds the chunks of one kept index in order, folds the reduced inner dims and writes the results.
template <class S>
void finish(const S& s, int64_t kept, const double* acc, std::span<void* const> out) {
  const int64_t per_kept = s.outputs / std::max<int64_t>(s.kept, 1);
  const int64_t size = s.results() * s.inner;
  std::vector<double> total(static_cast<size_t>(per_kept));
  for (int64_t k = 0; k < s.results(); ++k) {
    std::fill(total.begin(), total.end(),
              s.options.maximum ? -std::numeric_limits<double>::infinity() : 0.0);
    for (int64_t i = 0; i < s.inner; ++i) {
      int64_t to = 0, rest = i, scale = 1;
      for (int64_t d = s.space.rank() - 1; d >= s.run_end; --d) {
        const int64_t n = s.space.sizes[static_cast<size_t>(d)];
        if (!s.space.reduced[static_cast<size_t>(d)]) {
          to += rest % n * scale;
          scale *= n;
        }
        rest /= n;
      }
      for (int64_t p = 0; p < s.chunks; ++p) {
        const double v = acc[(kept * s.chunks + p) * size + k * s.inner + i];
        double& t = total[static_cast<size_t>(to)];
        t = s.options.maximum ? std::max(t, v) : t + v;
      }
    }
    const double scale = s.options.maximum ? 1 : s.options.scale;
    for (int64_t i = 0; i < per_kept; ++i)
      put(s, out, static_cast<size_t>(k), kept * per_kept + i,
          scale * total[static_cast<size_t>(i)]);
  }
}

template <class S>
void run_jobs(const S& s, std::span<void* const> in, std::span<void* const> out, float* memory) {
  const int64_t stride = Evaluator::bytes(s.tape, s.elements) / 4;
  double* acc = reinterpret_cast<double*>(memory + s.threads * stride);
  const int64_t blocks = s.kept > 0 ? blocks_of(s.space, s.split) / s.kept : 0;
  const int64_t jobs = s.kept * s.chunks, size = s.results() * s.inner;
#pragma omp parallel num_threads(s.threads)
  {
    const BlockReader reader(s.space, s.in, s.split.dim);
    Evaluator eval(s.tape, reader, in, memory + omp_get_thread_num() * stride, s.elements);
#pragma omp for schedule(static)
    for (int64_t j = 0; j < jobs; ++j) {
      const int64_t kept = j / s.chunks, p = j % s.chunks;
      run_job(s, eval, kept * blocks + blocks * p / s.chunks,
              kept * blocks + blocks * (p + 1) / s.chunks, acc + j * size);
    }
#pragma omp for schedule(static)
    for (int64_t k = 0; k < s.kept; ++k) finish(s, k, acc, out);
  }
}

}  // namespace

void ReducePass::run(std::span<void* const> in, std::span<void* const> out, void* workspace) const {
  const State& s = *state_;
  if (s.outputs == 0) return;
  auto* memory = static_cast<float*>(workspace);
  s.rows ? run_rows(s, in, out, memory) : run_jobs(s, in, out, memory);
}

}  // namespace ebb::cpu
