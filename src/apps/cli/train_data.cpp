#include "apps/cli/train_data.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/ranks.h"
#include "base/error.h"
#include "diffusion/solver/run.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

TrainData read(const train::TrainConfig& c, const std::function<void()>& between) {
  const train::DatasetOptions options{.size = c.size,
                                      .channels = c.channels,
                                      .classes = c.classes,
                                      .limit = c.limit,
                                      .cache = c.cache,
                                      .threads = c.threads,
                                      .between = between};
  auto all = train::open_dataset(c.data, options);
  for (const std::string& w : all->warnings()) say_once(w);
  if (c.limit > all->size())
    say_once(
        str("--limit ", c.limit, ": all ", all->size(), " images are used, there are no more"));
  TrainData out{
      .images = {},
      .count = all->size(),
      .text = str(all->size(), " images ", size_text(all->image_shape()),
                  all->classes() ? str(" in ", all->classes(), " classes  ") : " without classes  ",
                  c.data),
      .class_names = all->class_names()};
  say_once(out.text);
  out.images = hold_out(std::move(all), c.data, options, c.validation);
  if (!out.images.note.empty()) say_once(out.images.note);
  return out;
}

}  // namespace

std::string size_text(const Shape& image) { return str(image[1], "x", image[0], "x", image[2]); }

train::TrainConfig on_threads(train::TrainConfig config, int64_t own, int64_t most) {
  if (config.threads == 0) config.threads = std::min(own, most);
  return config;
}

std::optional<TrainData> open_train_data(const train::TrainConfig& config, bool json, int& signal) {
  const train::StopSignals signals(is_quiet() ? "" : stopping);
  const auto look = [&] {
    if (signals.requested() != 0) throw Cancelled("train: stopped while images are read");
  };
  try {
    TrainData out = read(config, look);
    look();
    return out;
  } catch (const Cancelled&) {
    signal = signals.requested();
    say_once(str("train: interrupted by signal ", signal,
                 " while images were read; nothing was written"));
    if (json) print_json({{"interrupted", true}, {"signal", signal}});
    return std::nullopt;
  }
}

}  // namespace ebb::cli
