#include "pipeline/run_dtype.h"

#include "base/error.h"

namespace ebb {

DType usual_dtype(const WeightStore* weights, const Device& device) {
  int64_t f16 = 0, all = 0;
  if (weights)
    for (const auto& [name, w] : weights->weights()) {
      all += w.type.shape.numel();
      if (w.type.dtype == DType::f16) f16 += w.type.shape.numel();
    }
  if (2 * f16 > all && device.fast_in(DType::f16)) return DType::f16;
  return device.fast_in(DType::bf16) ? DType::bf16 : DType::f32;
}

std::string slow_dtype_text(DType dtype, const Device& device) {
  if (device.fast_in(dtype)) return "";
  return str("dtype ", dtype,
             ": this device is not fast in it: it may compute in f32 and round what ",
             "is kept, which takes longer than --dtype f32");
}

}  // namespace ebb
