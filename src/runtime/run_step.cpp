#include "runtime/run_step.h"

#include "base/error.h"
#include "core/out_of_memory.h"

namespace ebb {

void run_program(const Program& program, const Signature& sig, const Call& call) {
  if (!program.run) return;
  const auto with_op = [&](const Error& e) {
    return str(e.what(), "  ", sig.text(), sig.at.empty() ? "" : "  at ", sig.at);
  };
  try {
    program.run(call);
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(with_op(e));
  } catch (const Error& e) {
    fail(with_op(e));
  }
}

}  // namespace ebb
