// The engine of models: what `ebb generate` runs, kept between jobs.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>

#include "apps/cli/generate_request.h"
#include "apps/cli/guesses.h"
#include "apps/cli/picture_texts.h"
#include "apps/cli/terminal.h"
#include "apps/server/batch.h"
#include "apps/server/catalogue.h"
#include "apps/server/fault.h"
#include "apps/server/log.h"
#include "apps/server/request_limits.h"
#include "apps/server/settings.h"
#include "base/byte_size.h"
#include "base/error.h"
#include "base/text.h"
#include "diffusion/solver/run.h"
#include "io/image.h"
#include "io/resize.h"
#include "pipeline/decoder.h"
#include "pipeline/file_hash.h"
#include "pipeline/noise_parameters.h"
#include "pipeline/picture_bytes.h"
#include "pipeline/text_to_image.h"
#include "pipeline/upscaler.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;

void check_names_model(const cli::GenerateFlags& o) {
  if (o.model.empty())
    throw HttpFault(503, "no_model",
                    "serve: there is no model: the request names none, and the catalogue is empty; "
                    "--models FOLDER names a folder of checkpoints");
}

// What a loaded checkpoint depends on.
std::string key_of(const cli::GenerateFlags& o) {
  const auto& c = o.control;
  std::string out =
      str(o.model, '\n', o.vae, '\n', o.text_encoder, '\n', o.variant, '\n', o.ema, '\n',
          o.modes.refiner_file(), '\n', o.modes.upscaler_file(), '\n', c.control_model.text(), '\n',
          c.image_encoder, '\n', c.upscale, '\n', o.embedding_dir);
  for (const auto& [name, value] : o.diffusion) out += str('\n', name, '=', value);
  return out;
}

// Pictures tell names of files, not where they lie on the server.
cli::GenerateFlags without_folders(cli::GenerateFlags o) {
  const auto name = [](std::string& path) {
    if (!path.empty()) path = fs::path(path).filename().string();
  };
  const std::vector<Field> fields = fields_of(o);
  for (const FileSetting& s : file_settings()) {
    const Field& f = find_field(fields, s.name, "setting");
    const std::string paths = field_text(f);  // parted() gives views of it
    std::vector<std::string> names;
    for (const std::string_view path : parted(paths, ";"))
      names.push_back(fs::path(path).filename().string());
    set_field(f, separated(names, ";"));
  }
  for (std::string* input : {&o.modes.init, &o.modes.mask}) name(*input);
  o.control.control.texts.clear(), o.control.control_mask.texts.clear();
  if (!o.modes.upscaler_file().empty()) {
    Hires h = parse_hires(o.modes.hires);
    name(h.upscaler);
    o.modes.hires = str(h.scale, ':', h.upscaler, ':', h.steps, ':', h.strength);
  }
  o.lora_dir.clear(), o.embedding_dir.clear();
  return o;
}

// Where to go on in a job's pictures.
struct Position {
  int64_t next = 0, count = 0;
  bool makes = false;  // a range is being made
  bool skips = false;  // the next one, as none was being made when it was to be skipped
  ImageRange take(int64_t most) {
    if (std::exchange(skips, false)) next = std::min(next + most, count);
    const ImageRange out{next, std::min(next + most, count)};
    next = out.end, makes = true;
    return out;
  }
};

class PipelineEngine final : public Engine {
 public:
  PipelineEngine(const Catalogue& catalogue, cli::CommonOptions device, std::string memory)
      : catalogue_(catalogue), device_(std::move(device)) {
    if (memory != "auto") {
      const auto bytes = parse_size(memory);
      require(bytes.has_value(), "serve: --memory must be auto or ", size_forms, " (got '", memory,
              "')");
      memory_ = *bytes;
    }
  }

  void run(const Job& job, int64_t first, JobEvents& events) override {
    open_device();
    if (job.spec.kind == JobKind::upscale) return upscale(job, events);
    const Ready ready = loaded(job, events);
    for (const std::string& w : ready->request.warnings) events.warn(w);
    Position at{.next = first, .count = ready->request.request.count};
    while (at.next < at.count) {
      at.makes = false;
      try {
        generate(ready, at, events);
      } catch (const Cancelled&) {
        if (!job.skip.exchange(false) || job.cancel) throw;
        at.skips = !at.makes;
      }
    }
  }

  // Another model than the loaded one is planned beside it, by its file's header.
  JobMemory plan(const Job& job) override {
    open_device();
    const cli::GenerateFlags o = settled(job);
    check_names_model(o);
    const bool is_loaded = pipeline_ && key_of(o) == key_;
    std::unique_ptr<TextToImage> other;
    if (!is_loaded) other = pipeline_of(o, cli::parts_of(o));
    TextToImage& pipeline = is_loaded ? *pipeline_ : *other;
    JobMemory out;
    RunEvents run;
    run.planned = [&](const RunMemory& m) {
      out = {.bytes = m.peak(), .limit = pipeline.limit(), .text = text_of(m)};
      throw Cancelled("serve: it was to be planned");
    };
    try {
      pipeline.run(pipeline.resolve(cli::request_of(o)), run);
    } catch (const Cancelled&) {  // nothing has run
    }
    return out;
  }

  Joins joins(const Job& job) override {
    if (!pipeline_) return {};
    const cli::GenerateFlags o = settled(job);
    const std::string key = batch_key(o, job);
    if (key.empty() || key_of(o) != key_) return {};
    return [this, key, o, &job, joins = TextToImage::Joins()](const Job& other) mutable {
      const cli::GenerateFlags b = settled(other);
      if (key != batch_key(b, other)) return false;
      if (!joins) joins = pipeline_->joins(ready(job, o)->request);
      return joins(ready(other, b)->request);
    };
  }

  void run_batch(std::span<BatchMember> members) override {
    std::vector<Ready> jobs;
    std::vector<ResolvedTextToImage> requests;
    for (const BatchMember& m : members) {
      jobs.push_back(ready(*m.job, settled(*m.job)));
      requests.push_back(jobs.back()->request);
      for (const std::string& w : requests.back().warnings) m.events->warn(w);
    }
    ready_.clear(), next_ = {};
    BatchRun run(members);
    JobProgress p{.steps = jobs[0]->ran.steps};
    JoinedEvents events;
    events.progress = [&](const RunProgress& now) {
      p.share = now.of_run, p.seconds_left = now.seconds_left;
      return run.progress(p);
    };
    events.step = [&](const StepView& s) {
      p.step = s.step, p.steps = s.steps;
      prepare_next(*members[0].events);
      const std::vector<size_t> wanted = s.step < s.steps ? run.previews() : std::vector<size_t>();
      for (const size_t i : wanted)
        show(requests[0], s, static_cast<int64_t>(i), *members[run.slots()[i].member].events);
    };
    size_t slot = 0;  // of the next picture
    events.picture = [&](const Picture& made) {
      run.picture(slot++, made_of(jobs[made.request], made, true));
    };
    events.tell = [&](size_t i, const std::string& text) { members[i].events->warn(text); };
    pipeline_->run_joined(requests, events, [&](int64_t most) {
      std::vector<JoinedPicture> out;
      for (const BatchRun::Slot& s : run.take(most)) out.push_back({s.member, s.index});
      slot = 0, p.step = 0;
      return out;
    });
  }

  void release() override {
    preview_ = {}, next_ = {};
    ready_.clear();
    pipeline_.reset(), upscaler_.reset();
    key_.clear(), loaded_.clear();
  }
  std::string loaded() const override { return loaded_; }

 private:
  // A job as it will run, and what is told of its pictures beside them.
  struct ReadyJob {
    cli::GenerateFlags flags, shown;
    ResolvedTextToImage request;
    GenerateOptions ran;
    cli::HashTexts hashes;
    std::vector<std::string> loras;
  };
  using Ready = std::shared_ptr<const ReadyJob>;

  // By the model that is loaded; any thread.
  Ready ready_of(const cli::GenerateFlags& o, const TextToImageRequest& request) {
    ResolvedTextToImage r = pipeline_->resolve(request);
    GenerateOptions ran = pipeline_->ran(r);
    std::vector<std::string> loras = lora_hashes(r);
    return std::make_shared<ReadyJob>(ReadyJob{o, without_folders(o), std::move(r), std::move(ran),
                                               hashes_of(o), std::move(loras)});
  }

  // Once, until something runs.
  Ready ready(const Job& job, const cli::GenerateFlags& o) {
    Ready& out = ready_[job.file];
    if (!out && next_.of.get() == &job) out = std::exchange(next_, {}).job.get();
    if (!out) out = ready_of(o, cli::request_of(o));
    return out;
  }

  // Begins what the next job needs no device for. One of several start pictures is several runs.
  void prepare_next(JobEvents& events) {
    if (next_.job.valid()) return;
    const std::shared_ptr<const Job> next = events.next();
    if (!next || next->spec.kind != JobKind::generate || !next->spec.more_inits.empty()) return;
    next_ = {next, std::async(std::launch::async, [this, next]() -> Ready {
               const cli::GenerateFlags o = settled(*next);
               return key_of(o) == key_ ? ready_of(o, cli::request_of(o)) : nullptr;
             })};
  }

  // Loads its model. One that cannot be asked for leaves the one that is loaded.
  Ready loaded(const Job& job, JobEvents& events) {
    const cli::GenerateFlags o = settled(job);
    check_names_model(o);
    Ready out;
    if (pipeline_ && key_of(o) == key_) {
      out = ready(job, o);
    } else {
      const TextToImageRequest request = cli::request_of(o);
      load(o, job, events);
      out = ready_of(o, request);
    }
    ready_.clear(), next_ = {};
    return out;
  }

  // `joined` with pictures of other jobs: as if it had been made alone, but for the size of its
  // batch.
  static MadePicture made_of(const Ready& job, Picture made, bool joined) {
    MadePicture out{.index = made.index,
                    .seed = uint64_t{seed_of_picture(job->request.first(),
                                                     job->flags.first_image + made.index)},
                    .batch = joined ? made.batch : 1};
    made.latents = {};
    if (joined) made.batch = 1, made.batch_first = made.index;
    out.complete = [job, made = std::move(made), joined](MadePicture& p) {
      p.pixels = picture_bytes(made.pixels, job->flags.generate.dialect);
      p.text =
          cli::picture_texts({job->shown, job->request, job->ran, made, job->hashes, job->loras});
      if (joined) p.text["parameters"] += str(", Batch size: ", p.batch);
    };
    return out;
  }

  // Its notes are lines of the log, as all that may wait for whoever reads them.
  void open_device() {
    if (context_) return;
    context_ = cli::open_device(device_);
    context_->log = [](std::string_view line) { server_log().add(str("note: ", line)); };
  }

  std::unique_ptr<TextToImage> pipeline_of(const cli::GenerateFlags& o, CheckpointParts parts) {
    TextToImageOptions options{.keeps_loras = true, .memory = memory_};
    if (!o.embedding_dir.empty())
      options.embeddings = text::read_embedding_folder(o.embedding_dir, cli::syntax_of(o));
    return std::make_unique<TextToImage>(std::move(parts), *context_, options);
  }

  void load(const cli::GenerateFlags& o, const Job& job, JobEvents& events) {
    events.model(shown_model(job), false);
    CheckpointParts parts = cli::parts_of(o);  // the one before stays good where this throws
    for (const std::string& line : cli::guesses_of(parts.denoiser)) {
      events.warn(line);
      server_log().add(line);
    }
    release();
    pipeline_ = pipeline_of(o, std::move(parts));
    key_ = key_of(o), loaded_ = shown_model(job);
    events.model(loaded_, true);
  }

  cli::HashTexts hashes_of(const cli::GenerateFlags& o) const {
    cli::HashTexts out;
    for (const auto& [name, path] : {std::pair{"model", &o.model}, std::pair{"vae", &o.vae}})
      if (const auto f = catalogue_.by_path(*path); f && !f->sha256.empty()) out[name] = f->hash();
    return out;
  }

  // Files that were hashed before are not looked for in the cache on disk again.
  std::vector<std::string> lora_hashes(const ResolvedTextToImage& r) {
    std::vector<std::string> out;
    std::map<std::string, FileHash> hashes;  // beside each other
    const std::lock_guard lock(hashes_);
    const auto for_each = [&](const auto& use_file) {
      for (const auto* uses : {&r.loras, &r.refiner_loras})
        for (const adapters::AdapterUse& use : *uses) use_file(*use.file);
    };
    for_each([&](const adapters::AdapterFile& f) {
      if (!lora_hashes_.contains(f.identity()))
        hashes.try_emplace(f.identity(), f.path(), HashOf::tensors);
    });
    for (auto& [identity, hash] : hashes) lora_hashes_[identity] = hash.hex();
    for_each([&](const adapters::AdapterFile& f) { out.push_back(lora_hashes_[f.identity()]); });
    return out;
  }

  void generate(const Ready& job, Position& at, JobEvents& events) {
    const ResolvedTextToImage& r = job->request;
    JobProgress p{.image = at.next, .images = at.count, .steps = job->ran.steps};
    RunEvents run;
    run.progress = [&](const RunProgress& now) {
      p.share = now.of_run, p.seconds_left = now.seconds_left;
      if (now.stage == Stage::sampling && p.step == 0 && at.makes) p.image = at.next - 1;
      return events.progress(p);
    };
    run.step = [&](const StepView& s) {
      p.step = s.step, p.steps = s.steps;
      prepare_next(events);
      if (events.wants_preview() && s.step < s.steps) show(r, s, 0, events);
    };
    run.picture = [&](const Picture& made) {
      p.image = std::min(made.index + 1, at.count - 1), p.step = 0;
      events.picture(made_of(job, made, false));
    };
    run.tell = [&](const std::string& text) { events.warn(text); };
    prepare_next(events);
    pipeline_->run(r, run, [&](int64_t most) { return at.take(most); });
  }

  // A picture that cannot be made is none that the run is for.
  void show(const ResolvedTextToImage& r, const StepView& s, int64_t image, JobEvents& events) {
    try {
      if (!preview_) preview_ = pipeline_->preview(r);
      events.preview(image_at(to_pixels(preview_(s.denoised().rows(image, image + 1))), 0));
    } catch (const Cancelled&) {
      throw;
    } catch (const Error& e) {
      events.warn(str("preview: ", e.what()));
    }
  }

  void upscale(const Job& job, JobEvents& events) {
    const UpscaleSettings& s = job.spec.upscale;
    const Tensor image = io::read_image(s.image, 3);
    if (s.upscaler == "lanczos" || s.upscaler == "nearest")
      return events.picture({0, resized(image, s), {}, 0});
    if (!upscaler_ || upscaler_file_ != s.upscaler) {
      upscaler_ = std::make_unique<Upscaler>(load_upscaler(s.upscaler, "upscaler"), *context_);
      upscaler_file_ = s.upscaler;
    }
    const auto [height, width] = upscaled_size(image, s);
    const double scale =
        std::max(static_cast<double>(height) / static_cast<double>(image.shape()[0]),
                 static_cast<double>(width) / static_cast<double>(image.shape()[1]));
    const Tensor large = upscaler_->run(signed_pixels(image), scale, [&](double share) {
      return events.progress({.share = share});
    });
    UpscaleSettings rest = s;
    rest.width = width, rest.height = height;
    events.picture({0, resized(image_at(to_pixels(large), 0), rest), {}, 0});
  }

  const Catalogue& catalogue_;
  cli::CommonOptions device_;
  int64_t memory_ = 0;
  std::optional<Context> context_;
  std::unique_ptr<TextToImage> pipeline_;
  Preview preview_;
  std::string key_, loaded_, upscaler_file_;
  std::unique_ptr<Upscaler> upscaler_;
  std::mutex hashes_;
  std::map<std::string, std::string> lora_hashes_;  // by AdapterFile::identity()
  std::map<std::string, Ready> ready_;              // by Job::file
  struct Next {
    std::shared_ptr<const Job> of = {};  // kept: no other job has its address meanwhile
    std::future<Ready> job = {};
  };
  Next next_;  // refers to the others: it ends first
};

}  // namespace

std::unique_ptr<Engine> pipeline_engine(const Catalogue& catalogue, cli::CommonOptions device,
                                        std::string memory) {
  return std::make_unique<PipelineEngine>(catalogue, std::move(device), std::move(memory));
}

std::pair<int64_t, int64_t> upscaled_size(const Tensor& image, const UpscaleSettings& s) {
  if (!(s.scale > 0 && s.scale <= most_scale))
    fail_field("upscale", "the scale must be more than 0, at most ", most_scale);
  if (std::min(s.width, s.height) < 0 || std::max(s.width, s.height) > most_upscaled_side)
    fail_field("upscale", "sides must be from 0 to ", most_upscaled_side);
  const auto h = static_cast<double>(image.shape()[0]), w = static_cast<double>(image.shape()[1]);
  double scale = s.scale;
  const bool is_cropped = s.width > 0 && s.height > 0 && s.crop;
  if (s.width > 0 && s.height > 0) {
    const double by_h = static_cast<double>(s.height) / h, by_w = static_cast<double>(s.width) / w;
    scale = s.crop ? std::max(by_h, by_w) : std::min(by_h, by_w);
  }
  check_pixels("upscale", h * scale, w * scale);
  if (is_cropped) return {s.height, s.width};
  return {std::max<int64_t>(std::llround(h * scale), 1),
          std::max<int64_t>(std::llround(w * scale), 1)};
}

Tensor resized(const Tensor& image, const UpscaleSettings& s) {
  const auto [height, width] = upscaled_size(image, s);
  Tensor whole = image;
  int64_t h = height, w = width;
  if (s.width > 0 && s.crop) {  // covers it; the middle is taken
    const double covers =
        std::max(static_cast<double>(height) / static_cast<double>(image.shape()[0]),
                 static_cast<double>(width) / static_cast<double>(image.shape()[1]));
    h = std::max<int64_t>(height, std::llround(static_cast<double>(image.shape()[0]) * covers));
    w = std::max<int64_t>(width, std::llround(static_cast<double>(image.shape()[1]) * covers));
  }
  if (h != image.shape()[0] || w != image.shape()[1])
    whole = io::resize(image, h, w,
                       s.upscaler == "nearest" ? io::ResizeFilter::box : io::ResizeFilter::lanczos);
  if (h == height && w == width) return whole;
  return io::crop(whole, (h - height) / 2, (w - width) / 2, height, width);
}

cli::GenerateFlags settled(const Job& job) {
  cli::GenerateFlags out = job.spec.flags;
  cli::settle(out, [&](std::string_view f) { return job.spec.given.contains(f); });
  return out;
}

std::string shown_model(const Job& job) { return fs::path(job.spec.flags.model).stem().string(); }

}  // namespace ebb::server
