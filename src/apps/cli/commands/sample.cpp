// ebb sample CHECKPOINT: pictures from a trained model.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "base/version.h"
#include "io/file.h"
#include "io/image.h"
#include "pipeline/generator.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string checkpoint, model, out = "samples.png", wanted = "all";
  int64_t n = 16, columns = 0;
  GenerateOptions generate;
  CommonOptions common;
  FieldTexts diffusion;
  void fields(auto&& f) {
    f("n", n, "number of images");
    f("class", wanted, "a class (number or name), all (in turn) or none");
    f("out", out, "a .png file for one grid, else a folder for single files");
    f("columns", columns, "of the grid; 0: automatic");
    f("model", model, "model of a file that is not recognised");
    generate.fields(f);
  }
};

// The words all and none in any case, unless a class is called so.
void resolve_class(Options& o, const LoadedModel& m) {
  const std::string word = small_letters(o.wanted);
  const bool is_class = std::ranges::find(m.class_names, o.wanted) != m.class_names.end();
  if (!is_class && (word == "all" || word == "none")) o.wanted = word;
}

std::vector<int64_t> classes_for(const Options& o, const LoadedModel& m) {
  const int64_t count = m.config.common().classes;
  std::vector<int64_t> out(static_cast<size_t>(o.n), -1);
  if (count == 0 || o.wanted == "none") {
    require(count > 0 || o.wanted == "all" || o.wanted == "none",
            "sample: the model has no classes (--class ", o.wanted, ")");
    return out;
  }
  if (o.wanted == "all") {
    for (int64_t i = 0; i < o.n; ++i) out[static_cast<size_t>(i)] = i % count;
    return out;
  }
  const size_t named = find_name(o.wanted, m.class_names);
  const bool known = named < m.class_names.size();
  const bool number = !o.wanted.empty() && std::all_of(o.wanted.begin(), o.wanted.end(),
                                                       [](char x) { return x >= '0' && x <= '9'; });
  require(number || known, "sample: no class is called '", o.wanted, "'",
          suggestion(o.wanted, m.class_names));
  const int64_t c = known ? static_cast<int64_t>(named) : parse_integer(o.wanted, "--class");
  std::fill(out.begin(), out.end(), c);
  return out;
}

// What ran: with these a checkpoint gives the same pictures again.
std::map<std::string, std::string> settings(const Options& o, const LoadedModel& m,
                                            const Generated& g) {
  std::map<std::string, std::string> text{{"Software", str("ebb ", version)},
                                          {"checkpoint", o.checkpoint},
                                          {"checkpoint_step", std::to_string(m.step)},
                                          {"model", m.model->name},
                                          {"class", o.wanted}};
  GenerateOptions ran = g.ran;
  for (const Field& f : fields_of(ran)) text[f.name] = field_text(f);
  if (ran.noise == "auto") text["noise_start"] = g.start_noise, text["noise_steps"] = g.step_noise;
  DiffusionConfig d = m.diffusion;
  for (const Field& f : fields_of(d)) text[f.name] = field_text(f);
  text["n"] = std::to_string(o.n);
  return text;
}

namespace fs = std::filesystem;

std::string small_extension(const std::string& path) {
  std::string out = fs::path(path).extension().string();
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_png(const std::string& path) { return small_extension(path) == ".png"; }

// Another image format's name would become a folder's.
void require_png_or_folder(const std::string& out) {
  require(!out.empty(), "sample: --out must name a .png file or a folder (got '')");
  const std::string extension = small_extension(out);
  for (const char* other : {".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
    require(extension != other, "sample: --out must be a .png file or a folder  ", out);
}

// "": none is needed.
std::string folder_of(const std::string& out) {
  return is_png(out) ? fs::path(out).parent_path().string() : out;
}

// The file of one image in a folder.
std::string numbered(const std::string& folder, int64_t i) {
  char name[32];
  std::snprintf(name, sizeof name, "%05lld.png", static_cast<long long>(i));
  return (fs::path(folder) / name).string();
}

std::string images_text(int64_t n) { return str(n, n == 1 ? " image" : " images"); }

// A grid with one row per class when all are requested, or one file per image.
void write_spatial(const Options& o, const LoadedModel& m, const Generated& g) {
  const Tensor pixels = to_pixels(g.images);
  const int64_t n = pixels.shape()[0], classes = m.config.common().classes;
  const bool rows_are_classes =
      o.wanted == "all" && classes > 1 && n % classes == 0 && o.columns == 0;
  std::vector<Tensor> images;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t per_row = n / std::max<int64_t>(classes, 1);
    images.push_back(image_at(pixels, rows_are_classes ? i % per_row * classes + i / per_row : i));
  }
  const auto text = settings(o, m, g);
  if (const std::string folder = folder_of(o.out); !folder.empty())
    io::make_folder(folder, "sample: --out");
  if (is_png(o.out)) {
    const int64_t square = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    const int64_t columns = o.columns > 0 ? o.columns : rows_are_classes ? n / classes : square;
    io::write_png(o.out, io::image_grid(images, columns, 2), text);
    return;
  }
  for (int64_t i = 0; i < n; ++i) io::write_png(numbered(o.out, i), image_at(pixels, i), text);
}

GenerateRequest request_for(const Options& o, const LoadedModel& model) {
  GenerateRequest request{classes_for(o, model)};
  check(model, request, o.generate);
  for (const std::string& w : warnings(model, request, o.generate))
    std::fprintf(stderr, "warning: %s\n", w.c_str());
  return request;
}

struct Work {
  const LoadedModel& model;
  const GenerateRequest& request;
  const Context& context;
};

// None if a signal asked for the end, of which it tells. `signals` begins where sampling does: what
// comes before may take long, and a signal ends it as it does any program. Afterwards it tells that
// the images are written all the same.
std::optional<Generated> generate_until(std::optional<train::StopSignals>& signals,
                                        const Options& o, const Work& w) {
  ProgressLine line("sampling");
  double done = 0;
  try {
    Generated g = generate(w.model, w.request, o.generate, w.context, [&](double share) {
      if (!signals) signals.emplace("stopping; again, after a second, to end now");
      if (signals->requested() != 0) return false;
      line.show(done = share);
      return true;
    });
    line.finish();
    if (signals->requested() == 0) {
      signals.emplace(
          "all images are made and are being written; again, after a second, to end now");
      return g;
    }
  } catch (const Cancelled&) {
    line.finish();
  }
  std::fprintf(stderr,
               "sample: interrupted by signal %d at %.0f %% of %s; nothing was written to %s\n",
               signals->requested(), 100 * done, images_text(o.n).c_str(), o.out.c_str());
  return std::nullopt;
}

int run(Options& o) {
  require(o.n > 0 && o.n <= 1000000, "sample: n must be 1 to 1000000 (got ", o.n, ")");
  require(o.columns >= 0, "sample: columns must not be negative (got ", o.columns, ")");
  require_png_or_folder(o.out);
  io::check_can_write(is_png(o.out) ? o.out : numbered(o.out, 0), "sample: --out");
  const LoadedModel model = load_model(o.checkpoint, o.model, o.diffusion);
  say_guesses(model);
  resolve_class(o, model);
  const GenerateRequest request = request_for(o, model);
  const Context context = open_device(o.common);
  std::optional<train::StopSignals> signals;  // until all files are written
  const auto start = std::chrono::steady_clock::now();
  const std::optional<Generated> made = generate_until(signals, o, {model, request, context});
  if (!made) return signal_exit + signals->requested();
  const Generated& g = *made;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_spatial(o, model, g);
  const double speed = static_cast<double>(o.n) / seconds;
  if (o.common.json) {
    const nlohmann::ordered_json j = {{"seconds", seconds},
                                      {"steps", g.steps},
                                      {"evaluations", g.evaluations},
                                      {"schedule", g.ran.schedule},
                                      {"dtype", g.ran.dtype},
                                      {"images_per_second", speed},
                                      {"n", o.n},
                                      {"out", o.out}};
    std::puts(j.dump().c_str());
  } else {
    const std::string fewer =
        g.steps < g.ran.steps ? str(g.steps, " steps, as levels coincide; ") : std::string();
    std::fprintf(stderr, "%s in %.1f s (%s%.1f images/s, %lld evaluations each): %s\n",
                 images_text(o.n).c_str(), seconds, fewer.c_str(), speed,
                 static_cast<long long>(g.evaluations), o.out.c_str());
  }
  return 0;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "CHECKPOINT", o->checkpoint, "a model file or the folder of a training run");
  add_flags(app, fields_of(*o));
  add_overrides(app, o->diffusion);
  add_flags(app, fields_of(o->common));
  return [o, &app] {
    check_model_flag(app, o->model, "sample");
    resolve(o->generate);
    resolve_auto({&o->generate.schedule, &o->generate.noise});
    check_steps_flag(app, o->generate.schedule, o->generate.dialect, "sample");
    return run(*o);
  };
}

}  // namespace

const Command& sample() {
  static const Command c{
      "sample", "make pictures with a trained model",
      "ebb sample out/demo --n 80 --steps 18 --sampler heun --class all --out grid.png", bind};
  return c;
}

}  // namespace ebb::cli
