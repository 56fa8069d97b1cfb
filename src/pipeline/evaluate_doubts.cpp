#include "pipeline/evaluate_doubts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace ebb {
namespace {

std::string size_of(const Shape& s) {
  return str(s[1], "x", s[0], s[2] == 1 ? " in grey" : " in colour");
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

}  // namespace

bool tells_classes(const Evidence& e) {
  const double wrong = 1 - 1 / static_cast<double>(std::max<int64_t>(e.classes, 1));
  return e.accuracy >= 0 && 1 - e.accuracy < wrong / 2;
}

std::vector<std::string> doubts(const Evidence& e) {
  std::vector<std::string> out;
  if (e.data != e.model)
    out.push_back(str("the samples (", size_of(e.model), ") are compared with images that were ",
                      "cropped, resized or converted to that (the data are ", size_of(e.data),
                      ")"));
  if (std::min(e.samples, e.held_out) <= e.features)
    out.push_back(
        str(e.inception ? "FID" : "the Frechet distance", " stands on ", e.samples, " samples and ",
            e.held_out, " held-out images, and its ", e.features, " features need ", e.features + 1,
            " of either: it is too large, and comparable only at the same numbers of ", "images (",
            e.inception ? "KID" : "the kernel distance", " has no such bias)"));
  constexpr int64_t enough =
      100;  // a share of 50 % is known to 10 % then, twice the standard error
  if (e.conditional && e.samples < enough)
    out.push_back(str("shares of ", e.samples, " samples are uncertain by up to ",
                      percent(1 / std::sqrt(static_cast<double>(e.samples))),
                      " (two standard errors)"));
  constexpr double reliable = 0.8;
  if (e.accuracy < 0 || e.accuracy >= reliable) return out;
  std::string text =
      str("the classifier is right on only ", percent(e.accuracy), " of real images (",
          percent(1.0 / static_cast<double>(e.classes)), " by chance): ");
  if (e.conditional && !tells_classes(e))
    text += "the share of samples that it takes for their class is left out";
  else if (e.conditional)
    text += "its verdict on samples says little";
  if (e.own_features)
    text += str(e.conditional ? ", and " : "", "distances in its features say little");
  out.push_back(text);
  return out;
}

}  // namespace ebb
