#include "backend/cuda/peers/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace ebb::cuda::peers {
namespace {

// Ranks are threads, and their staging memory is the host's. Of slots of 48 bytes, operands of a
// few dozen elements take several rounds; of 512, many small ones are packed into one.
constexpr int64_t slots[] = {48, 512};

struct Host {
  Host(int64_t n, int64_t slot_bytes)
      : ranks(n), slot(slot_bytes), staging(static_cast<size_t>(n * n * slot)) {
    for (int64_t owner = 0; owner < n; ++owner)
      for (int64_t writer = 0; writer < n; ++writer) flag(Flag::free, owner, writer) = true;
  }
  // By kind, by the rank that waits, by the rank that raises it.
  std::atomic<bool>& flag(Flag f, int64_t owner, int64_t writer) {
    return raised[static_cast<size_t>((static_cast<int64_t>(f) * ranks + owner) * ranks + writer)];
  }
  int64_t ranks, slot;
  std::vector<std::byte> staging;
  std::vector<std::atomic<bool>> raised =
      std::vector<std::atomic<bool>>(static_cast<size_t>(flags * ranks * ranks));
};

class HostLink final : public Link {
 public:
  HostLink(Host& host, int64_t rank) : host_(host), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return host_.ranks; }
  int64_t slot_bytes() const override { return host_.slot; }
  std::string description() const override { return "threads"; }
  std::byte* slot(int64_t owner, int64_t writer) const override {
    return host_.staging.data() + (owner * host_.ranks + writer) * host_.slot;
  }
  std::byte* packing(int64_t rank) const override { return packing_.data() + rank * host_.slot; }
  void copy(const Move& m) override { std::memcpy(m.to, m.from, static_cast<size_t>(m.bytes)); }
  void move(std::span<const Move> moves) override {
    for (const Move& m : moves) copy(m);
  }
  void sum(std::span<const Sum> sums) override {
    for (const Sum& s : sums)
      for (int64_t i = 0; i < s.count; ++i) {
        float total = 0;
        for (int64_t r = 0; r < host_.ranks; ++r)
          total +=
              reinterpret_cast<const float*>(r == rank_ ? s.own : slot(rank_, r) + s.offset)[i];
        static_cast<float*>(s.out)[i] = total;
        if (s.keep_in_slot) reinterpret_cast<float*>(slot(rank_, rank_) + s.offset)[i] = total;
      }
  }
  void sync(const Sync& s) override {
    for (int64_t r = 0; r < host_.ranks; ++r) {
      if (!s.raise || r == rank_) continue;
      EXPECT_FALSE(host_.flag(*s.raise, r, rank_).exchange(true)) << "a lost flag";
    }
    for (int64_t r = 0; r < host_.ranks; ++r) {
      if (!s.wait || r == rank_) continue;
      while (!host_.flag(*s.wait, rank_, r).exchange(false)) std::this_thread::yield();
    }
  }

 private:
  Host& host_;
  int64_t rank_;
  mutable std::vector<std::byte> packing_ =
      std::vector<std::byte>(static_cast<size_t>(host_.ranks * host_.slot));
};

void on_ranks(int64_t ranks, const std::function<void(Communicator&)>& work,
              int64_t slot = slots[0]) {
  Host host(ranks, slot);
  std::vector<std::jthread> threads;
  for (int64_t r = 0; r < ranks; ++r)
    threads.emplace_back([&host, &work, r] {
      const auto c = communicator(std::make_unique<HostLink>(host, r));
      work(*c);
    });
}

float value(int64_t rank, size_t operand, int64_t i) {
  return static_cast<float>(rank * 1000 + static_cast<int64_t>(operand) * 100 + i);
}

// Operands of several sizes as one collective: a single element, a slot's worth, several rounds.
constexpr int64_t counts[] = {1, 12, 37, 3, 100, 5, 2, 7, 1, 18};

// `in` and `out`: how many times its count an operand and a result have.
struct Case {
  int64_t in, out;
  void (Communicator::*run)(std::span<const Communicator::Operand>);
  std::function<float(int64_t ranks, int64_t rank, size_t operand, int64_t count, int64_t i)> is;
  bool in_place = false;
};

void expect(const Case& c, Communicator& own) {
  std::vector<std::vector<float>> in, out;
  std::vector<Communicator::Operand> operands;
  for (const int64_t count : counts) {
    auto& from = in.emplace_back(static_cast<size_t>(count * c.in));
    for (size_t i = 0; i < from.size(); ++i)
      from[i] = value(own.rank(), in.size() - 1, static_cast<int64_t>(i));
    out.emplace_back(static_cast<size_t>(count * c.out), -1.f);
  }
  for (size_t n = 0; n < in.size(); ++n)
    operands.push_back({in[n].data(), c.in_place ? in[n].data() : out[n].data(), counts[n]});
  (own.*c.run)(operands);
  for (size_t n = 0; n < in.size(); ++n)
    for (int64_t i = 0; i < counts[n] * c.out; ++i)
      ASSERT_EQ(static_cast<const float*>(operands[n].out)[i],
                c.is(own.ranks(), own.rank(), n, counts[n], i))
          << own.ranks() << " ranks, operand " << n << ", element " << i;
}

void expect(const Case& c, int64_t ranks) {
  for (const int64_t slot : slots)
    on_ranks(
        ranks,
        [&](Communicator& own) {
          for (int again = 0; again < 3; ++again) expect(c, own);  // flags and slots are as before
        },
        slot);
}

float sum_of(int64_t ranks, size_t operand, int64_t i) {
  float sum = 0;
  for (int64_t r = 0; r < ranks; ++r) sum += value(r, operand, i);
  return sum;
}

class PeerExchange : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PeerExchange, testing::Values(1, 2, 3, 4, 8));

TEST_P(PeerExchange, all_reduce) {
  const auto is = [](int64_t ranks, int64_t, size_t n, int64_t, int64_t i) {
    return sum_of(ranks, n, i);
  };
  expect({1, 1, &Communicator::all_reduce, is}, GetParam());
  expect({1, 1, &Communicator::all_reduce, is, true}, GetParam());
}

TEST_P(PeerExchange, reduce_scatter) {
  const auto is = [](int64_t ranks, int64_t rank, size_t n, int64_t count, int64_t i) {
    return sum_of(ranks, n, rank * count + i);
  };
  expect({GetParam(), 1, &Communicator::reduce_scatter, is}, GetParam());
}

TEST_P(PeerExchange, all_gather) {
  const auto is = [](int64_t, int64_t, size_t n, int64_t count, int64_t i) {
    return value(i / count, n, i % count);
  };
  expect({1, GetParam(), &Communicator::all_gather, is}, GetParam());
}

TEST_P(PeerExchange, broadcast) {
  const auto is = [](int64_t, int64_t, size_t n, int64_t, int64_t i) { return value(0, n, i); };
  expect({1, 1, &Communicator::broadcast, is}, GetParam());
  expect({1, 1, &Communicator::broadcast, is, true}, GetParam());
}

// Collectives of all kinds in turns on one communicator, ranks at speeds of their own: what one
// leaves in slots may not reach the next.
TEST_P(PeerExchange, collectives_in_turns) {
  on_ranks(GetParam(), [&](Communicator& c) {
    const int64_t ranks = c.ranks(), rank = c.rank(), count = 37;
    std::minstd_rand random(static_cast<unsigned>(rank + 1));
    for (int64_t turn = 0; turn < 20; ++turn) {
      const auto number = [&](int64_t r, int64_t i) {
        return static_cast<float>(turn * 7 + r * 1000 + i);
      };
      std::vector<float> whole(static_cast<size_t>(ranks * count)), part(count), out(whole.size());
      for (size_t i = 0; i < whole.size(); ++i) whole[i] = number(rank, static_cast<int64_t>(i));
      std::copy_n(whole.begin(), count, part.begin());
      const auto total = [&](int64_t i) {
        float sum = 0;
        for (int64_t r = 0; r < ranks; ++r) sum += number(r, i);
        return sum;
      };
      const auto run = [&](auto collective, const std::vector<float>& in) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        const Communicator::Operand o{in.data(), out.data(), count};
        (c.*collective)({&o, 1});
      };
      run(&Communicator::all_reduce, part);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], total(i));
      run(&Communicator::all_gather, part);
      for (int64_t i = 0; i < ranks * count; ++i)
        ASSERT_EQ(out[static_cast<size_t>(i)], number(i / count, i % count));
      run(&Communicator::reduce_scatter, whole);
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(out[static_cast<size_t>(i)], total(rank * count + i));
      run(&Communicator::broadcast, part);
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], number(0, i));
    }
  });
}

// Any dtype is gathered; of no elements nothing is.
TEST_P(PeerExchange, all_gather_of_bytes_and_of_nothing) {
  on_ranks(GetParam(), [](Communicator& c) {
    const std::vector<uint8_t> own(5, static_cast<uint8_t>(c.rank() + 1));
    std::vector<uint8_t> all(5 * static_cast<size_t>(c.ranks()));
    const Communicator::Operand operands[] = {{own.data(), all.data(), 5, DType::u8},
                                              {own.data(), all.data(), 0, DType::f32}};
    c.all_gather(operands);
    for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], i / 5 + 1);
  });
}

// Kernels of NCCL's and of ours that wait for each other may not run side by side; copies may.
TEST(PeerCommunicator, does_not_occupy_the_device) {
  on_ranks(1, [](Communicator& c) { EXPECT_FALSE(c.occupies_device()); });
}

}  // namespace
}  // namespace ebb::cuda::peers
