// Whole text-to-image runs: those that golden files record, a test each on every backend, and the
// picture that a run makes.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "backends.h"
#include "pipeline/text_to_image.h"
#include "text/clip_vocabulary.h"

namespace ebb::testing {

// The only picture of a run, or its last.
inline Picture picture_of(TextToImage& pipeline, const TextToImageRequest& request) {
  Picture out;
  RunEvents events;
  events.picture = [&](Picture p) { out = std::move(p); };
  pipeline.run(pipeline.resolve(request), events);
  return out;
}

inline Picture picture_of(const CheckpointParts& parts, const TextToImageRequest& request,
                          const Context& context) {
  TextToImage pipeline(parts, context);
  return picture_of(pipeline, request);
}

struct RunOn {
  const nlohmann::json* run;
  std::string backend;

  std::string name() const { return (*run)["case"].get<std::string>(); }
};
inline void PrintTo(const RunOn& on, std::ostream* out) {
  *out << on.name() << " on " << on.backend;
}

// `runs` stays where it is: a list in static memory.
inline std::vector<RunOn> runs_on(const nlohmann::json& runs, const std::string& backend) {
  std::vector<RunOn> out;
  if (test::only(backend).empty()) return out;
  for (const nlohmann::json& run : runs) out.push_back({&run, backend});
  return out;
}

inline const auto name_of_run = [](const auto& info) { return info.param.name(); };

class GoldenRunOn : public test::OnBackend, public ::testing::WithParamInterface<RunOn> {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
    open(GetParam().backend);
  }
  static const nlohmann::json& run() { return *GetParam().run; }
};

}  // namespace ebb::testing
