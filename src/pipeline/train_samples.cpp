#include "pipeline/train_samples.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "base/temporary.h"
#include "base/text.h"
#include "diffusion/solver/run.h"
#include "io/file.h"
#include "io/image.h"
#include "pipeline/control.h"
#include "pipeline/decoder.h"
#include "pipeline/open_choices.h"
#include "train/run_folder.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr size_t most_prompts = 16;

// A folder that is gone in the end, however that comes.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& path) {
    remove_abandoned(path);  // of a run that was killed
    path_ = temporary_name(path);
    io::make_folder(path_, "samples");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (fs::path(path_) / name).string(); }

 private:
  std::string path_;
};

}  // namespace

std::vector<std::string> sample_prompts(const std::string& text) {
  std::vector<std::string> out;
  const auto add = [&](std::string_view s) {
    if (const auto prompt = trimmed(s); !prompt.empty()) out.emplace_back(prompt);
  };
  std::error_code ignored;
  const bool is_file = fs::is_regular_file(text, ignored);
  require(is_file || !text.ends_with(".txt"), "sample_prompts: no such file  ", text);
  if (is_file) {
    std::ifstream in(text);
    for (std::string line; std::getline(in, line);)
      if (!line.starts_with('#')) add(line);
    require(in.eof(), "sample_prompts: the file cannot be read  ", text);
  } else {
    for (const std::string_view part : parted(text, ";")) add(part);
  }
  require(!out.empty(), "sample_prompts: ", is_file ? "the file has no prompt  " : "no prompt in ",
          is_file ? text : "'" + text + "'");
  require(out.size() <= most_prompts, "sample_prompts: must be at most ", most_prompts, " (",
          out.size(), ")", is_file ? "  " + text : "");
  return out;
}

std::vector<Tensor> sample_controls(const std::string& text, size_t prompts) {
  std::vector<Tensor> out;
  for (const std::string_view part : parted(text, ";"))
    if (const auto file = trimmed(part); !file.empty())
      out.push_back(io::read_image(std::string(file), 3));
  require(out.size() == prompts || out.size() == 1,
          "sample_controls: must be one image, or one for each of the prompts (", out.size(),
          ", and ", prompts, " prompts)");
  out.resize(prompts, out.front());
  return out;
}

TrainSamples::TrainSamples(const FinetuneRequest& request, const CheckpointParts& parts,
                           const Context& context, What what)
    : request_(request), context_(context), what_(std::move(what)) {
  TextToImageRequest asked = this->request();
  for (size_t i = 0; i < what_.prompts.size(); ++i) {
    asked.prompt = what_.prompts[i];
    if (!parts.denoiser.controls.empty()) asked.controls = {{.image = what_.controls[i]}};
    of_training([&] { return resolve(parts, asked); });
  }
}

TextToImageRequest TrainSamples::request() const {
  const int64_t side = request_.config.resolution;
  TextToImageRequest out{.syntax = what_.syntax,
                         .count = what_.pictures,
                         .size = {.height = side, .width = side},
                         .options = usual_text_to_image()};
  out.options.seed = request_.train.seed;
  out.options.dtype = request_.train.dtype;
  return out;
}

std::vector<Tensor> TrainSamples::pictures(const std::string& file,
                                           const std::function<bool()>& stops) const {
  using File = What::File;
  const FinetuneConfig& f = request_.config;
  PartFiles files{.model = file};  // has all components
  if (what_.file != File::checkpoint) {
    files = {.model = request_.train.model, .autoencoder = f.vae, .variant = f.variant};
    if (!f.text_encoder.empty()) files.text_encoders = {f.text_encoder};
  }
  TextToImageOptions options;
  if (what_.file == File::embedding)
    options.embeddings =
        text::read_embedding_folder(fs::path(file).parent_path().string(), what_.syntax);
  CheckpointParts parts = of_training([&] { return load_parts(files, request_.diffusion); });
  if (what_.file == File::control) {
    const LoadedComponent network = load_control_network(file, parts.denoiser);
    parts.denoiser = with_controls(std::move(parts.denoiser), {network});
  }
  TextToImage pipeline(std::move(parts), context_, std::move(options));
  TextToImageRequest request = this->request();
  if (what_.file == File::adapter) request.loras = {{.file = file, .named_by = "train: samples"}};
  std::vector<Tensor> out;
  RunEvents events;
  events.progress = [&](const RunProgress&) { return !stops(); };
  events.picture = [&](const Picture& p) { out.push_back(to_pixels(p.pixels)); };
  for (size_t i = 0; i < what_.prompts.size(); ++i) {
    request.prompt = what_.prompts[i];
    if (what_.file == File::control) request.controls = {{.image = what_.controls[i]}};
    pipeline.run(pipeline.resolve(request), events);
  }
  return out;
}

void TrainSamples::draw(const train::TrainState& state, const std::function<bool()>& stops) const {
  const std::string picture = train::sample_file(request_.train.out, state.step);
  io::make_folder(fs::path(picture).parent_path().string(), "samples");
  const TemporaryFolder folder(train::sample_model(request_.train.out));
  const bool is_embedding = what_.file == What::File::embedding;
  const std::string model =
      folder.file((is_embedding ? request_.config.embedding : "model") + ".safetensors");
  try {
    what_.write(model, state, {});
    io::write_png(picture, io::image_grid(pictures(model, stops), what_.pictures, 2),
                  {{"step", std::to_string(state.step)},
                   {"model", request_.train.model},
                   {"seed", str(request_.train.seed)},
                   {"rows", strings_json(what_.prompts)}});
  } catch (const Cancelled&) {
    request_.say(str("no samples of step ", state.step, ": the run ends"));
  } catch (const Error& e) {  // no reason to lose what was trained
    request_.say(str("no samples of step ", state.step, ": ", e.what()));
  }
}

}  // namespace ebb
