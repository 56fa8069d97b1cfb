// Memory of kernel tests: arrays between guards, as a host image and on the device.
#pragma once

#include <vector>

#include "core/device.h"
#include "ir/op.h"

namespace ebb::test {

using Bytes = std::vector<unsigned char>;

Bytes stored(const RefArray& a, DType dtype);       // rounded to nearest
RefArray loaded(const Bytes& b, const Type& type);  // of as many bytes as the type has

// Arrays in one allocation of the device's memory; where the environment's EBB_TEST_MEMORY is
// "exact", each in an allocation of its own without guards, for tools that watch the ends of
// allocations. Add them all, upload, run, download.
class GuardedArrays {
 public:
  explicit GuardedArrays(Device& device) : device_(device) {}

  // At `offset` bytes from a 64-byte boundary. Returns the array's number.
  size_t add(Bytes content, int64_t offset);
  // Poisoned with 0xff: NaN in every float.
  size_t add_poisoned(int64_t bytes, int64_t offset);

  void upload();
  void download();                // waits for the device
  void* address(size_t i) const;  // on the device, once uploaded
  Bytes content(size_t i) const;  // as downloaded
  bool changed(size_t i) const;   // since the upload
  bool intact(size_t i) const;    // the guards around it hold what they held at first

 private:
  struct Array {
    int64_t first;
    Bytes content;
  };
  int64_t end() const;
  Tensor image_of(size_t i) const;  // shares the image's memory

  Device& device_;
  std::vector<Array> arrays_;
  Tensor image_, memory_;
  std::vector<Tensor> exact_;  // by array, if they have allocations of their own
};

}  // namespace ebb::test
