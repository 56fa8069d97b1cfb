// custom: levels as they are given, in text or in a file.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  std::string sigmas, file;
  void fields(auto&& f) {
    f("sigmas", sigmas, "falling levels, with commas, semicolons or spaces between: 14.6,5,1,0");
    f("file", file, "a file of them, instead");
  }
  void check() const {
    require(!sigmas.empty() || !file.empty(),
            "custom: needs its levels, sigmas=14.6,5,1,0 or file=PATH (got none)");
    require(sigmas.empty() || file.empty(), "custom: takes sigmas or file, not both (sigmas ",
            sigmas, ", file ", file, ")");
  }
};

std::string contents(const std::string& file) {
  std::ifstream in(file);
  require(in.good(), "custom: cannot read ", file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::vector<double> levels(const ScheduleInput&, const Options& o) {
  std::string text = o.file.empty() ? o.sigmas : contents(o.file);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ',' || c == ';' || c == '[' || c == ']'; },
      ' ');
  std::istringstream words(text);
  std::vector<double> out;
  for (std::string word; words >> word;) out.push_back(parse_number(word, "custom"));
  require(!out.empty(), "custom: there are no levels");
  for (size_t i = 1; i < out.size(); ++i)
    require(out[i] < out[i - 1], "custom: levels must fall (", out[i - 1], ", then ", out[i], ")");
  return out;
}

}  // namespace

const Schedule& custom() {
  static const Schedule s =
      make_schedule<Options>({.name = "custom",
                              .help = "levels as given, whatever the number of steps",
                              .exact_count = false,
                              .to_zero = false},
                             levels);
  return s;
}

}  // namespace ebb::schedules
