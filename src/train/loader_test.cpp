#include "train/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <set>

#include "support/files.h"
#include "train/sample_order.h"

namespace ebb::train {
namespace {

using namespace ebb::testing;

// Image i has the samples i, i+1, ...; label i % 3. Counts reads; may fail on one image.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t size, Shape shape = {2, 2, 3}) : size_(size), shape_(std::move(shape)) {
    class_names_ = {"0", "1", "2"};
  }
  int64_t size() const override { return size_; }
  Shape image_shape() const override { return shape_; }
  int64_t get(int64_t index, uint8_t* pixels) const override {
    ++reads;
    require(index != broken, "numbers: image cannot be read (", index, ")");
    for (int64_t i = 0; i < shape_.numel(); ++i) pixels[i] = static_cast<uint8_t>(index + i);
    return index % 3;
  }
  mutable std::atomic<int64_t> reads = 0;
  int64_t broken = -1;

 private:
  int64_t size_;
  Shape shape_;
};

template <class T>
std::vector<T> all(const Tensor& t) {
  return {t.span<T>().begin(), t.span<T>().end()};
}

void expect_same(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(all<float>(a.images), all<float>(b.images));
  EXPECT_EQ(all<int64_t>(a.labels), all<int64_t>(b.labels));
  EXPECT_EQ(all<int64_t>(a.index), all<int64_t>(b.index));
  ASSERT_EQ(a.augment.defined(), b.augment.defined());
  if (!a.augment.defined()) return;
  EXPECT_EQ(all<float>(a.augment), all<float>(b.augment));
}

// The image number that a row of Numbers shows (its first sample).
int64_t shown(const Batch& b, int64_t row) {
  const int64_t n = b.images.numel() / b.images.shape()[0];
  return std::lround((b.images.span<float>()[static_cast<size_t>(row * n)] + 1) * 127.5f);
}

// ---- order ----

TEST(sample_order, every_epoch__is_a_permutation) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 16, 17, 64, 65, 100, 1000, 4097})
    for (const int64_t epoch : {0, 1, 1000000}) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t image = image_at(epoch * n + i, n, 7);
        ASSERT_TRUE(image >= 0 && image < n);
        seen.insert(image);
      }
      EXPECT_EQ(static_cast<int64_t>(seen.size()), n) << epoch;
    }
}

TEST(sample_order, seed_and_epoch__change_it) {
  std::set<std::vector<int64_t>> orders;
  for (const uint64_t seed : {0, 1, 2})
    for (const int64_t epoch : {0, 1, 2}) {
      std::vector<int64_t> order;
      for (int64_t i = 0; i < 20; ++i) order.push_back(image_at(epoch * 20 + i, 20, seed));
      orders.insert(order);
    }
  EXPECT_EQ(orders.size(), 9u);
}

// Each image stands at each place equally often: 49 degrees of freedom in effect (7-1)^2 = 36 for
// a permutation matrix; chi-square below 36 + 5 * sqrt(72).
TEST(sample_order, places__are_uniform) {
  constexpr int64_t n = 7, epochs = 7000;
  double count[n][n] = {};
  for (int64_t e = 0; e < epochs; ++e)
    for (int64_t i = 0; i < n; ++i) count[i][image_at(e * n + i, n, 3)] += 1;
  double chi2 = 0;
  for (const auto& row : count)
    for (const double c : row) chi2 += (c - 1000) * (c - 1000) / 1000;
  EXPECT_LT(chi2, 78);
}

// A resumed run must go on in the order in which it began, also with a later version.
TEST(sample_order, known_values__stay) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i) order.push_back(image_at(i, 10, 42));
  EXPECT_EQ(order, (std::vector<int64_t>{4, 5, 2, 9, 6, 7, 1, 0, 3, 8}));
  EXPECT_EQ(image_at(123456789, 1281167, 42), 1207317);
}

// ---- loader ----

TEST(loader, threads_and_prefetch__do_not_change_the_batches) {
  const Numbers data(10);
  LoaderOptions o{.batch = 4, .seed = 5, .flip = true};
  for (const int64_t threads : {1, 2, 5})
    for (const int64_t prefetch : {1, 3, 8}) {
      o.threads = threads;
      o.prefetch = prefetch;
      BatchLoader loader(data, o);
      for (int64_t step = 0; step < 12; ++step)
        expect_same(loader.next(), make_batch(data, o, step));
    }
}

TEST(loader, start_at_a_step__continues_as_from_zero) {
  const Numbers data(10);
  const LoaderOptions o{.batch = 3, .augment = {.p = 0.5}, .threads = 2};
  BatchLoader whole(data, o), late(data, o, 7);
  for (int64_t step = 0; step < 7; ++step) whole.next();
  for (int64_t step = 7; step < 10; ++step) expect_same(late.next(), whole.next());
}

TEST(loader, epoch__shows_every_image_once) {
  const Numbers data(10);
  BatchLoader loader(data, {.batch = 4, .threads = 2});
  std::vector<int64_t> images;
  for (int64_t step = 0; step < 5; ++step) {
    const Batch b = loader.next();
    EXPECT_EQ(b.images.type(), (Type{DType::f32, {4, 2, 2, 3}}));
    for (int64_t i = 0; i < 4; ++i) {
      images.push_back(shown(b, i));
      EXPECT_EQ(b.labels.span<int64_t>()[static_cast<size_t>(i)], images.back() % 3);
      EXPECT_EQ(b.index.span<int64_t>()[static_cast<size_t>(i)], step * 4 + i);
    }
  }
  for (const size_t epoch : {0, 10}) {
    const auto first = images.begin() + static_cast<std::ptrdiff_t>(epoch);
    EXPECT_EQ(std::set<int64_t>(first, first + 10).size(), 10u);
  }
  EXPECT_NE(std::vector<int64_t>(images.begin(), images.begin() + 10),
            std::vector<int64_t>(images.begin() + 10, images.end()));
}

TEST(loader, ranks__split_the_batch) {
  const Numbers data(100);
  const LoaderOptions whole{.batch = 6, .flip = true};
  LoaderOptions part = whole;
  part.ranks = 3;
  const Batch w = make_batch(data, whole, 4);
  for (part.rank = 0; part.rank < 3; ++part.rank) {
    const Batch p = make_batch(data, part, 4);
    EXPECT_EQ(all<float>(p.images), all<float>(w.images.rows(2 * part.rank, 2 * part.rank + 2)));
    EXPECT_EQ(all<int64_t>(p.index), all<int64_t>(w.index.rows(2 * part.rank, 2 * part.rank + 2)));
  }
}

TEST(loader, flip__mirrors_half_of_the_images) {
  const Numbers data(50, {1, 4, 1});
  const Batch plain = make_batch(data, {.batch = 1000}, 0);
  const Batch flipped = make_batch(data, {.batch = 1000, .flip = true}, 0);
  int64_t mirrored = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    std::vector<float> a = all<float>(plain.images.rows(i, i + 1));
    const std::vector<float> b = all<float>(flipped.images.rows(i, i + 1));
    if (a == b) continue;
    std::reverse(a.begin(), a.end());
    ASSERT_EQ(a, b);
    ++mirrored;
  }
  EXPECT_NEAR(mirrored, 500, 80);  // 5 standard deviations
}

TEST(loader, prefetch__is_bounded) {
  const Numbers data(10);
  BatchLoader loader(data, {.batch = 2, .threads = 4, .prefetch = 3});
  const auto settled = [&] {
    int64_t before = -1;
    while (before != data.reads) {
      before = data.reads;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return before;
  };
  EXPECT_EQ(settled(), 6);
  loader.next();
  EXPECT_EQ(settled(), 8);
}

TEST(loader, exception__comes_in_order_and_again) {
  Numbers data(8);
  data.broken = image_at(5, 8, 0);  // in the batch of step 2
  BatchLoader loader(data, {.batch = 2, .threads = 3, .prefetch = 8});
  EXPECT_EQ(loader.next().step, 0);
  EXPECT_EQ(loader.next().step, 1);
  expect_error([&] { loader.next(); }, "numbers: image cannot be read");
  expect_error([&] { loader.next(); }, "numbers: image cannot be read");
}

TEST(prefetched_batches, batches__come_in_order_and_a_fault_in_its_place) {
  const NextBatch next = prefetched_batches(
      [](int64_t number) -> NamedTensors {
        require(number < 6, "numbers: no more (", number, ")");
        return {{"number", scalar_tensor(number)}};
      },
      3);
  for (int64_t n = 3; n < 6; ++n) EXPECT_EQ(next().at("number").span<int64_t>()[0], n);
  expect_error([&] { next(); }, "numbers: no more (6)");
}

TEST(prefetched_batches, the_next_batch__is_made_while_the_last_is_used) {
  std::atomic<int64_t> made = 0;
  const NextBatch next = prefetched_batches(
      [&](int64_t number) -> NamedTensors {
        ++made;
        return {{"number", scalar_tensor(number)}};
      },
      0);
  next();
  for (int i = 0; i < 1000 && made < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(made, 2);
}

TEST(loader, end_while_working__is_clean) {
  const Numbers data(1000, {1, 1, 1});
  for (int i = 0; i < 10; ++i) BatchLoader(data, {.batch = 500000, .threads = 3});
  EXPECT_LT(data.reads, 10 * 3 * 500000);  // workers stopped midway
}

TEST(loader, wrong_options__are_errors) {
  const Numbers data(10);
  expect_error([&] { BatchLoader(data, {.batch = 0}); }, "batch must be positive (0)");
  expect_error([&] { BatchLoader(data, {.batch = 4, .ranks = 3}); }, "batch (4) must be divisible");
  expect_error([&] { BatchLoader(data, {.rank = 1}); }, "rank must be 0 to ranks - 1 (1 of 1)");
  expect_error([&] { BatchLoader(data, {.flip = true, .augment = {.p = 0.1}}); },
               "included in augment");
  expect_error([&] { BatchLoader(data, {.augment = {.p = 1.5}}); }, "p must be 0 to 1 (1.5)");
  expect_error([&] { BatchLoader(data, {}, -1); }, "step must not be negative");
  expect_error([&] { BatchLoader(Numbers(0), {}); }, "must not be empty");
}

}  // namespace
}  // namespace ebb::train
