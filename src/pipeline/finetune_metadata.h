// What the file of an adapter or a control network says of its training, under the names of kohya's
// scripts.
#pragma once

#include <map>
#include <string>

#include "pipeline/finetune.h"

namespace ebb {

// The task of a run of fine-tuning (train::RunInfo).
inline constexpr const char* finetune_task = "text_to_image";

struct FinetuneFacts {
  const train::TrainConfig& train;
  const FinetuneConfig& config;
  const adapters::TrainableAdapter* adapter;  // null: none
  const LoadedModel& model;
  const train::Captioned& data;
  int64_t ranks = 1, step = 0;
};
// Nothing that differs between a run that was stopped and one that was not.
std::map<std::string, std::string> finetune_metadata(const FinetuneFacts& facts);

}  // namespace ebb
