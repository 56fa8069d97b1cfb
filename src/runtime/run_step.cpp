#include "runtime/run_step.h"

#include "base/error.h"
#include "core/device_lost.h"
#include "core/out_of_memory.h"

namespace ebb {

void require_aligned(std::string_view what, const void* p, int64_t alignment,
                     std::string_view behind) {
  const auto past = reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment);
  require(past == 0, what, " must lie at a multiple of ", alignment, " bytes (it lies ", past,
          " past one)", behind);
}

void run_program(const Program& program, const Signature& sig, const Call& call) {
  if (!program.run) return;
  const auto with_op = [&](const Error& e) {
    return str(e.what(), "  ", sig.text(), sig.at.empty() ? "" : "  at ", sig.at);
  };
  try {
    program.run(call);
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(with_op(e));
  } catch (const DeviceLost& e) {
    throw DeviceLost(with_op(e));
  } catch (const Error& e) {
    fail(with_op(e));
  }
}

}  // namespace ebb
