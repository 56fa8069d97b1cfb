#include "apps/cli/train_data.h"

#include <cstdio>
#include <functional>

#include "apps/cli/command.h"
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
  for (const std::string& w : all->warnings()) std::fprintf(stderr, "%s\n", w.c_str());
  if (c.limit > all->size())
    std::fprintf(stderr, "--limit %lld: all %lld images are used, there are no more\n",
                 static_cast<long long>(c.limit), static_cast<long long>(all->size()));
  TrainData out{
      .images = {},
      .text = str(all->size(), " images ", size_text(all->image_shape()),
                  all->classes() ? str(" in ", all->classes(), " classes  ") : " without classes  ",
                  c.data),
      .class_names = all->class_names()};
  std::fprintf(stderr, "%s\n", out.text.c_str());
  out.images = hold_out(std::move(all), c.data, options, c.validation);
  if (!out.images.note.empty()) std::fprintf(stderr, "%s\n", out.images.note.c_str());
  return out;
}

}  // namespace

std::string size_text(const Shape& image) { return str(image[1], "x", image[0], "x", image[2]); }

std::optional<TrainData> open_train_data(const train::TrainConfig& config, int& signal) {
  const train::StopSignals signals(stopping);
  const auto look = [&] {
    if (signals.requested() != 0) throw Cancelled("train: stopped while images are read");
  };
  try {
    TrainData out = read(config, look);
    look();
    return out;
  } catch (const Cancelled&) {
    signal = signals.requested();
    std::fprintf(stderr,
                 "train: interrupted by signal %d while images were read; nothing was written\n",
                 signal);
    return std::nullopt;
  }
}

}  // namespace ebb::cli
