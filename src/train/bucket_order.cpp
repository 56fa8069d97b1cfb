#include "train/bucket_order.h"

#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "train/sample_order.h"

namespace ebb::train {
namespace {

// Another order for each bucket, and for the batches of all.
uint64_t key_of(uint64_t seed, PictureSize bucket) {
  return splitmix64(seed ^ splitmix64(static_cast<uint64_t>(bucket.width) << 32 ^
                                      static_cast<uint64_t>(bucket.height)));
}

}  // namespace

BucketOrder::BucketOrder(const std::vector<Item>& pictures, int64_t batch, uint64_t seed)
    : batch_(batch), seed_(seed) {
  constexpr int64_t most = int64_t{1} << 24;  // 128 MB
  int64_t epoch = 0;
  for (const Item& p : pictures) epoch += p.repeats;
  require(epoch > 0 && batch > 0, "buckets: need pictures and batches (", epoch, ", ", batch, ")");
  require(epoch <= most, "data: an epoch must have at most ", most, " pictures, repeats counted (",
          epoch, ")");
  std::map<PictureSize, std::vector<int64_t>> all;
  for (size_t i = 0; i < pictures.size(); ++i) {
    if (pictures[i].repeats == 0) continue;
    std::vector<int64_t>& list = all[pictures[i].bucket];
    list.insert(list.end(), static_cast<size_t>(pictures[i].repeats), static_cast<int64_t>(i));
  }
  for (auto& [size, list] : all) buckets_.push_back({size, std::move(list)});
  for (const Bucket& b : buckets_) batches_ += batches_of(b);
}

int64_t BucketOrder::batches_of(const Bucket& b) const {
  return (std::ssize(b.pictures) + batch_ - 1) / batch_;
}

int64_t BucketOrder::filling() const {
  int64_t out = batches_ * batch_;
  for (const Bucket& b : buckets_) out -= std::ssize(b.pictures);
  return out;
}

BucketOrder::Batch BucketOrder::at(int64_t number) const {
  const int64_t epoch = number / batches_;
  int64_t k = permuted(number % batches_, batches_, seed_, static_cast<uint64_t>(epoch));
  auto bucket = buckets_.begin();
  for (; k >= batches_of(*bucket); ++bucket) k -= batches_of(*bucket);
  const auto count = std::ssize(bucket->pictures);
  const uint64_t key = key_of(seed_, bucket->size);
  Batch out{bucket->size, {}};
  for (int64_t row = 0; row < batch_; ++row) {
    const int64_t at = k * batch_ + row;  // beyond the end, what fills up is of the next shuffles
    const int64_t i = permuted(at % count, count, key, static_cast<uint64_t>(epoch + at / count));
    out.pictures.push_back(bucket->pictures[static_cast<size_t>(i)]);
  }
  return out;
}

}  // namespace ebb::train
