#include "backend/cpu/map.h"

#include <omp.h>

#include <algorithm>

#include "backend/cpu/evaluator.h"

namespace ebb::cpu {

struct MapPass::State {
  Tape tape;
  std::vector<Type> in;
  std::vector<DType> out;
  IterationSpace space;
  int64_t elements;
  Split split;
  int64_t numel;
  int threads;
};

MapPass::MapPass(const Expr& expr, const Shape& shape, std::vector<Type> in,
                 std::vector<DType> out) {
  const Tape tape(expr);
  IterationSpace space =
      make_iteration_space(shape, in, std::vector<bool>(static_cast<size_t>(shape.rank())));
  const int64_t elements = block_elements(tape);
  const Split split = make_split(space, 0, elements);
  const int threads = shape.numel() < worth_threads ? 1 : omp_get_max_threads();
  state_ = std::make_shared<State>(State{tape, std::move(in), std::move(out), std::move(space),
                                         elements, split, shape.numel(), threads});
}

MapPass::~MapPass() = default;

int64_t MapPass::workspace() const {
  return state_->threads * Evaluator::bytes(state_->tape, state_->elements);
}

namespace {

// Whether writing result k at once into `out` could spoil an input that is read later.
bool spoils(const Tape& t, size_t k, std::span<void* const> in, const void* out) {
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i] == out && t.input_last[i] > t.result_op[k]) return true;
  for (size_t i = 0; i < in.size(); ++i)  // another result would be read from the same memory
    for (size_t r = 0; r < t.result_slot.size(); ++r)
      if (in[i] == out && t.result_slot[r] == t.input_slot[i]) return true;
  return false;
}

// Slots of inputs that are results themselves and lie in the memory of some output.
std::vector<int32_t> overwritten_inputs(const Tape& t, std::span<void* const> in,
                                        std::span<void* const> out) {
  std::vector<int32_t> slots;
  for (size_t i = 0; i < in.size(); ++i) {
    const bool result = std::find(t.result_slot.begin(), t.result_slot.end(), t.input_slot[i]) !=
                        t.result_slot.end();
    if (result && std::find(out.begin(), out.end(), in[i]) != out.end())
      slots.push_back(t.input_slot[i]);
  }
  return slots;
}

}  // namespace

void MapPass::run(std::span<void* const> in, std::span<void* const> out, void* workspace) const {
  const State& s = *state_;
  if (s.numel == 0) return;
  const size_t results = s.out.size();
  std::vector<bool> direct(results);  // made right in the output's memory
  for (size_t k = 0; k < results; ++k) {
    bool first = s.tape.result_op[k] >= 0;
    for (size_t j = 0; j < k; ++j) first = first && s.tape.result_slot[j] != s.tape.result_slot[k];
    direct[k] = s.out[k] == DType::f32 && first && !spoils(s.tape, k, in, out[k]);
  }
  const std::vector<int32_t> kept = overwritten_inputs(s.tape, in, out);
  const int64_t blocks = blocks_of(s.space, s.split);
  const int64_t memory = Evaluator::bytes(s.tape, s.elements) / 4;
#pragma omp parallel num_threads(s.threads)
  {
    const int64_t id = omp_get_thread_num(), team = omp_get_num_threads();
    const BlockReader reader(s.space, s.in, s.split.dim);
    Evaluator eval(s.tape, reader, in, static_cast<float*>(workspace) + id * memory, s.elements);
    std::vector<int64_t> index(static_cast<size_t>(s.space.rank()));
    for (int64_t b = blocks * id / team; b < blocks * (id + 1) / team; ++b) {
      const int64_t count = block_index(s.space, s.split, b, index);
      int64_t offset = 0;
      for (int64_t d = 0; d <= s.split.dim; ++d)
        offset = offset * s.space.sizes[static_cast<size_t>(d)] + index[static_cast<size_t>(d)];
      offset *= s.split.inner;
      const int64_t n = count * s.split.inner;
      for (size_t k = 0; k < results; ++k)
        if (direct[k]) eval.redirect(s.tape.result_slot[k], static_cast<float*>(out[k]) + offset);
      eval.run(index, count, n);
      for (const int32_t slot : kept) eval.keep(slot, n);
      for (size_t k = 0; k < results; ++k) store(out[k], s.out[k], offset, eval.result(k), n);
    }
  }
}

}  // namespace ebb::cpu
