// A1111's prompt editing: a text that changes from step to step.
//
//   [from:to:when]  `from` up to step `when`, then `to`     [to:when]  [from::when]
//   [one|other]     another one each step, in turn
//
// `when` with a point is a part of the steps, without one a number of steps. Brackets nest, also
// in (emphasis) and [less]; what does not fit is text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::text {

struct Steps {
  int64_t count = 20;
  // Steps of the pass before a second one at a higher resolution (A1111's "hires fix"); there
  // `when` counts on: 1.5 is the half of the second pass. 0: this is the first pass.
  int64_t before = 0;
};

struct ScheduledText {
  int64_t end_step = 0;  // it is the text of the steps up to this, counted from 1
  std::string text;      // with the emphasis still in it
};

// At least one; the last ends at steps.count, and texts that follow each other differ. Throws Error
// if texts times characters exceed 64 M. Nothing recurses.
std::vector<ScheduledText> schedule_prompt(std::string_view text, const Steps& steps);

}  // namespace ebb::text
