// Which pictures are in which batch: a pure function of the seed and the batch's number.
#pragma once

#include <cstdint>
#include <vector>

#include "train/buckets.h"

namespace ebb::train {

class BucketOrder {
 public:
  // Of pictures that come `repeats` times an epoch (0: never), in batches of `batch`. Throws Error
  // for none.
  struct Item {
    PictureSize bucket;
    int64_t repeats = 1;
  };
  BucketOrder(const std::vector<Item>& pictures, int64_t batch, uint64_t seed);

  struct Batch {
    PictureSize bucket;
    std::vector<int64_t> pictures;
  };
  Batch at(int64_t number) const;

  int64_t batches() const { return batches_; }  // of an epoch
  // Pictures of an epoch that fill up the last batches of buckets.
  int64_t filling() const;
  struct Bucket {
    PictureSize size;
    std::vector<int64_t> pictures;  // each as often as it comes in an epoch
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }  // those with pictures

 private:
  int64_t batches_of(const Bucket& b) const;
  std::vector<Bucket> buckets_;  // ascending
  int64_t batch_;
  uint64_t seed_;
  int64_t batches_ = 0;
};

}  // namespace ebb::train
