// The report of a training run: one HTML page that needs nothing else, no script either.
#pragma once

#include <string>

namespace ebb {

// Reads what a run left in `folder` (metrics.jsonl, run.json, config.json, samples/*.png,
// samples.png, eval.json, eval_tenth.json; all but metrics.jsonl may be missing) and writes
// report.html there, through a temporary file. Throws Error.
void write_report(const std::string& folder);

}  // namespace ebb
