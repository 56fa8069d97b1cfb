// Pipeline: a model on a device, for any number of requests. Its plans stay compiled and share one
// copy of the weights, so a request of another size, batch or guidance costs the compile time of
// its plan, and one like an earlier one nothing. docs/pipeline.md shows the way of a request.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "diffusion/denoiser.h"
#include "pipeline/batch_run.h"
#include "pipeline/decoder.h"
#include "pipeline/request.h"
#include "pipeline/run_inputs.h"

namespace ebb {

class ImageQueue;

struct Generated {
  Tensor images;                        // f32 [N,H,W,C] in [-1,1]; not defined without a decoder
  Tensor latents;                       // f32 [N,h,w,c]; of models of latents
  int64_t evaluations = 0;              // of the denoiser, an image
  int64_t steps = 0;                    // made: fewer than asked for where levels coincide
  GenerateOptions ran;                  // ResolvedRequest::options, with the dtype
  std::string start_noise, step_noise;  // the sources
};

struct PipelineOptions {
  size_t plans = 8;                     // that stay compiled, those used last
  std::optional<Decoder> decoder = {};  // of latents; none: decoder_of()
};

class Pipeline {
 public:
  explicit Pipeline(LoadedModel model, Context context, const PipelineOptions& options = {});

  const LoadedModel& model() const { return model_; }
  const Context& context() const { return context_; }
  const std::optional<Decoder>& decoder() const { return decoder_; }
  ResolvedRequest resolve(const GenerateRequest& request, const GenerateOptions& options) const {
    return ebb::resolve(model_, request, options);
  }

  // Compiles the plans of a request that are not there, and takes what memory is sure. Throws Error
  // where memory is short.
  void prepare(const ResolvedRequest& r, const RunInputs& inputs = {});
  // What the plans of a request need, compiled without a look at the memory that is free.
  struct Needs {
    PlanNeeds step;                    // of an evaluation
    std::optional<PlanNeeds> hoisted;  // of what is computed once for them
    bool hoists_again = false;         // as the values of conditions change
  };
  // In their order: where the conditions change during a run there are several plans, of which one
  // has memory to run at a time.
  std::vector<Needs> needs(const ResolvedRequest& r, const RunInputs& inputs);
  std::vector<DenoiserOptions> plans_of(const ResolvedRequest& r, const RunInputs& inputs) const;
  void drop(const ResolvedRequest& r, const RunInputs& inputs);  // those plans
  // All plans, and weights that nothing else has, let go of the device's memory.
  void release();
  // Samples the images [first, first + ResolvedRequest::batch) of a request, fewer at its end.
  // `progress` as for generate(), of these images. Throws Error, Cancelled.
  struct Sampled {
    Tensor samples;  // f32 [n,h,w,c]
    int64_t steps = 0, evaluations = 0;
  };
  Sampled sample(const ResolvedRequest& r, int64_t first, const RunInputs& inputs,
                 const std::function<bool(double)>& progress);
  // The same of a run of which `r` is the first part: from the first evaluation at a level that
  // `at` holds for, another pipeline evaluates.
  struct Successor {
    const ResolvedRequest& whole;  // the run
    Pipeline& pipeline;
    const ResolvedRequest& request;  // the last part
    const RunInputs& inputs;
    std::function<bool(double sigma)> at;
  };
  Sampled sample_handed_over(const ResolvedRequest& r, int64_t first, const RunInputs& inputs,
                             const Successor& next, const std::function<bool(double)>& progress);
  // The options as they run, with the dtype.
  GenerateOptions ran(const ResolvedRequest& r) const;
  DType dtype_of(const ResolvedRequest& r) const;

  // `progress` gets the share that is done, 0 to 1, at the start, after every step and on the host
  // within one; returning false stops with Cancelled. Throws Error before anything is made where
  // memory is short.
  Generated generate(const ResolvedRequest& r, const std::function<bool(double)>& progress = {},
                     const RunConditions& conditions = {});
  // The same by pipelines of one model on several devices, of as many batches at least: each batch
  // on whichever is free, with the same bits. Several threads call `progress`, one at a time.
  static Generated generate_on(std::span<Pipeline* const> pipelines, const ResolvedRequest& r,
                               const std::function<bool(double)>& progress = {},
                               const RunConditions& conditions = {});

  struct Statistics {
    int64_t compiled = 0, reused = 0, dropped = 0;  // plans, by requests
  };
  const Statistics& statistics() const { return statistics_; }

 private:
  // A compiled plan: of which component, as its denoiser's options say.
  struct CachedPlan {
    std::string component;
    std::unique_ptr<Denoiser> denoiser;
  };
  class PartEvaluators;
  // Of a request on several devices, one of them: where its results go.
  struct Sampling {
    size_t device;
    const Tensor& samples;  // of all
    int64_t& steps;
    std::atomic<int64_t>& evaluations;
    std::function<bool(double images)> progress;  // it has made so many
  };
  void sample_next(ImageQueue& queue, const ResolvedRequest& r, const RunInputs& inputs,
                   const Sampling& to);
  Sampled sample_by(Denoiser& denoiser, const ResolvedRequest& r, int64_t first,
                    const RunInputs& inputs, const std::function<bool(double)>& progress);
  DenoiserOptions plan_options(const ResolvedRequest& r, const RunInputs& inputs) const;
  Denoiser& planned(const DenoiserOptions& options);
  Denoiser& with_memory(const DenoiserOptions& options, bool hoisted_leaves);
  Denoiser& denoiser_for(const ResolvedRequest& r, const RunInputs& inputs);
  // With a look at the host's memory before the first image.
  Denoiser& checked(const ResolvedRequest& r, const RunInputs& inputs, int64_t first);
  std::list<CachedPlan>::iterator find(const DenoiserOptions& options);
  void with_room(size_t kept, const std::function<void()>& work);
  std::unique_ptr<Denoiser> compiled(const DenoiserOptions& options);
  void drop_oldest();

  LoadedModel model_;
  Context context_;
  PipelineOptions options_;
  std::optional<Decoder> decoder_;
  std::list<CachedPlan> plans_;  // the one used last first
  Statistics statistics_;
};

// One request on a pipeline of its own.
Generated generate(const LoadedModel& model, const GenerateRequest& request,
                   const GenerateOptions& options, const Context& context,
                   const std::function<bool(double)>& progress = {});

}  // namespace ebb
