// Any bytes as a file of torch.save, and as the pickle in one: an Error or tensors that all load,
// nothing else.
#include "base/error.h"
#include "io/tensor_file.h"
#include "support/torch_file.h"

namespace {

void load_all(std::span<const uint8_t> bytes) {
  try {
    const auto file = ebb::io::TensorFile::from_bytes(bytes, "input");
    for (const ebb::io::TensorEntry& e : file.entries()) {
      if (!e.dtype) continue;
      const ebb::Tensor t = file.load(e.name);
      if (t.shape() != e.shape) __builtin_trap();
    }
  } catch (const ebb::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  load_all({data, size});
  const std::string zip =
      ebb::testing::torch_zip({reinterpret_cast<const char*>(data), size}, {std::string(64, '\1')});
  load_all({reinterpret_cast<const uint8_t*>(zip.data()), zip.size()});
  return 0;
}
