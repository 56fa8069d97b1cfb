#include "pipeline/held_out_pictures.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "train/dataset_sources.h"
#include "train/many_files.h"

namespace ebb {
namespace {

std::string add_others(train::Captioned& data, train::Captioned others, const std::string& path) {
  check_apart(data, false, others, "validation: a picture must not be trained on as well");
  const auto count = std::ssize(others.pictures);
  for (train::CaptionedPicture& p : others.pictures) {
    p.repeats = 1;
    p.held_out = true;
    data.pictures.push_back(std::move(p));
  }
  data.warnings.insert(data.warnings.end(), others.warnings.begin(), others.warnings.end());
  return str("validation: the loss of ", count, " pictures  ", path);
}

std::string mark(train::Captioned& data, const std::string& setting) {
  const auto all = std::ssize(data.pictures);
  const int64_t count = train::held_out_count(setting, all, 0);
  if (count == 0) return setting == "auto" ? train::too_few_to_hold_out(all) : "";
  std::set<uint64_t> held;
  for (const int64_t i : train::spread(all, count))
    held.insert(data.pictures[static_cast<size_t>(i)].hash);
  int64_t marked = 0;
  for (train::CaptionedPicture& p : data.pictures) {
    p.held_out = held.contains(p.hash);
    marked += p.held_out;
  }
  require(marked < all, "validation: must leave pictures to train on (all ", all,
          " have the bytes of one that is held out)");
  return str("validation: ", marked, " of ", all,
             " pictures are held out; --validation off trains on all");
}

}  // namespace

void check_apart(const train::Captioned& data, bool held_out, const train::Captioned& others,
                 std::string_view rule) {
  std::map<uint64_t, std::string> names;  // by hash
  for (const train::CaptionedPicture& p : data.pictures)
    if (p.held_out == held_out) names.emplace(p.hash, p.name);
  for (const train::CaptionedPicture& p : others.pictures)
    if (const auto same = names.find(p.hash); same != names.end())
      fail(rule, "  ", p.name, "  ", same->second);
}

bool names_pictures(const std::string& setting) {
  if (setting == "off" || setting == "auto") return false;
  return setting.find_first_not_of("-0123456789.%") != std::string::npos;
}

std::string hold_out(train::Captioned& data, const std::string& validation,
                     const std::function<train::Captioned(const std::string&)>& open) {
  if (!names_pictures(validation)) return mark(data, validation);
  return add_others(data, open(validation), validation);
}

std::optional<train::Validation> validation_of(const TrainPictures& pictures,
                                               const train::TrainConfig& c,
                                               const train::Split& split,
                                               const MeasuredLoss& measured) {
  if (!pictures.held_out) return {};
  const train::BucketOrder& order = *pictures.held_out;
  std::vector<Graph> losses = measured.losses(sizes_of(order));
  train::Validation v;
  v.loss = std::move(losses.front());
  v.other_losses.assign(std::make_move_iterator(losses.begin() + 1),
                        std::make_move_iterator(losses.end()));
  const int64_t items = order.batches() * c.micro_batch();  // of one pass over all
  v.batches = order.batches() * ((train::fewest_items + items - 1) / items);
  v.every = train::validation_interval(c, v.batches);
  v.batch = [&order, split, make = measured.batch](int64_t number) {
    PictureBatch batch = batch_of(order, number, split);
    batch.measured = true;
    return make(batch);
  };
  return v;
}

}  // namespace ebb
