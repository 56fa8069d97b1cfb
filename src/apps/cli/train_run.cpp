#include "apps/cli/train_run.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/ranks.h"
#include "apps/cli/terminal.h"
#include "pipeline/report.h"

namespace ebb::cli {

int run_training(train::TrainJob job, const Context& context, bool json) {
  const std::string folder = job.config.out;
  const auto start = std::chrono::steady_clock::now();
  const train::TrainResult r = train::train(std::move(job), context);
  if (!is_quiet()) say_warnings(write_report(folder));
  const bool interrupted = r.why == train::TrainResult::Stop::signal;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (json && !is_quiet())
    print_json({{"steps", r.step},
                {"loss", r.loss},
                {"seconds", seconds},
                {"checkpoint", r.checkpoint},
                {"interrupted", interrupted}});
  return interrupted ? signal_exit + r.signal : 0;
}

}  // namespace ebb::cli
