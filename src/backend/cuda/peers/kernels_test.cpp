#include "backend/cuda/peers/kernels.h"

#include <gtest/gtest.h>

#include <vector>

#include "backends.h"

namespace ebb::cuda::peers {
namespace {

class PeerKernels : public test::OnEachBackend {
 protected:
  CudaDevice& device() { return of(*context_.device); }
  template <class T>
  T* on_device(const std::vector<T>& host) {
    memory_.push_back(device().allocate(static_cast<int64_t>(host.size() * sizeof(T)) + 64));
    device().synchronize();  // new memory is cleared on the device's stream
    cudaMemcpy(memory_.back()->data(), host.data(), host.size() * sizeof(T), cudaMemcpyDefault);
    cudaDeviceSynchronize();  // what the host could page out may still be on its way
    return static_cast<T*>(memory_.back()->data());
  }
  template <class T>
  std::vector<T> on_host(const T* data, size_t count) {
    device().synchronize();
    std::vector<T> out(count);
    cudaMemcpy(out.data(), data, count * sizeof(T), cudaMemcpyDefault);
    return out;
  }

 private:
  std::vector<std::shared_ptr<Buffer>> memory_;
};
INSTANTIATE_TEST_SUITE_P(cuda, PeerKernels, testing::Values("cuda"));

// More entries than a launch takes, of lengths with and without a tail, at any byte.
TEST_P(PeerKernels, moves) {
  std::vector<uint8_t> from(1 << 18);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  uint8_t* const in = on_device(from);
  uint8_t* const out = on_device(std::vector<uint8_t>(from.size()));
  std::vector<uint8_t> wanted(from.size());
  std::vector<Link::Move> moves;
  for (size_t n = 0; n < 600; ++n) {
    const size_t at = n * 400, bytes = n * 37 % 390, shift = n % 3 == 0 ? 0 : n % 5;
    moves.push_back({out + at, in + at + shift, static_cast<int64_t>(bytes)});
    std::copy_n(from.begin() + static_cast<int64_t>(at + shift), bytes,
                wanted.begin() + static_cast<int64_t>(at));
  }
  std::erase_if(moves, [](const Link::Move& m) { return m.bytes == 0; });
  enqueue_moves(moves, device());
  EXPECT_EQ(on_host(out, wanted.size()), wanted);
}

// Rank 1 of 3 adds its own term to those in its slots.
TEST_P(PeerKernels, sums) {
  constexpr size_t count = 5003, slot = 1 << 15;
  std::vector<float> own(count), slots(3 * slot / sizeof(float));
  for (size_t i = 0; i < count; ++i) own[i] = static_cast<float>(i % 100);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<float>(i % 37);
  float* const mine = on_device(own);
  float* const staged = on_device(slots);
  for (const size_t shift : {0u, 1u}) {  // aligned to 16 bytes, and not
    float* const out = on_device(std::vector<float>(count + 4));
    constexpr int64_t offset = 256;
    const Link::Sum sum{
        DType::f32, mine + shift, offset, out + shift, static_cast<int64_t>(count - shift), true};
    enqueue_sums({&sum, 1}, {reinterpret_cast<std::byte*>(staged), slot, 1, 3}, device());
    const auto got = on_host(out + shift, count - shift);
    const size_t words = slot / sizeof(float), first = offset / sizeof(float);
    const auto kept = on_host(staged + words + first, count - shift);
    for (size_t i = 0; i < got.size(); ++i) {
      const float is = slots[first + i] + own[shift + i] + slots[2 * words + first + i];
      ASSERT_EQ(got[i], is) << i;
      ASSERT_EQ(kept[i], is) << i;
    }
  }
}

}  // namespace
}  // namespace ebb::cuda::peers
