#include "runtime/run_step.h"

#include "base/error.h"
#include "core/out_of_memory.h"

namespace ebb {

void run_step(const Step& s) {
  if (!s.program.run) return;
  const auto with_op = [&](const Error& e) {
    return str(e.what(), "  ", s.sig.text(), s.sig.at.empty() ? "" : "  at ", s.sig.at);
  };
  try {
    s.program.run(s.call);
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(with_op(e));
  } catch (const Error& e) {
    fail(with_op(e));
  }
}

}  // namespace ebb
