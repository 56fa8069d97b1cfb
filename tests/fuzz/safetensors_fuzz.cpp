// Any bytes as a safetensors file: an Error or a file whose tensors all load, nothing else.
#include "base/error.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto file = ebb::io::TensorFile::from_bytes({data, size}, "input");
    int64_t total = 0;
    for (const ebb::io::TensorEntry& e : file.entries()) {
      total += e.end - e.begin;
      if (!e.dtype) continue;
      const ebb::Tensor t = file.load(e.name);
      if (t.shape() != e.shape) __builtin_trap();
    }
    if (total > static_cast<int64_t>(size)) __builtin_trap();
  } catch (const ebb::Error&) {
  }
  return 0;
}
