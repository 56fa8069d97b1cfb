// custom: levels as they are given, in text or in a file.
#include <algorithm>
#include <cmath>
#include <fstream>
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
  constexpr std::streamsize most = 1 << 22;  // bytes; what has no end is no list
  std::string text(most, ' ');
  in.read(text.data(), most);
  require(!in.bad() && in.gcount() > 0, "custom: cannot read levels  ", file);
  require(in.gcount() < most, "custom: a file of levels must be below ", most >> 20, " MB  ", file);
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

double level_of(const std::string& word, const std::string& from) {
  double level = -1;
  try {
    level = parse_number(word, "custom");
  } catch (const Error&) {  // the words of a file may be any
  }
  require(std::isfinite(level) && level >= 0, "custom: levels must be numbers of at least 0 (got '",
          word.substr(0, 20), word.size() > 20 ? "..." : "", "')", from);
  return level;
}

std::vector<double> levels(const ScheduleInput&, const Options& o) {
  const std::string from = o.file.empty() ? "" : "  " + o.file;
  std::string text = o.file.empty() ? o.sigmas : contents(o.file);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ',' || c == ';' || c == '[' || c == ']'; },
      ' ');
  std::istringstream words(text);
  std::vector<double> out;
  for (std::string word; words >> word;) out.push_back(level_of(word, from));
  require(!out.empty(), "custom: there are no levels", from);
  for (size_t i = 1; i < out.size(); ++i)
    require(out[i] < out[i - 1], "custom: levels must fall (", out[i - 1], ", then ", out[i], ")",
            from);
  return out;
}

}  // namespace

const Schedule& custom() {
  static const Schedule s =
      make_schedule<Options>({.name = "custom",
                              .help = "the given levels, whatever the number of steps",
                              .exact_count = false,
                              .own_count = true,
                              .to_zero = false},
                             levels);
  return s;
}

}  // namespace ebb::schedules
