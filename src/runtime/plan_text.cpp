// What a plan says of itself.
#include <algorithm>
#include <iomanip>
#include <sstream>

#include "runtime/plan.h"

namespace ebb {

int64_t Plan::source_bytes() const { return ebb::source_bytes(graph_); }

Cost Plan::cost() const {
  Cost total;
  for (const Step& s : steps_) {
    if (!s.program.run) continue;
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
    if (!s.program.run && !s.kernel->alias) out << "  in place";
    if (!s.kernel->note_on(s.sig).empty()) out << "  note: " << s.kernel->note_on(s.sig);
    out << '\n';
  }
  const Cost total = cost();
  out << "steps " << steps_.size() << "  moved " << total.bytes * 1e-6 << " MB  work "
      << total.flops * 1e-9 << " GFLOP  arena " << static_cast<double>(memory_.arena_bytes) * 1e-6
      << " MB  sources " << static_cast<double>(source_bytes()) * 1e-6 << " MB  copies "
      << memory_.copies.size() << '\n';
  return out.str();
}

// One line for each kernel that has a note on a step, with the first of them.
void Plan::log_notes() const {
  std::vector<std::string> said;
  for (const Step& s : steps_) {
    const std::string_view note = s.kernel->note_on(s.sig);
    if (note.empty()) continue;
    const std::string line = str(s.kernel->name, ": ", note);
    if (std::find(said.begin(), said.end(), line) != said.end()) continue;
    const auto same = std::count_if(steps_.begin(), steps_.end(), [&](const Step& other) {
      return other.kernel == s.kernel && other.kernel->note_on(other.sig) == note;
    });
    context_.log(str(line, " (", same, same == 1 ? " step)  " : " steps)  ", s.sig.text()));
    said.push_back(line);
  }
}

}  // namespace ebb
