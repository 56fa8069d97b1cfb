// TextToImage: a text-to-image checkpoint on a device, for any number of requests, one at a time.
// Text encoders, denoiser and autoencoder keep their plans and weights between them.
// docs/text-to-image.md shows the way of a request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/checkpoint_parts.h"
#include "pipeline/control.h"
#include "pipeline/edit_image.h"
#include "pipeline/hires.h"
#include "pipeline/init_image.h"
#include "pipeline/inpaint_image.h"
#include "pipeline/latent_decoder.h"
#include "pipeline/loras.h"
#include "pipeline/on_devices.h"
#include "pipeline/pipeline.h"
#include "pipeline/preview.h"
#include "pipeline/refine.h"
#include "pipeline/run_memory.h"
#include "pipeline/run_mode.h"
#include "pipeline/run_progress.h"
#include "pipeline/run_work.h"
#include "pipeline/text_stage.h"
#include "pipeline/upscaler.h"

namespace ebb {

struct TextToImageRequest {
  std::string prompt, negative;
  text::PromptSyntax syntax = text::PromptSyntax::a1111;
  int64_t clip_skip = 0;
  int64_t count = 1;        // of pictures
  int64_t first_image = 0;  // number of the first one, for its noise
  ImageSize size = {};      // pixels; {}: the model's own
  bool pixels = true;       // false: latents are all that is wanted
  GenerateOptions options;
  // One for each control network of the denoiser (pipeline/control.h); none: they have no part.
  std::vector<ControlInput> controls = {};
  // Modes; each is checked and made by its own file.
  std::optional<InitImage> init = {};
  double image_guidance = default_image_guidance;  // of networks that edit `init`
  std::optional<MaskImage> mask = {};              // of `init`
  Outpaint outpaint = {};                          // of `init`
  std::optional<Hires> hires = {};
  std::optional<Refine> refine = {};
  std::vector<LoraChoice> loras = {};
  std::vector<LoraChoice> refiner_loras = {};
  std::string lora_dir = {};  // where those are that the prompt names
  CircularAxes tiling = {};   // along which pictures can be laid side by side
  double upscale = 0;         // by CheckpointParts::upscaler, so many times; 0: the network's own
};

// A request as it will run: looked up, parsed and checked, with the sizes and levels of its run.
struct ResolvedTextToImage {
  TextToImageRequest request;                      // with the size
  std::vector<EncoderRule> encoders;               // which text encoders are read, and how
  std::vector<EncoderRule> refiner_encoders = {};  // the same of the refiner
  std::vector<RunPass> passes;                     // at least one
  std::vector<adapters::AdapterUse> loras = {}, refiner_loras = {};
  std::vector<std::string> warnings;    // what a user should know: a line each
  std::vector<std::string> notes = {};  // what was chosen where nothing said it: likewise

  const ResolvedRequest& first() const { return passes.at(0).request; }
  // Nothing said how many pictures are made at a time: as many as memory allows.
  bool free_batch() const { return request.options.batch == 0 && first().batch > 1; }
  void set_batch(int64_t pictures);
};
// Needs no device. Throws Error for what cannot be asked of the checkpoint.
ResolvedTextToImage resolve(const CheckpointParts& parts, const TextToImageRequest& request);

// Of the pictures that are handed out, in pixels.
ImageSize picture_size(const CheckpointParts& parts, const ResolvedTextToImage& r);

struct Picture {
  size_t request = 0;       // of run_joined(): whose it is
  int64_t index = 0;        // of the request, from 0
  int64_t batch = 1;        // how many were made at a time
  int64_t batch_first = 0;  // the index of the first of those
  Tensor pixels;            // f32 [H,W,3] in [-1,1]; not defined if only latents are wanted
  Tensor latents;           // f32 [h,w,c], of the denoiser
};

// All may be empty. They are called on the thread of run().
struct RunEvents {
  // At the start of a stage and often within: returning false stops the run within a step, that one
  // which a GPU has begun.
  std::function<bool(const RunProgress&)> progress = {};
  std::function<void(Picture)> picture = {};           // each as soon as it is ready, in order
  std::function<void(const StepView&)> step = {};      // of a pass over a batch, for previews
  std::function<void(const std::string&)> tell = {};   // what the run found out, a line each
  std::function<void(const RunMemory&)> planned = {};  // before anything runs
};

struct RunReport {
  GenerateOptions ran;                  // with what took the place of `auto`
  int64_t steps = 0, evaluations = 0;   // of the denoiser, an image
  std::string start_noise, step_noise;  // the sources
  int64_t planned_bytes = 0;            // of the device's memory, at most, with the driver's
  int64_t peak_bytes = 0;               // likewise, measured where RunEvents::planned is asked for
  double text_seconds = 0, sampling_seconds = 0, decoding_seconds = 0;
};

// A picture of one of several requests.
struct JoinedPicture {
  size_t request = 0;
  int64_t index = 0;  // of the request
};
// Of run_joined(), likewise.
struct JoinedEvents {
  std::function<bool(const RunProgress&)> progress = {};
  std::function<void(Picture)> picture = {};
  std::function<void(const StepView&)> step = {};  // of the batch, in the order of its pictures
  std::function<void(size_t request, const std::string&)> tell = {};
};

struct TextToImageOptions {
  text::EmbeddingFolder embeddings = {};  // what prompts may name
  // The text encoders' plans, which hold their weights on the device, stay between requests.
  bool keeps_encoders = true;
  size_t plans = 8;  // of the denoiser that stay compiled
  // What another strength of LoRAs needs stays on the device, as long as there is room.
  bool keeps_loras = false;
  int64_t memory = 0;  // bytes of the device that a run keeps within; 0: those that are free
};

class TextToImage {
 public:
  // Reads the tokenizer; the rest is compiled when a request needs it. Throws Error.
  TextToImage(CheckpointParts parts, Context context, TextToImageOptions options = {});

  const CheckpointParts& parts() const { return parts_; }
  ResolvedTextToImage resolve(const TextToImageRequest& request) const {
    return ebb::resolve(parts_, request);
  }
  // The options as they will run, with what the device decides.
  GenerateOptions ran(const ResolvedTextToImage& r) const { return pipeline_.ran(r.first()); }
  // Of a pass, with what takes the place of `auto` on this device.
  DType dtype_of(const RunPass& pass) const {
    return (pass.refined ? *refiner_ : pipeline_).dtype_of(pass.request);
  }
  // What makes small pictures of predictions: by `decoder`, a small autoencoder such as TAESD, or
  // by the linear map that is nearest to what the checkpoint's autoencoder makes. Lives no longer
  // than this. Throws Error where both are missing.
  Preview preview(const ResolvedTextToImage& r, const std::optional<LoadedComponent>& decoder = {});
  // Of a request that leaves the batch open, it is the largest that takes no more measures to keep
  // within memory than a single picture does, on a processor at most 4. Where memory runs out in
  // the middle of a run nonetheless, half of it, and then one component is on the device at a time.
  // Throws Error, and Cancelled where `progress` returned false; pictures that were handed out
  // before stay good, and so does the object.
  // `next`: the pictures of the request that this one makes, at most as many as it is asked for;
  // asked again when they are handed out, until there are none. Empty: all.
  using NextImages = std::function<ImageRange(int64_t most)>;
  RunReport run(const ResolvedTextToImage& r, const RunEvents& events = {},
                const NextImages& next = {});
  // Whether pictures of another request can be in one batch with those of `lead`: all is the same
  // but prompts, seeds, numbers of pictures and the pictures to start from and of control networks,
  // and of those the sizes are. Runs nothing, and holds until something runs. Throws Error.
  using Joins = std::function<bool(const ResolvedTextToImage& other)>;
  Joins joins(ResolvedTextToImage lead);
  // Runs of requests that can be joined, in batches of any of their pictures: as many as `next`
  // gives at a time, which is asked for at most as many as memory allows and ends the run with
  // none. Each has the noise that it has alone. Where memory runs out, as run(). Throws Error; what
  // was handed out before stays good.
  using NextJoined = std::function<std::vector<JoinedPicture>(int64_t most)>;
  RunReport run_joined(std::span<const ResolvedTextToImage> requests, const JoinedEvents& events,
                       const NextJoined& next);
  const Context& context() const { return context_; }
  int64_t limit() const;  // bytes of the device that a run may take

 private:
  using Tell = std::function<void(const std::string&)>;
  struct RunSetup;
  void apply_loras(const ResolvedTextToImage& r);
  // Throws Error: that of a run whose numbers are lost, and what LoRAs have to do with it.
  [[noreturn]] void explain_loss(const ResolvedTextToImage& r, const std::string& error) const;
  // `sketch`: nothing runs, values are zeros; it gets what image encoders need.
  RunConditions encoded(const ResolvedTextToImage& r, const RunPass& pass, const Tell& tell,
                        std::vector<PlanNeeds>* sketch = nullptr);
  std::vector<RunInputs> prepared(const ResolvedTextToImage& r, RunMeter& meter, const Tell& tell);
  Pipeline& pipeline_of(const RunPass& pass) { return pass.refined ? *refiner_ : pipeline_; }
  // Memory: text_to_image_memory.cpp.
  struct Sketch;
  class PixelModel;
  Sketch sketch(const ResolvedTextToImage& r);
  std::vector<StageMemory> stages(const ResolvedTextToImage& r, const Sketch& s,
                                  const MemoryPolicy& policy);
  void release_denoisers();
  void text_stage(DeviceModel& device, const Sketch& s, const MemoryPolicy& policy) const;
  void drop_plans(const ResolvedTextToImage& r, const Sketch& s);
  std::vector<std::pair<std::string, int64_t>> peaks_in_other_dtypes(const ResolvedTextToImage& r,
                                                                     const Sketch& s,
                                                                     int64_t limit);
  std::vector<std::pair<std::string, int64_t>> fitting_requests(const ResolvedTextToImage& r,
                                                                const Sketch& s, int64_t limit);
  int64_t smallest_peak(const ResolvedTextToImage& r, int64_t limit);
  MemoryChoice measures(const ResolvedTextToImage& r, const Sketch& s);
  RunMemory fit_batch(ResolvedTextToImage& r, const Sketch& s, int64_t limit);
  // What stages() depends on.
  struct StagesOf {
    std::vector<DenoiserOptions> denoisers;
    std::vector<Shape> shapes;
    std::vector<double> numbers;
    bool operator==(const StagesOf&) const = default;
  };
  StagesOf stages_of(const ResolvedTextToImage& r, const Sketch& s);
  RunMemory planned(ResolvedTextToImage& r);
  void release();
  std::vector<TextStage*> text_stages() const;
  LatentDecoder& decoder(DType dtype);
  LatentEncoder& encoder(DType dtype);
  // For modes; `tells` gets what of `work` is done, and ends the run by what it throws.
  RunTools tools(DType dtype, const PassWork& work, const std::function<void(double)>& tells);
  Tensor enlarged(const Tensor& pixels, double scale, const std::function<bool(double)>& progress);
  Tensor decoded(const Tensor& latents, DType dtype,
                 const std::function<void(double)>& progress = {});
  Tensor sampled(const ResolvedTextToImage& r, const std::vector<RunInputs>& inputs,
                 const ImageRange& left, RunSetup& run);
  Tensor pixels_of(const ResolvedTextToImage& r, const Tensor& latents,
                   const std::function<bool(double)>& progress);
  // Pictures that were made together.
  struct Batch {
    Tensor latents;
    int64_t pictures;  // with those that fill it up
  };
  void hand_out(std::span<const ResolvedTextToImage> requests,
                std::span<const JoinedPicture> pictures, const Batch& batch, RunSetup& run);
  ResolvedTextToImage batch_of(std::span<const ResolvedTextToImage> requests,
                               std::span<const JoinedPicture> pictures) const;
  // Of the first ones of those that are left, as many as are made at a time.
  using Sample = std::function<Batch(std::span<const JoinedPicture> left)>;
  void make(std::span<const ResolvedTextToImage> requests, std::span<const JoinedPicture> pictures,
            const Sample& sample, RunSetup& run);
  bool take_less(ResolvedTextToImage& r);

  CheckpointParts parts_;
  // What the context's copies, which plans have, ask of the request that runs.
  struct Hooks {
    bool quiet = false;            // plans are only made to know what they would take
    std::function<void()> poll{};  // may end it
  };
  static Context hooked(const std::shared_ptr<Hooks>& hooks, Context c);
  std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  Context context_;
  int64_t driver_bytes_;  // when the device was opened
  TextToImageOptions options_;
  std::shared_ptr<const text::ClipVocabulary> vocabulary_;
  Pipeline pipeline_;
  std::optional<Pipeline> refiner_;
  struct Text {
    DType dtype = DType::f32;
    int64_t layer = 0;  // of the first encoder, which tells the clip skip
    std::unique_ptr<TextStage> stage;
  };
  Text text_, refiner_text_;
  struct Pixels {
    DType dtype = DType::f32;
    CircularAxes tiling = {};
    std::unique_ptr<LatentDecoder> decoder;
    std::unique_ptr<LatentEncoder> encoder;
  };
  Pixels& pixels_in(DType dtype);
  void take_tiling(CircularAxes tiling);
  Pixels pixels_;
  std::unique_ptr<Upscaler> upscaler_, hires_upscaler_;
  std::weak_ptr<LatentDecoder> preview_decoder_;             // as long as previews use it
  std::vector<adapters::AdapterUse> loras_, refiner_loras_;  // of the last run
  // Of the request that runs.
  int64_t made_ = 0;  // pictures, by this one
  MemoryPolicy policy_;
  RunWork work_;
  KnownFlops flops_;
  Tell tell_;
  std::function<void(const StepView&)> step_;
  CircularAxes tiling_;
  // Of the last run that was planned, if it took no measures.
  struct Planned {
    StagesOf of;
    RunMemory memory;
  };
  std::optional<Planned> planned_;
};

}  // namespace ebb
