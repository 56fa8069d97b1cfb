#include <cstring>

#include "base/error.h"
#include "ir/kernel.h"
#include "ops/prim/embedding/op.h"

namespace ebb::ops::cpu {
namespace {

Program prepare(const Signature& s, const Tune&, Device&) {
  const int64_t rows = s.in[0].shape[0], n = s.in[1].shape.numel();
  const int64_t bytes = s.in[0].shape[1] * size_of(s.in[0].dtype);
  const std::string at = s.at;
  return {.run = [=](const Call& c) {
    const auto* table = static_cast<const char*>(c.in[0]);
    const auto* ids = static_cast<const int64_t*>(c.in[1]);
    auto* out = static_cast<char*>(c.out[0]);
    for (int64_t i = 0; i < n; ++i) {
      require(ids[i] >= 0 && ids[i] < rows, "embedding: id ", ids[i], " is out of range (", rows,
              " rows)  at ", at);
      std::memcpy(out + i * bytes, table + ids[i] * bytes, static_cast<size_t>(bytes));
    }
  }};
}

}  // namespace

std::vector<Kernel> embedding() {
  return {{.op = "embedding",
           .name = "embedding_rows",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
