// What a plan says of itself.
#include <iomanip>
#include <sstream>

#include "runtime/plan.h"

namespace ebb {

int64_t Plan::source_bytes() const { return ebb::source_bytes(graph_); }

Cost Plan::cost() const {
  Cost total;
  for (const Step& s : steps_) {
    const Cost c = cost_of(s.sig);
    total.flops += c.flops;
    total.bytes += c.bytes;
  }
  return total;
}

std::string Plan::text() const {
  std::ostringstream out;
  for (const Step& s : steps_) {
    const Cost c = cost_of(s.sig);
    out << std::left << std::setw(22) << s.kernel->name << std::right << std::fixed
        << std::setprecision(2) << std::setw(9) << c.bytes * 1e-6 << " MB " << std::setw(9)
        << c.flops * 1e-6 << " MFLOP  " << s.sig.text() << " ->";
    for (const Type& t : s.sig.out) out << ' ' << t;
    if (!s.sig.at.empty()) out << "  @ " << s.sig.at;
    if (s.side_stream) out << "  side stream";
    out << '\n';
  }
  const Cost total = cost();
  out << "steps " << steps_.size() << "  moved " << total.bytes * 1e-6 << " MB  work "
      << total.flops * 1e-9 << " GFLOP  arena " << static_cast<double>(memory_.arena_bytes) * 1e-6
      << " MB  sources " << static_cast<double>(source_bytes()) * 1e-6 << " MB  copies "
      << memory_.copies.size() << '\n';
  return out.str();
}

}  // namespace ebb
