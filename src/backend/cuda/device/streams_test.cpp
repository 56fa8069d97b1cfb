// OnStream: what a thread enqueues goes to the caller's stream, and of other threads nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "backend/cuda/device/device.h"
#include "backend/cuda/device/thread_state.h"
#include "backends.h"
#include "ops/prim/pointwise/op.h"
#include "runtime/compiled_function.h"

namespace ebb::cuda {
namespace {

TEST(OnDevice, another_gpu__is_the_current_one_for_a_scope) {
  int count = 0, now = -1;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) GTEST_SKIP() << "needs two GPUs";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    const OnDevice there(1);
    cudaGetDevice(&now);
    EXPECT_EQ(now, 1);
    void* memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, 1), cudaSuccess);
    cudaPointerAttributes of_memory = {};
    cudaPointerGetAttributes(&of_memory, memory);
    EXPECT_EQ(of_memory.device, 1);
    cudaFree(memory);
  }
  cudaGetDevice(&now);
  EXPECT_EQ(now, 0);
}

class Streams : public test::OnEachBackend {
 protected:
  CudaDevice& device() { return of(*context_.device); }
};

// A stream of a test, and an array on it.
struct Line {
  Line(CudaDevice& d, const CompiledFunction& f) : device(d), function(f) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    at = Tensor(f.inputs()[0], d.allocate(f.inputs()[0].bytes()));
    next = Tensor(f.inputs()[0], d.allocate(f.inputs()[0].bytes()));
    d.synchronize();
  }
  ~Line() { cudaStreamDestroy(stream); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // at += 1, `times` times: right only if each call comes after the one before.
  void count(int times) {
    const OnStream here(device, stream);
    for (int i = 0; i < times; ++i) {
      void *from[] = {at.raw()}, *to[] = {next.raw()};
      function.run({from, to});
      std::swap(at, next);
    }
  }
  float last() {
    cudaStreamSynchronize(stream);
    Tensor host(at.type());
    device.copy(at, host);
    return host.span<float>().back();
  }

  CudaDevice& device;
  const CompiledFunction& function;
  cudaStream_t stream = nullptr;
  Tensor at, next;
};

CompiledFunction plus_one(const Context& context) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {1 << 20}});
  g.output("y", ops::map({x}, [](auto v) { return v[0] + 1.0; }));
  return {g, context};
}

TEST_P(Streams, each_thread_has_its_own) {
  const CompiledFunction f = plus_one(context_);
  ASSERT_EQ(f.workspace_bytes(), 0);
  Line a(device(), f), b(device(), f);
  {
    std::jthread one([&] { a.count(100); }), two([&] { b.count(50); });
  }
  EXPECT_EQ(a.last(), 100.0f);
  EXPECT_EQ(b.last(), 50.0f);
}

TEST_P(Streams, the_innermost_counts_and_the_device_has_its_own_again) {
  CudaDevice& d = device();
  const cudaStream_t own = d.stream();
  cudaStream_t s = nullptr, t = nullptr;
  ASSERT_EQ(cudaStreamCreate(&s), cudaSuccess);
  ASSERT_EQ(cudaStreamCreate(&t), cudaSuccess);
  {
    const OnStream outer(d, s);
    EXPECT_EQ(d.stream(), s);
    {
      const OnStream inner(d, t);
      EXPECT_EQ(d.stream(), t);
      EXPECT_FALSE(d.take_early_start());  // what is before it is not known
      EXPECT_TRUE(d.take_early_start());
    }
    EXPECT_EQ(d.stream(), s);
    std::jthread([&] { EXPECT_EQ(d.stream(), own); });
  }
  EXPECT_EQ(d.stream(), own);
  cudaStreamDestroy(s);
  cudaStreamDestroy(t);
}

TEST_P(Streams, a_call_is_captured_by_a_graph_of_the_caller) {
  const CompiledFunction f = plus_one(context_);
  Line line(device(), f);
  line.count(2);  // compiled code is loaded by the first call
  line.last();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(line.stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  line.count(2);
  ASSERT_EQ(cudaStreamEndCapture(line.stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec, line.stream), cudaSuccess);
  EXPECT_EQ(line.last(), 8.0f);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

// More small ones than a pinned buffer holds, and both sides of what is small.
TEST_P(Streams, results__come_together_whatever_their_size) {
  CudaDevice& d = device();
  d.fetch({});
  std::vector<Device::Copied> all;
  for (int64_t k = 0; k < 300; ++k) {
    const Tensor host(DType::f32, {k % 3 == 0 ? 1024 : k % 3 == 1 ? 1025 : 1});
    std::ranges::fill(host.span<float>(), static_cast<float>(k));
    const Tensor there(host.type(), d.allocate(host.bytes()));
    d.copy(host, there);
    all.push_back({there, Tensor(host.type())});
  }
  d.fetch(all);
  for (size_t k = 0; k < all.size(); ++k)
    for (const float v : all[k].to.span<float>()) ASSERT_EQ(v, static_cast<float>(k));
}

TEST_P(Streams, copies_beside__go_on_while_another_thread_captures) {
  CudaDevice& d = device();
  const Tensor host(DType::f32, {1 << 20});
  std::ranges::fill(host.span<float>(), 7.0f);
  const Tensor beside(host.type(), d.allocate(host.bytes()));
  const Tensor main(host.type(), d.allocate(host.bytes()));
  d.synchronize();
  const auto graph = d.capture([&] {
    std::jthread([&] { d.run_beside([&] { d.copy(host, beside); }); }).join();
    d.copy(beside, main);
  });
  ASSERT_TRUE(graph);
  graph->run();
  const Tensor out(host.type());
  d.copy(main, out);
  EXPECT_EQ(out.span<float>().back(), 7.0f);
}

INSTANTIATE_TEST_SUITE_P(cuda, Streams, ::testing::Values("cuda"));

}  // namespace
}  // namespace ebb::cuda
