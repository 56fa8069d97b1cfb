#include "train/loader.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "nn/network.h"
#include "train/sample_order.h"

namespace ebb::train {

void mirror(float* pixels, const Shape& shape) {
  const int64_t c = shape[2], row = shape[1] * c;
  for (int64_t y = 0; y < shape[0]; ++y, pixels += row)
    for (int64_t x = 0; x < shape[1] / 2; ++x)
      std::swap_ranges(pixels + x * c, pixels + (x + 1) * c, pixels + row - (x + 1) * c);
}

bool flips(uint64_t seed, int64_t position) {
  const RandomKey key{seed, static_cast<uint64_t>(position), 0,
                      static_cast<uint32_t>(fnv1a("flip"))};
  return random_block(key, 0)[0] & 1;
}

namespace {

void check(const Dataset& data, const LoaderOptions& o) {
  require(data.size() > 0, "loader: data set must not be empty");
  require(o.batch > 0, "loader: batch must be positive (", o.batch, ")");
  require(o.ranks > 0 && o.rank >= 0 && o.rank < o.ranks, "loader: rank must be 0 to ranks - 1 (",
          o.rank, " of ", o.ranks, ")");
  require(o.batch % o.ranks == 0, "loader: batch (", o.batch, ") must be divisible by ranks (",
          o.ranks, ")");
  require(o.threads >= 0 && o.prefetch >= 0, "loader: threads (", o.threads, ") and prefetch (",
          o.prefetch, ") must not be negative");
  check(o.augment);
  require(!o.flip || o.augment.p == 0, "loader: flip is included in augment");
}

// Writes image and augmentation labels of one row; returns the class label.
int64_t fill_row(const Dataset& data, const LoaderOptions& o, int64_t position, float* pixels,
                 float* labels) {
  const uint64_t seed = o.seed;
  const Shape shape = data.image_shape();
  const int64_t image = image_at(position, data.size(), seed);
  if (o.augment.p == 0) {
    const int64_t label = data.get_f32(image, pixels);
    if (o.flip && flips(seed, position)) mirror(pixels, shape);
    return label;
  }
  std::vector<float> plain(static_cast<size_t>(shape.numel()));
  const int64_t label = data.get_f32(image, plain.data());
  const Augmentation a = draw_augmentation(o.augment, seed, position);
  augment(a, o.augment, shape, plain.data(), pixels);
  std::ranges::copy(labels_of(a), labels);
  return label;
}

// As make_batch; nothing if a stop is requested midway.
std::optional<Batch> fill_batch(const Dataset& data, const LoaderOptions& o, int64_t step,
                                const std::stop_token& stop) {
  const int64_t n = o.batch / o.ranks;
  const Shape s = data.image_shape();
  const bool augmented = o.augment.p > 0;
  Batch b{step, Tensor(DType::f32, {n, s[0], s[1], s[2]}), Tensor(DType::i64, {n}),
          Tensor(DType::i64, {n}), augmented ? Tensor(DType::f32, {n, augment_labels}) : Tensor()};
  for (int64_t i = 0; i < n; ++i) {
    if (stop.stop_requested()) return std::nullopt;
    const int64_t position = step * o.batch + o.rank * n + i;
    float* const labels = augmented ? b.augment.span<float>().data() + i * augment_labels : nullptr;
    b.index.span<int64_t>()[static_cast<size_t>(i)] = position;
    b.labels.span<int64_t>()[static_cast<size_t>(i)] =
        fill_row(data, o, position, b.images.span<float>().data() + i * s.numel(), labels);
  }
  return b;
}

}  // namespace

Batch make_batch(const Dataset& data, const LoaderOptions& options, int64_t step) {
  check(data, options);
  require(step >= 0, "loader: step must not be negative (", step, ")");
  return *fill_batch(data, options, step, {});
}

BatchLoader::BatchLoader(const Dataset& data, LoaderOptions options, int64_t first_step) {
  check(data, options);
  require(first_step >= 0, "loader: step must not be negative (", first_step, ")");
  int64_t threads = options.threads;
  if (threads == 0)
    threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, most_loaders);
  batches_.emplace(
      [&data, options](int64_t step, const std::stop_token& stop) {
        return fill_batch(data, options, step, stop);
      },
      PrefetchOptions{.first = first_step,
                      .threads = threads,
                      .depth = options.prefetch ? options.prefetch : threads + 1});
}

Batch BatchLoader::next() { return batches_->next(); }

std::function<NextBatch(int64_t)> dataset_batches(const Dataset& data, const TrainConfig& c,
                                                  const Split& split) {
  LoaderOptions options{.batch = c.micro_batch(),
                        .seed = c.seed,
                        .flip = c.flip,
                        .augment = {.p = c.augment},
                        .threads = c.threads,
                        .rank = split.rank,
                        .ranks = split.ranks};
  return [&data, options](int64_t first) -> NextBatch {
    const auto loader = std::make_shared<BatchLoader>(data, options, first);
    return [loader]() -> NamedTensors {
      Batch b = loader->next();
      NamedTensors out{
          {"images", b.images}, {std::string(nn::class_id), b.labels}, {"image", b.index}};
      if (b.augment.defined()) out[std::string(nn::augment_labels)] = b.augment;
      return out;
    };
  };
}

NextBatch prefetched_batches(std::function<NamedTensors(int64_t)> make, int64_t first) {
  const auto all = std::make_shared<Prefetcher<NamedTensors>>(
      [make = std::move(make)](int64_t number, const std::stop_token&) {
        return std::optional(make(number));
      },
      PrefetchOptions{.first = first});
  return [all] { return all->next(); };
}

}  // namespace ebb::train
