// What `ebb train` says of its settings, whatever it trains: which have no effect, and with which a
// run goes on that were others before.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fields.h"
#include "train/config.h"

namespace ebb::cli {

// Throws Error for a setting among those that were given, by flags or one by one in a config, that
// has no effect beside the others. Whole sections of a config, as runs write them, have all.
void check_given(const train::TrainConfig& c, const std::vector<std::string>& given);

// A file of settings. Throws Error.
nlohmann::ordered_json read_config(const std::string& file);

// Says what of the run's config.json, which a user may have edited, the checkpoint contradicts: it
// is written for readers, and a run goes on with what its checkpoint says. Throws Error.
void say_edits(const std::string& folder, const std::string& of_checkpoint);
// Says which settings of the run are others now: "resume: goes on with batch 8 (was 64)". The lists
// are of the same fields.
void say_changes(const std::vector<Field>& before, const std::vector<Field>& now);
// Says if the data has another number of images than at the run's last start, where run.json tells
// that.
void say_other_count(const std::string& folder, int64_t images);

}  // namespace ebb::cli
