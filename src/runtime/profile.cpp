#include "runtime/profile.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "base/median.h"

namespace ebb {
namespace {

void add(ProfileLine& to, const ProfileLine& from) {
  to.steps += from.steps;
  to.us += from.us;
  to.cost.flops += from.cost.flops;
  to.cost.bytes += from.cost.bytes;
}

std::vector<ProfileLine> longest_first(const std::map<std::string, ProfileLine>& lines) {
  std::vector<ProfileLine> out;
  for (const auto& [key, line] : lines) out.push_back(line);
  std::ranges::stable_sort(out, std::greater(), &ProfileLine::us);
  return out;
}

void print(std::ostream& out, const ProfileLine& l, double total) {
  const double seconds = l.us * 1e-6;
  out << std::fixed << std::setprecision(1) << std::setw(10) << l.us << std::setw(6)
      << 100 * l.us / total << "% " << std::setw(5) << l.steps << " x " << std::setw(8)
      << l.us / static_cast<double>(l.steps) << std::setw(9) << l.cost.flops / seconds * 1e-12
      << std::setw(9) << l.cost.bytes / seconds * 1e-9 << "  " << l.kernel;
  if (!l.signature.empty()) out << "  " << l.signature;
  out << '\n';
}

}  // namespace

std::vector<ProfileLine> profile_plan(Plan& plan, const NamedTensors& inputs, int runs) {
  std::vector<std::vector<double>> seconds(plan.steps().size());
  plan.observe([&](size_t step, double s) { seconds[step].push_back(s); });
  for (int i = 0; i < runs; ++i) plan.run(inputs);
  plan.observe(nullptr);
  std::map<std::string, ProfileLine> lines;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Step& s = plan.steps()[i];
    const std::string kernel(s.kernel->name), signature = s.sig.text();
    ProfileLine& line = lines[kernel + ' ' + signature];
    line.kernel = kernel;
    line.signature = signature;
    add(line, {.steps = 1, .us = median(seconds[i]) * 1e6, .cost = cost_of(s.sig)});
  }
  return longest_first(lines);
}

std::string profile_text(std::span<const ProfileLine> lines, size_t longest) {
  std::map<std::string, ProfileLine> kernels;
  double total = 0;
  for (const ProfileLine& l : lines) {
    kernels[l.kernel].kernel = l.kernel;
    add(kernels[l.kernel], l);
    total += l.us;
  }
  std::ostringstream out;
  out << "        us  share steps x  us each  TFLOP/s     GB/s  kernel\n";
  for (const ProfileLine& l : longest_first(kernels)) print(out, l, total);
  out << "the longest:\n";
  for (const ProfileLine& l : lines.first(std::min(longest, lines.size()))) print(out, l, total);
  return out.str();
}

}  // namespace ebb
