#include "apps/cli/gpus.h"

#include <memory>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/fields.h"
#include "base/names.h"

namespace ebb::cli {
namespace {

// Lets a line through once, whichever device says it.
class OnceLog {
 public:
  explicit OnceLog(std::function<void(std::string_view)> log) : log_(std::move(log)) {}
  void operator()(std::string_view line) {
    const std::lock_guard lock(mutex_);
    if (said_.emplace(line).second) log_(line);
  }

 private:
  std::function<void(std::string_view)> log_;
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace

int64_t number_of_gpus(const std::string& gpus) {
  const int64_t here = count_devices("cuda");
  if (small_letters(gpus) == "all") {
    require(here > 0, "gpus: there is no GPU here that this program can use (--gpus all)");
    return here;
  }
  const int64_t n = parse_integer(gpus, "gpus (all, or a number)");
  require(n >= 1, "gpus: must be all, or at least 1 (", n, ")");
  require(n <= here, "gpus: there are not so many here (", here, " of ", n, ")");
  return n;
}

size_t devices_of(const std::string& gpus, const CommonOptions& o) {
  if (gpus.empty()) return 1;
  require(small_letters(o.device) != "cpu", "gpus: --device cpu has none (--gpus ", gpus, ")");
  return static_cast<size_t>(number_of_gpus(gpus));
}

std::vector<Context> open_devices(CommonOptions o, const std::string& gpus, size_t count) {
  if (!gpus.empty() && small_letters(o.device) == "auto") o.device = "cuda";
  std::vector<Context> out{open_device(o)};
  if (count == 1) return out;
  const auto log = std::make_shared<OnceLog>(out[0].log);
  for (size_t i = 1; i < count; ++i) {
    o.index = static_cast<int64_t>(i);
    Context& c = out.emplace_back(open_device(o));
    c.tuner = out[0].tuner;
    if (c.device->description() != out[0].device->description())
      say_warnings({str("gpus: GPU ", i, " is another than GPU 0, and the last bits of its ",
                        "images may be, too (", c.device->description(), "; ",
                        out[0].device->description(), ")")});
  }
  for (Context& c : out) c.log = [log](std::string_view line) { (*log)(line); };
  return out;
}

}  // namespace ebb::cli
