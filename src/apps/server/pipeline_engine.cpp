// The engine of models: what `ebb generate` runs, kept between jobs.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <list>

#include "apps/cli/generate_request.h"
#include "apps/cli/picture_texts.h"
#include "apps/cli/terminal.h"
#include "apps/server/batch.h"
#include "apps/server/catalogue.h"
#include "apps/server/fault.h"
#include "apps/server/request_limits.h"
#include "apps/server/settings.h"
#include "base/byte_size.h"
#include "base/error.h"
#include "base/file_and_numbers.h"
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
    if (!context_) context_ = cli::open_device(device_);
    if (job.spec.kind == JobKind::upscale) return upscale(job, events);
    const cli::GenerateFlags o = settled(job);
    const TextToImageRequest request = cli::request_of(o);
    load(o, job, events);
    const ResolvedTextToImage resolved = pipeline_->resolve(request);
    for (const std::string& w : resolved.warnings) events.warn(w);
    Position at{.next = first, .count = request.count};
    while (at.next < at.count) {
      at.makes = false;
      try {
        generate(o, resolved, at, events);
      } catch (const Cancelled&) {
        if (!job.skip.exchange(false) || job.cancel) throw;
        at.skips = !at.makes;
      }
    }
  }

  // Another model than the loaded one is planned beside it, by its file's header.
  JobMemory plan(const Job& job) override {
    if (!context_) context_ = cli::open_device(device_);
    const cli::GenerateFlags o = settled(job);
    require(!o.model.empty(), "serve: the request names no model, and the catalogue has none");
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
    return [this, key, o](const Job& other) {
      const cli::GenerateFlags b = settled(other);
      return key == batch_key(b, other) &&
             pipeline_->can_join(pipeline_->resolve(cli::request_of(o)),
                                 pipeline_->resolve(cli::request_of(b)));
    };
  }

  void run_batch(std::span<BatchMember> members) override {
    std::vector<JoinedJob> jobs;
    std::vector<ResolvedTextToImage> requests;
    for (const BatchMember& m : members) {
      const cli::GenerateFlags o = settled(*m.job);
      requests.push_back(pipeline_->resolve(cli::request_of(o)));
      const ResolvedTextToImage& r = requests.back();
      for (const std::string& w : r.warnings) m.events->warn(w);
      jobs.push_back({o, without_folders(o), hashes_of(o), lora_hashes(r)});
    }
    BatchRun run(members);
    const GenerateOptions ran = pipeline_->ran(requests[0]);
    JobProgress p{.steps = ran.steps};
    JoinedEvents events;
    events.progress = [&](const RunProgress& now) {
      p.share = now.of_run, p.seconds_left = now.seconds_left;
      return run.progress(p);
    };
    events.step = [&](const StepView& s) {
      p.step = s.step, p.steps = s.steps;
      const std::vector<size_t> wanted = s.step < s.steps ? run.previews() : std::vector<size_t>();
      for (const size_t i : wanted)
        show(requests[0], s, static_cast<int64_t>(i), *members[run.slots()[i].member].events);
    };
    size_t slot = 0;  // of the next picture
    events.picture = [&](const Picture& made) {
      run.picture(slot++, made_of(jobs[made.request], requests[made.request], made));
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
    preview_ = {};
    pipeline_.reset(), upscaler_.reset();
    key_.clear(), loaded_.clear();
  }
  std::string loaded() const override { return loaded_; }

 private:
  // What is told of a job's pictures beside them.
  struct JoinedJob {
    cli::GenerateFlags flags, shown;
    cli::HashTexts hashes;
    std::vector<std::string> loras;
  };
  // As if it had been made alone, but for the size of its batch.
  MadePicture made_of(const JoinedJob& job, const ResolvedTextToImage& r, const Picture& made) {
    Picture alone = made;
    alone.batch = 1, alone.batch_first = made.index;
    auto text = cli::picture_texts({job.shown, r, pipeline_->ran(r), alone, job.hashes, job.loras});
    text["parameters"] += str(", Batch size: ", made.batch);
    return {made.index, picture_bytes(made.pixels, job.flags.generate.dialect), std::move(text),
            uint64_t{seed_of_picture(r.first(), job.flags.first_image + made.index)}, made.batch};
  }

  static cli::GenerateFlags settled(const Job& job) {
    cli::GenerateFlags out = job.spec.flags;
    cli::settle(out, [&](std::string_view f) { return job.spec.given.contains(f); });
    return out;
  }

  std::unique_ptr<TextToImage> pipeline_of(const cli::GenerateFlags& o, CheckpointParts parts) {
    TextToImageOptions options{.keeps_loras = true, .memory = memory_};
    if (!o.embedding_dir.empty())
      options.embeddings = text::read_embedding_folder(o.embedding_dir, cli::syntax_of(o));
    return std::make_unique<TextToImage>(std::move(parts), *context_, options);
  }

  void load(const cli::GenerateFlags& o, const Job& job, JobEvents& events) {
    require(!o.model.empty(), "serve: the request names no model, and the catalogue has none");
    const std::string key = key_of(o);
    if (pipeline_ && key == key_) return;
    events.model(shown_model(job), false);
    CheckpointParts parts = cli::parts_of(o);  // the one before stays good where this throws
    release();
    pipeline_ = pipeline_of(o, std::move(parts));
    key_ = key, loaded_ = shown_model(job);
    events.model(loaded_, true);
  }

  cli::HashTexts hashes_of(const cli::GenerateFlags& o) const {
    cli::HashTexts out;
    for (const auto& [name, path] : {std::pair{"model", &o.model}, std::pair{"vae", &o.vae}})
      if (const auto f = catalogue_.by_path(*path); f && !f->sha256.empty()) out[name] = f->hash();
    return out;
  }

  static std::vector<std::string> lora_hashes(const ResolvedTextToImage& r) {
    std::list<FileHash> hashes;
    for (const auto* uses : {&r.loras, &r.refiner_loras})
      for (const adapters::AdapterUse& use : *uses)
        hashes.emplace_back(use.file->path(), HashOf::tensors);
    std::vector<std::string> out;
    for (FileHash& h : hashes) out.push_back(h.hex());
    return out;
  }

  void generate(const cli::GenerateFlags& o, const ResolvedTextToImage& r, Position& at,
                JobEvents& events) {
    const GenerateOptions ran = pipeline_->ran(r);
    const cli::GenerateFlags shown = without_folders(o);
    const cli::HashTexts hashes = hashes_of(o);
    const std::vector<std::string> loras = lora_hashes(r);
    JobProgress p{.image = at.next, .images = at.count, .steps = ran.steps};
    RunEvents run;
    run.progress = [&](const RunProgress& now) {
      p.share = now.of_run, p.seconds_left = now.seconds_left;
      if (now.stage == Stage::sampling && p.step == 0 && at.makes) p.image = at.next - 1;
      return events.progress(p);
    };
    run.step = [&](const StepView& s) {
      p.step = s.step, p.steps = s.steps;
      if (events.wants_preview() && s.step < s.steps) show(r, s, 0, events);
    };
    run.picture = [&](const Picture& made) {
      const int64_t image = o.first_image + made.index;
      p.image = std::min(made.index + 1, at.count - 1), p.step = 0;
      events.picture({made.index, picture_bytes(made.pixels, o.generate.dialect),
                      cli::picture_texts({shown, r, ran, made, hashes, loras}),
                      uint64_t{seed_of_picture(r.first(), image)}});
    };
    run.tell = [&](const std::string& text) { events.warn(text); };
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

std::string shown_model(const Job& job) { return fs::path(job.spec.flags.model).stem().string(); }

}  // namespace ebb::server
