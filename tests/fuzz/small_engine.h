// The engine of tests whose jobs cost little: of their pictures and steps only a few are made.
#pragma once

#include <memory>
#include <vector>

#include "apps/server/batch.h"
#include "apps/server/engine.h"
#include "base/error.h"

namespace ebb::testing {

class SmallEngine final : public server::Engine {
 public:
  void run(const server::Job& job, int64_t first, server::JobEvents& events) override {
    if (job.spec.kind == server::JobKind::upscale)
      require(job.spec.upscale.width <= most_side && job.spec.upscale.height <= most_side &&
                  job.spec.upscale.scale <= 8,
              "fuzz: the picture would be too large");
    engine_->run(*small(job), first, events);
  }
  Joins joins(const server::Job& job) override {
    const auto lead = small(job);
    const Joins joins = engine_->joins(*lead);
    if (!joins) return {};
    return [lead, joins](const server::Job& other) { return joins(*small(other)); };
  }
  void run_batch(std::span<server::BatchMember> members) override {
    for (server::BatchMember& m : members) m.job = small(*m.job);
    engine_->run_batch(members);
  }
  server::JobMemory plan(const server::Job& job) override { return engine_->plan(job); }
  void release() override { engine_->release(); }
  std::string loaded() const override { return engine_->loaded(); }

 private:
  static constexpr int64_t most_side = 256;
  static std::shared_ptr<server::Job> small(const server::Job& job) {
    auto out = std::make_shared<server::Job>();
    out->id = job.id, out->file = job.file, out->spec = job.spec;
    out->spec.flags.size = "16x16";
    auto& steps = out->spec.flags.generate.steps;
    steps = std::min<int64_t>(steps, 3);
    return out;
  }
  std::unique_ptr<server::Engine> engine_ = server::fake_engine(0);
};

}  // namespace ebb::testing
