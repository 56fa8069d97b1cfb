// The report of a training run: one HTML page that needs nothing else, no script either.
#pragma once

#include <string>
#include <vector>

namespace ebb {

// Reads what a run left in `folder` (metrics.jsonl, run.json, config.json, samples/*.png,
// samples.png, eval.json, eval_tenth.json; all but metrics.jsonl may be missing) and writes
// report.html there, through a temporary file. Gives what was left out since it cannot be read, a
// line each, which the page says too. Throws Error.
std::vector<std::string> write_report(const std::string& folder);

}  // namespace ebb
