// Pictures with captions that a training on a checkpoint holds out: which they are, and how its
// loss is measured on them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/checkpoint_training.h"

namespace ebb {

// Whether the setting names pictures, and not how many of --data.
bool names_pictures(const std::string& validation);
// Throws Error, with the rule and both names, where a picture of `others` has the bytes of one of
// `data` that is held out, or of one that is not.
void check_apart(const train::Captioned& data, bool held_out, const train::Captioned& others,
                 std::string_view rule);
// TrainConfig::validation for pictures with captions: off, auto, a number or a share of `data`, as
// train::held_out_count() has them, or what is read as --data is, by `open`. Marks pictures of
// `data`, or adds those that are read, marked, behind them. Of pictures with the same bytes all are
// marked. A line for people; "": nothing was to be held out. Throws Error, also where a picture
// that was read is trained on, too.
std::string hold_out(train::Captioned& data, const std::string& validation,
                     const std::function<train::Captioned(const std::string&)>& open);

// What is measured of a job: the loss of `pictures.held_out`, in the batches that `batch` makes,
// each picture as often as the others of its bucket. None where nothing is held out.
struct MeasuredLoss {
  // A graph for each size.
  std::function<std::vector<Graph>(const std::vector<train::PictureSize>&)> losses;
  std::function<NamedTensors(const PictureBatch&)> batch;
};
std::optional<train::Validation> validation_of(const TrainPictures& pictures,
                                               const train::TrainConfig& config,
                                               const train::Split& split,
                                               const MeasuredLoss& measured);

}  // namespace ebb
