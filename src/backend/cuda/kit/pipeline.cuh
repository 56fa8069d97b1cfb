// Pipelines of stages in shared memory between producers and consumers: each stage has a full
// barrier, at which who fills it arrives, and an empty barrier, at which who has read it arrives.
#pragma once

#include "backend/cuda/kit/mbarrier.cuh"

namespace ebb::cuda {

inline constexpr int dynamic_stages = 0;

// The current stage of one side of a pipeline: its index, and the parity of the phase of its
// barriers. Both sides begin at stage 0 in phase 0; a Pipeline's producers wait for the phase
// before.
template <int Stages>
struct PipelineState {
  int index = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    if (++index == Stages) index = 0, phase ^= 1;
  }
};

// The same with a number of stages that is known at run time.
template <>
struct PipelineState<dynamic_stages> {
  int stages;
  uint32_t phase = 0;
  int index = 0;

  __device__ __forceinline__ void advance() {
    if (++index == stages) index = 0, phase ^= 1;
  }
  __device__ __forceinline__ void advance(int steps) {
    index += steps;
    phase ^= index / stages % 2;
    index %= stages;
  }
};

// The state at use number `use`.
template <int Stages>
__device__ __forceinline__ PipelineState<Stages> pipeline_state(unsigned use) {
  return {static_cast<int>(use % Stages), use / Stages & 1};
}

// The barriers of at most `Stages` stages, the full ones, then the empty ones: from number `first`
// on of those at address `barriers`.
template <int Stages>
struct Pipeline {
  uint32_t barriers;
  int first = 0;

  __device__ __forceinline__ uint32_t full(int stage) const {
    return barriers + (first + stage) * 8;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(Stages + stage); }

  // With the numbers of arrivals at the barriers of a stage.
  __device__ __forceinline__ void init(int stage, unsigned producers, unsigned consumers) const {
    barrier_init(full(stage), producers);
    barrier_init(empty(stage), consumers);
  }
  // Waits until the stage has been read in its previous phase; at once in the first one.
  template <int N>
  __device__ __forceinline__ void producer_acquire(const PipelineState<N>& s) const {
    barrier_wait(empty(s.index), s.phase ^ 1);
  }
  template <int N>
  __device__ __forceinline__ void consumer_wait(const PipelineState<N>& s) const {
    barrier_wait(full(s.index), s.phase);
  }
};

}  // namespace ebb::cuda
