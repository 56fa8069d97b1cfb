// The engine of tests: pictures that depend on the settings alone, at a settable speed.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "apps/cli/picture_output.h"
#include "apps/cli/settings_file.h"
#include "apps/server/batch.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/version.h"
#include "core/device_lost.h"
#include "core/out_of_memory.h"
#include "diffusion/solver/run.h"
#include "io/image.h"
#include "io/mask_file.h"
#include "io/resize.h"
#include "pipeline/infotext.h"

namespace ebb::server {
namespace {

struct Size {
  int64_t height = 512, width = 512;
};

Size size_of(const cli::GenerateFlags& o) {
  const ImageSize s = cli::image_size(o.size, "generate");
  if (s.height > 0) return {s.height, s.width};
  return {};
}

// Stripes and a gradient in colours of the prompt and the seed.
Tensor pattern(const Size& size, uint64_t key, int64_t step) {
  Tensor out(DType::u8, {size.height, size.width, 3});
  uint8_t* p = out.span<uint8_t>().data();
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        const uint64_t part = key >> (8 * c);
        const int64_t wave =
            (x * static_cast<int64_t>(part % 7 + 1) + y * static_cast<int64_t>(part % 5 + 1)) / 4;
        *p++ = static_cast<uint8_t>(static_cast<int64_t>(part & 127) + (wave + step) % 128);
      }
  return out;
}

// The start picture, with the pattern where the mask is white.
void lay_over(Tensor& out, const cli::GenerateFlags& o) {
  if (o.modes.init.empty()) return;
  const int64_t h = out.shape()[0], w = out.shape()[1];
  const Tensor init = io::resize(io::read_image(o.modes.init, 3), h, w);
  Tensor mask;
  if (!o.modes.mask.empty()) mask = io::resize(io::read_mask(o.modes.mask), h, w);
  for (int64_t i = 0; i < h * w; ++i) {
    int64_t share = mask.defined() ? mask.span<uint8_t>()[static_cast<size_t>(i)] : 255;
    if (o.modes.mask_invert) share = 255 - share;
    share = static_cast<int64_t>(static_cast<double>(share) * o.modes.strength);
    for (int64_t c = 0; c < 3; ++c) {
      uint8_t& v = out.span<uint8_t>()[static_cast<size_t>(3 * i + c)];
      const int64_t before = init.span<uint8_t>()[static_cast<size_t>(3 * i + c)];
      v = static_cast<uint8_t>((share * v + (255 - share) * before) / 255);
    }
  }
}

std::map<std::string, std::string> texts_of(const cli::GenerateFlags& o, const Size& size,
                                            uint64_t seed, int64_t index) {
  Infotext t{.prompt = o.prompt, .negative = o.negative, .values = {}};
  const GenerateOptions& g = o.generate;
  const std::string model = std::filesystem::path(o.model).stem().string();
  t.values = {{"Steps", str(g.steps)},
              {"Sampler", g.sampler},
              {"CFG scale", str(g.guidance)},
              {"Seed", str(seed)},
              {"Size", str(size.width, 'x', size.height)}};
  if (!model.empty()) t.values.emplace_back("Model", model);
  t.values.emplace_back("Version", str("ebb ", version));
  cli::GenerateFlags plain = o;
  plain.model = model, plain.lora_dir.clear(), plain.modes.init.clear(), plain.modes.mask.clear();
  return {{"Software", str("ebb ", version)},
          {"parameters", infotext(t)},
          {std::string(cli::settings_keyword),
           cli::settings_json(plain.settings(false), plain.diffusion, index, {})}};
}

// What it would take of a device's memory.
constexpr int64_t bytes_of_pixel = 64, memory_limit = 1'000'000'000;
int64_t bytes_of(const Size& size) { return bytes_of_pixel * size.height * size.width; }

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(int64_t step_ms) : step_(step_ms) {}

  void run(const Job& job, int64_t first, JobEvents& events) override {
    if (job.spec.kind == JobKind::upscale) return upscale(job, events);
    const cli::GenerateFlags o = settled(job);
    bool skips = false;  // the first picture, before it is begun
    if (shown_model(job) != model_) {
      events.model(shown_model(job), false);
      require(o.prompt != "fail to load", "fake: the prompt asks for a model that is broken");
      skips = !step(job, events, {.images = o.n});
      events.model(model_ = shown_model(job), true);
    }
    require(o.prompt != "fail", "fake: the prompt asks for a failure");
    if (o.prompt == "out of memory") throw OutOfMemory("fake: the prompt asks for too much");
    if (o.prompt == "lose the device") throw DeviceLost("fake: the prompt asks for a lost device");
    for (int64_t i = first + (skips ? 1 : 0); i < o.n; ++i) make(job, o, i, events);
  }
  std::string loaded() const override { return model_; }
  JobMemory plan(const Job& job) override {
    const int64_t bytes = bytes_of(size_of(job.spec.flags));
    require(bytes <= memory_limit, "fake: the picture does not fit (", bytes, " bytes of ",
            memory_limit, ")");
    return {.bytes = bytes, .limit = memory_limit, .text = str(bytes, " bytes")};
  }
  Joins joins(const Job& job) override {
    const std::string key = shown_model(job) == model_ ? batch_key(settled(job), job) : "";
    if (key.empty()) return {};
    return [key](const Job& other) { return key == batch_key(settled(other), other); };
  }
  // A step of all takes as long as one of one.
  void run_batch(std::span<BatchMember> members) override {
    std::vector<cli::GenerateFlags> flags;
    for (const BatchMember& m : members) flags.push_back(settled(*m.job));
    for (const auto& o : flags) require(o.prompt != "fail", "fake: the prompt asks for a failure");
    BatchRun run(members);
    const int64_t most = std::max<int64_t>(memory_limit / bytes_of(size_of(flags[0])), 1);
    while (!run.take(most).empty()) {
      JobProgress p{.steps = flags[0].generate.steps};
      for (p.step = 0; p.step < p.steps; ++p.step) {
        p.share = static_cast<double>(p.step) / static_cast<double>(p.steps);
        wait([&] { return run.progress(p); });
        const auto wanted = p.step > 0 ? run.previews() : std::vector<size_t>();
        for (const size_t i : wanted) {
          const BatchRun::Slot& s = run.slots()[i];
          members[s.member].events->preview(made(flags[s.member], s.index, p.step).pixels);
        }
      }
      for (size_t i = 0; i < run.slots().size(); ++i) {
        const BatchRun::Slot& s = run.slots()[i];
        MadePicture picture = made(flags[s.member], s.index, 0);
        picture.batch = std::ssize(run.slots());
        run.picture(i, std::move(picture));
      }
    }
  }
  void release() override { model_.clear(); }

 private:
  // `step` 0: the whole one, else a small one on the way.
  static MadePicture made(const cli::GenerateFlags& o, int64_t i, int64_t step) {
    const Size size = size_of(o);
    const uint64_t seed = uint64_t{o.generate.seed} + static_cast<uint64_t>(o.first_image + i);
    const uint64_t key =
        fnv1a(str(o.prompt, '\n', o.negative, '\n', seed, '\n', o.generate.steps, ' ',
                  o.generate.guidance, ' ', o.generate.sampler, ' ', size.width, 'x', size.height));
    if (step > 0) return {i, pattern({size.height / 8, size.width / 8}, key, step), {}, seed};
    Tensor pixels = pattern(size, key, 0);
    lay_over(pixels, o);
    return {i, std::move(pixels), texts_of(o, size, seed, i), seed};
  }
  void make(const Job& job, const cli::GenerateFlags& o, int64_t i, JobEvents& events) const {
    JobProgress p{.image = i, .images = o.n, .steps = o.generate.steps};
    const double all = static_cast<double>(o.n * p.steps);
    for (p.step = 0; p.step < p.steps; ++p.step) {
      p.share = static_cast<double>(i * p.steps + p.step) / all;
      p.seconds_left = (all - static_cast<double>(i * p.steps + p.step)) *
                       std::chrono::duration<double>(step_).count();
      if (events.wants_preview() && p.step > 0) events.preview(made(o, i, p.step).pixels);
      if (!step(job, events, p)) return;
    }
    events.picture(made(o, i, 0));
  }

  void upscale(const Job& job, JobEvents& events) {
    wait([&] { return events.progress({}); });
    events.picture(
        {0, resized(io::read_image(job.spec.upscale.image, 3), job.spec.upscale), {}, 0});
  }

  // False: it was told to skip the picture.
  bool step(const Job& job, JobEvents& events, const JobProgress& p) const {
    try {
      wait([&] { return events.progress(p); });
    } catch (const Cancelled&) {
      if (!job.skip.exchange(false) || job.cancel) throw;
      return false;
    }
    return true;
  }
  void wait(const std::function<bool()>& goes_on) const {
    constexpr std::chrono::milliseconds part{10};
    for (auto left = step_;; left -= part) {
      if (!goes_on()) throw Cancelled("fake: stopped");
      if (left <= std::chrono::milliseconds(0)) return;
      std::this_thread::sleep_for(std::min(left, part));
    }
  }

  std::chrono::milliseconds step_;
  std::string model_;
};

}  // namespace

std::unique_ptr<Engine> fake_engine(int64_t step_ms) {
  return std::make_unique<FakeEngine>(step_ms);
}

}  // namespace ebb::server
