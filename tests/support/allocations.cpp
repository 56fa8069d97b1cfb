#include "support/allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local int64_t so_many = 0;
}

namespace ebb::testing {
int64_t allocations() { return so_many; }
}  // namespace ebb::testing

void* operator new(std::size_t bytes) {
  ++so_many;
  void* const p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
