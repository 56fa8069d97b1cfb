// Requests of recorded runs of TextToImage, of a few steps, for tests of what they take.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/golden_file.h"
#include "support/hashed_weights.h"
#include "support/small_checkpoint.h"
#include "text/clip_vocabulary.h"

namespace ebb::testing {

class RecordedRequests : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
  // The first run of a network with that many text encoders.
  static const nlohmann::json& run_of(size_t encoders) {
    static const nlohmann::json runs = read_golden("text_to_image")["runs"];
    for (size_t i = 0;; ++i)
      if (runs.at(i)["texts"].size() == encoders) return runs.at(i);
  }
  static TextToImageRequest request(const nlohmann::json& run) {
    TextToImageRequest q = recorded_request(run);
    q.options.steps = 2;
    return q;
  }
};

}  // namespace ebb::testing
