#include "pipeline/control.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/by_flag.h"
#include "base/error.h"
#include "base/fields.h"
#include "base/file_and_numbers.h"
#include "base/names.h"
#include "base/text.h"
#include "diffusion/precond.h"
#include "io/canny.h"
#include "io/image.h"
#include "io/pixels.h"
#include "io/resize.h"
#include "pipeline/adapter_regions.h"
#include "pipeline/control_names.h"
#include "pipeline/init_image.h"
#include "pipeline/picture_dialect.h"
#include "pipeline/run_start.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

// To a latent, along each side.
int64_t pixels_of(const LoadedModel& m) {
  const auto space = m.model->latents(m.config);
  return space ? space->factor : 1;
}

constexpr const char *projected = "projected", *states = "states.2";  // of the image encoder
const char* read_by(const Component& network) {
  return input_of(network, nn::hint_image).shape[0] == 1 ? projected : states;
}

// Channel by channel the median of the first and last rows and columns; corners count twice.
// Rounded down.
std::vector<uint8_t> colour_of_edge(const Tensor& image) {
  const int64_t h = image.shape()[0], w = image.shape()[1], channels = image.shape()[2];
  const auto pixels = image.span<uint8_t>();
  std::vector<uint8_t> out;
  for (int64_t c = 0; c < channels; ++c) {
    std::vector<uint8_t> edge;
    const auto add = [&](int64_t y, int64_t x) {
      edge.push_back(pixels[static_cast<size_t>((y * w + x) * channels + c)]);
    };
    for (int64_t x = 0; x < w; ++x) add(0, x), add(h - 1, x);
    for (int64_t y = 0; y < h; ++y) add(y, 0), add(y, w - 1);
    std::ranges::sort(edge);  // of an even number
    out.push_back(
        static_cast<uint8_t>((int{edge[edge.size() / 2 - 1]} + int{edge[edge.size() / 2]}) / 2));
  }
  return out;
}

Tensor in_colour_of_edge(const Tensor& image, ImageSize size) {
  const ImageSize inner = size_within(image, size, true);
  const Tensor small = io::resize(image, inner.height, inner.width);
  const std::vector<uint8_t> colour = colour_of_edge(image);
  const int64_t channels = image.shape()[2];
  Tensor out(DType::u8, {size.height, size.width, channels});
  const auto to = out.span<uint8_t>(), from = small.span<uint8_t>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = colour[i % colour.size()];
  const int64_t top = (size.height - inner.height) / 2, left = (size.width - inner.width) / 2,
                row = inner.width * channels;
  for (int64_t y = 0; y < inner.height; ++y)
    std::copy_n(from.begin() + y * row, row,
                to.begin() + ((top + y) * size.width + left) * channels);
  return out;
}

// The image's middle part of the target's shape, or all of it, in the target's size: f32
// [1,H,W,C] in [0,1].
Tensor hint_of_image(const ControlInput& in, int64_t height, int64_t width, int64_t channels) {
  Tensor image = io::convert_channels(control_image(in.kind, in.image), channels);
  if (in.resize == ControlResize::fill) image = in_colour_of_edge(image, {height, width});
  if (in.resize == ControlResize::crop) {
    const int64_t h = image.shape()[0], w = image.shape()[1];
    const int64_t keep_h = std::min(h, std::max<int64_t>(1, (w * height + width / 2) / width)),
                  keep_w = std::min(w, std::max<int64_t>(1, (h * width + height / 2) / height));
    image = io::crop(image, (h - keep_h) / 2, (w - keep_w) / 2, keep_h, keep_w);
  }
  if (image.shape()[0] != height || image.shape()[1] != width)
    image = io::resize(image, height, width);
  Tensor out(DType::f32, {1, height, width, channels});
  io::unit_pixels(image.span<uint8_t>(), out.span<float>());
  return out;
}

// The factors of the residuals, finest first, the middle last.
struct ResidualFactors {
  Tensor prompt, negative;
};
// diffusers has its other factors of guess mode not for residuals that are means.
ResidualFactors factors_of(const ControlInput& in, int64_t count, bool means) {
  constexpr std::array of_levels = {0.25, 0.62, 0.825, 1.0};  // of A1111, for adapters
  constexpr double soft = 0.825;       // of A1111, from feature to feature of Stable Diffusion 1
  constexpr int64_t most = 12;         // the number of its middle
  constexpr double least_guess = 0.1;  // of diffusers: 0.1 to 1 in equal ratios
  ResidualFactors out{Tensor(DType::f32, {1, count}), Tensor(DType::f32, {1, count})};
  const bool both = in.mode == ControlMode::balanced || in.mode == ControlMode::prompt;
  for (int64_t i = 0; i < count; ++i) {
    double f = in.strength;
    if (in.mode == ControlMode::guess && count > 1 && !means)
      f *= std::pow(least_guess, 1 - static_cast<double>(i) / static_cast<double>(count - 1));
    if (in.mode == ControlMode::prompt || in.mode == ControlMode::control)
      f *= count == std::ssize(of_levels) ? of_levels[static_cast<size_t>(i)]
                                          : std::pow(soft, static_cast<double>(most - i));
    out.prompt.span<float>()[static_cast<size_t>(i)] = static_cast<float>(f);
    out.negative.span<float>()[static_cast<size_t>(i)] = both ? static_cast<float>(f) : 0;
  }
  return out;
}

bool is_pooled(ModelConfig config) {
  return std::ranges::any_of(config.fields(), [](const Field& f) {
    return f.name == "pooled" && field_text(f) == "true";
  });
}

}  // namespace

ControlMode control_mode(std::string_view name) {
  const std::string small = small_letters(name);
  if (small == "balanced") return ControlMode::balanced;
  if (small == "prompt") return ControlMode::prompt;
  if (small == "control") return ControlMode::control;
  if (small == "guess") return ControlMode::guess;
  fail("control: the mode must be balanced, prompt, control or guess (got '", name, "')");
}

ControlResize control_resize(std::string_view name) {
  if (name == "crop") return ControlResize::crop;
  if (name == "stretch") return ControlResize::stretch;
  if (name == "fill") return ControlResize::fill;
  fail("control: --control-resize must be crop, stretch or fill (got '", name, "')");
}

ControlText parse_control(const std::string& text) {
  constexpr std::string_view flag = "generate: --control";
  const size_t equals = text.find('=');
  require(equals != std::string::npos, flag,
          " must be KIND[/TASK]=IMAGE[:strength[:start[:end]]] (got '", text, "')");
  ControlText out{.input = {.image = {}, .kind = text.substr(0, equals)}, .file = {}};
  ControlInput& in = out.input;
  if (const size_t slash = in.kind.find('/'); slash != std::string::npos) {
    in.task = in.kind.substr(slash + 1);
    in.kind.resize(slash);
    require(!in.task.empty(), flag, ": no task stands behind the / (got '", text, "')");
  }
  require(!in.kind.empty(), flag, ": no kind stands before the ", in.task.empty() ? '=' : '/',
          ": one of ", listed(control_kinds()), " (got '", text, "')");
  const std::string behind = text.substr(equals + 1);
  require(!behind.empty() && behind[0] != ':', flag, ": no image stands behind the = (got '", text,
          "')");
  const FileAndNumbers said = file_and_numbers(behind, 3, flag, "strength, start or end");
  in.strength = said.number(0, in.strength);
  in.start = said.number(1, in.start);
  in.end = said.number(2, in.end);
  out.file = said.file;
  return out;
}

ControlInput read_control(const std::string& text) {
  ControlText out = parse_control(text);
  out.input.image = by_flag("generate: --control", [&] { return io::read_image(out.file, 3); });
  return std::move(out.input);
}

const std::vector<std::string>& control_kinds() {
  static const std::vector<std::string> kinds = {"none", "canny", "invert", "threshold"};
  return kinds;
}

Tensor control_image(std::string_view kind, const Tensor& image, const ControlThresholds& t) {
  const std::string k = small_letters(kind);
  if (k == "none") return image;
  if (k == "canny") {
    const io::Canny usual;
    return io::canny(image, {.low = t.a < 0 ? usual.low : static_cast<int>(t.a),
                             .high = t.b < 0 ? usual.high : static_cast<int>(t.b)});
  }
  const int64_t level = t.a < 0 ? 127 : t.a;
  if (k == "invert" || k == "threshold") {
    const Tensor from = k == "threshold" ? io::convert_channels(image, 1) : image;
    Tensor out(DType::u8, from.shape());
    const bool invert = k == "invert";
    std::ranges::transform(from.span<uint8_t>(), out.span<uint8_t>().begin(), [&](uint8_t v) {
      return static_cast<uint8_t>(invert ? 255 - v : v > level ? 255 : 0);
    });
    return out;
  }
  fail("control: '", kind, "' is not among ", listed(control_kinds()),
       "; maps of depth, poses, segments and the like come from networks that ebb does not have: "
       "give the finished map as none=IMAGE");
}

std::vector<nn::Condition> conditions_of(const LoadedModel& m) {
  std::vector<nn::Condition> out = m.model->conditions(m.config);
  for (size_t k = 0; k < m.controls.size(); ++k) {
    for (nn::Condition& c : entry_of(m.controls[k]).inputs(m.controls[k].config)) {
      if (!nn::own_control_input(c.name)) continue;
      c.guided |= c.name == nn::control_strength;  // the branches may have strengths of their own
      c.name = str(c.name, '.', k);
      c.rare = true;
      out.push_back(std::move(c));
    }
    if (reads_features(m.controls[k]))
      out.push_back(
          {.name = mask_of(k), .shape = {nn::Condition::any}, .guided = false, .rare = true});
  }
  return out;
}

nn::Network network_of(const LoadedModel& m, const std::vector<nn::Condition>& given) {
  nn::Network unet = network_of(*m.model, m.config);
  std::vector<nn::ControlNetwork> networks(m.controls.size());
  bool any = false;
  for (size_t k = 0; k < networks.size(); ++k) {
    if (std::ranges::find(given, hint_of(k), &nn::Condition::name) == given.end()) continue;
    any = true;
    networks[k] = [c = m.controls[k], prefix = prefix_of(k)](Graph& g, const nn::ValuesByName& in) {
      return entry_of(c).build(nn::Params(g, prefix), c.config, in);
    };
  }
  return any ? nn::controlled(std::move(unet), std::move(networks)) : unet;
}

Graph network_graph(const LoadedModel& m, const std::set<size_t>& controls, ImageSize size) {
  Graph g;
  nn::NetworkInputs in = network_inputs(g, *m.model, m.config, 1, size);
  std::vector<nn::Condition> given;
  for (nn::Condition& c : conditions_of(m)) {
    const auto of = std::ranges::find_if(controls, [&](size_t k) {
      return c.name == hint_of(k) || c.name == strength_of(k) || c.name == task_of(k);
    });
    if (of == controls.end()) continue;
    if (c.name == hint_of(*of) && c.usual.rank() > 0)
      c.shape = c.usual;
    else if (c.name == hint_of(*of))
      c.shape = {size.height * pixels_of(m), size.width * pixels_of(m), c.shape[2]};
    in.conditions[c.name] = g.input(c.name, c.type(1));
    given.push_back(std::move(c));
  }
  g.output("y", network_of(m, given)(g, in));
  return g;
}

void check_controls(const LoadedModel& model, const std::vector<ControlInput>& inputs) {
  require(inputs.size() == model.controls.size(),
          "control: there must be an image for each of the ", model.controls.size(),
          " control networks (", inputs.size(), ")");
  for (size_t k = 0; k < inputs.size(); ++k) {
    const ControlInput& in = inputs[k];
    const Component& network = model.controls[k];
    require(std::isfinite(in.strength) && std::abs(in.strength) <= 10, "control: the strength of ",
            k + 1, " must be a number up to 10 (", in.strength, ")");
    require(in.start >= 0 && in.start <= in.end && in.end <= 1,
            "control: start and end of image number ", k + 1,
            " must be shares of the steps, 0 to 1, in this order (", in.start, ", ", in.end, ")");
    if (reads_features(network)) {
      if (!in.blocks.empty()) block_strengths(in.blocks, model);
      continue;
    }
    require(!in.mask.defined() && in.blocks.empty(), "control: network ", k + 1, ", ",
            name_of(*network.model, network.config),
            ", is no IP-Adapter, which --control-mask and --control-blocks are for");
  }
  const auto crops = [](const ControlInput& i) { return i.resize == ControlResize::crop; };
  require(
      std::ranges::all_of(inputs, crops) || !std::ranges::all_of(model.controls, reads_features),
      "control: --control-resize has no effect: an IP-Adapter reads the middle of its image");
}

bool needs_image_encoder(const LoadedModel& model) {
  return std::ranges::any_of(model.controls, reads_features);
}

void check_image_encoder(const LoadedModel& model, const LoadedComponent* encoder) {
  for (size_t k = 0; k < model.controls.size(); ++k) {
    const Component& c = model.controls[k];
    if (!reads_features(c)) continue;
    const int64_t wants = input_of(c, nn::hint_image).shape[1];
    require(
        encoder != nullptr, "control: network ", k + 1, ", ", name_of(*c.model, c.config),
        ", reads an image by CLIP's vision encoder (", wants,
        read_by(c) == projected ? " channels of the projected image" : " channels of its states",
        "): --image-encoder FILE or FOLDER names it");
    ModelConfig config = encoder->component.config;
    const char* field = read_by(c) == projected ? "projection" : "width";
    const int64_t has =
        parse_integer(field_text(find_field(config.fields(), field, "image encoder")), field);
    require(has == wants, "control: network ", k + 1, ", ", name_of(*c.model, c.config),
            ", was trained with another image encoder than --image-encoder (", field, " ", wants,
            " and ", has, ")");
  }
}

namespace {

// What the images of networks of several tasks show, as these count them, by all their names.
constexpr std::array tasks_by_number = {"pose,openpose",
                                        "depth",
                                        "scribble,hed,pidi,ted,softedge",
                                        "canny,lineart,mlsd",
                                        "normal",
                                        "segment",
                                        "tile",
                                        "repaint,inpaint"};

// f32 [1,1,count]: 1 at the task. Not defined for a network of one task.
Tensor task_number(const ControlInput& in, const Component& c, size_t k) {
  int64_t count = 0;
  for (const nn::Condition& i : entry_of(c).inputs(c.config))
    if (i.name == nn::control_task) count = i.shape[1];
  require(count > 0 || in.task.empty(), "control: network ", k + 1, ", ",
          name_of(*c.model, c.config), ", is of one task (got '", in.task, "')");
  if (count == 0) return {};
  const std::string task = small_letters(in.task.empty() ? in.kind : in.task);
  Tensor out(DType::f32, {1, 1, count});
  std::string known;
  for (int64_t i = 0; i < std::min<int64_t>(count, std::ssize(tasks_by_number)); ++i) {
    const std::string names = tasks_by_number[static_cast<size_t>(i)];
    known += str(known.empty() ? "" : ", ", names.substr(0, names.find(',')));
    if (str(',', names, ',').find(str(',', task, ',')) == std::string::npos) continue;
    out.span<float>()[static_cast<size_t>(i)] = 1;
    return out;
  }
  fail("control: network ", k + 1, ", ", name_of(*c.model, c.config), ", is of ", count,
       " tasks: --control KIND/TASK=IMAGE says which of ", known, " the image shows (got '", task,
       "')");
}

// What a network is given of its input, when it takes part.
struct Given {
  Tensor hint, negative_hint, task, mask;
  ResidualFactors factors;
};

Given given_of(const ControlInput& in, const LoadedModel& model, size_t k, const ControlRun& run) {
  const Component& c = model.controls[k];
  const int64_t count = input_of(c, nn::control_strength).shape[0];
  Given out{.hint = {},
            .negative_hint = {},
            .task = task_number(in, c, k),
            .mask = {},
            .factors = factors_of(in, count, is_pooled(c.config))};
  if (reads_features(c)) {
    require(static_cast<bool>(run.encode), "control: network ", k + 1, " needs an image encoder");
    const bool whole = read_by(c) == projected;
    const Tensor picture = control_image(in.kind, io::convert_channels(in.image, 3));
    const auto read = [&](const Tensor& of) {
      const Tensor t = run.encode(of, read_by(c));
      return whole ? t.reshape({1, 1, t.shape()[1]}) : t;
    };
    out.hint = read(io::convert_channels(picture, 3));
    out.negative_hint = whole ? Tensor(DType::f32, out.hint.shape()) : read({});
    std::ranges::transform(block_strengths(in.blocks, model),
                           out.factors.prompt.span<float>().begin(),
                           [&](double of) { return static_cast<float>(in.strength * of); });
    out.factors.negative = out.factors.prompt;
    if (in.mask.defined())
      out.mask = region_mask(in.mask, {run.sample[0], run.sample[1]}, pixels_of(model));
    return out;
  }
  const int64_t factor = pixels_of(model), height = run.sample[0] * factor,
                width = run.sample[1] * factor, multiple = c.model->size_multiple(c.config);
  require(height % multiple == 0 && width % multiple == 0, "control: network ", k + 1, ", ",
          name_of(*c.model, c.config), ", needs sides that are multiples of ", multiple, " (",
          width, "x", height, ")");
  out.hint = hint_of_image(in, height, width, input_of(c, nn::hint_image).shape[2]);
  out.negative_hint = out.hint;
  return out;
}

// To the branches of some steps.
void give(RunConditions::Steps& s, const std::vector<ConditionBranch>& branches, size_t k,
          const Given& g) {
  for (size_t b = 0; b < s.branches.size(); ++b) {
    const bool negative = branches[b].branch != Branch::cond;
    s.branches[b][hint_of(k)] = negative ? g.negative_hint : g.hint;
    if (g.task.defined()) s.branches[b][task_of(k)] = g.task;
    if (g.mask.defined()) s.branches[b][mask_of(k)] = g.mask;
    s.branches[b][strength_of(k)] = negative ? g.factors.negative : g.factors.prompt;
  }
}

}  // namespace

ControlRun control_run(const ResolvedRequest& r) {
  return {.sample = r.sample,
          .steps = counted_steps(r),
          .sigmas = r.call.sigmas,
          .dialect = r.options.dialect};
}

bool takes_part(const ControlInput& in, int64_t step, const ControlRun& run,
                const Discretisation& levels) {
  const auto share = [&](int64_t i) {
    return static_cast<double>(i) / static_cast<double>(run.steps);
  };
  switch (picture_dialect(run.dialect).control_shares) {
    case ControlShares::of_noise_levels: {
      const double sigma = run.sigmas.at(static_cast<size_t>(step - 1));
      return sigma <= levels.at_percent(in.start) && sigma >= levels.at_percent(in.end);
    }
    case ControlShares::begun_steps:
      return share(step - 1) >= in.start && share(step - 1) <= in.end;
    case ControlShares::whole_steps: break;
  }
  return share(step - 1) >= in.start && share(step) <= in.end;
}

std::vector<std::string> control_warnings(const std::vector<ControlInput>& inputs,
                                          const std::vector<ControlRun>& runs,
                                          const Discretisation& levels) {
  const auto acts = [&](const ControlInput& in) {
    return std::ranges::any_of(runs, [&](const ControlRun& run) {
      for (int64_t step = 1; step <= run.steps; ++step)
        if (takes_part(in, step, run, levels)) return true;
      return false;
    });
  };
  const std::string steps =
      separated(runs, " and ", [](const ControlRun& run) { return str(run.steps); });
  std::vector<std::string> out;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const ControlInput& in = inputs[k];
    if (in.strength == 0)
      out.push_back(
          str("control: the strength of ", k + 1, " is 0: it costs time and has no effect"));
    if (!acts(in))
      out.push_back(str("control: image number ", k + 1, " has no effect: no step of ", steps,
                        " lies within its start and end (", in.start, " to ", in.end,
                        " of the steps, as dialect ", runs.at(0).dialect, " counts them)"));
  }
  return out;
}

void add_controls(RunConditions& conditions, const LoadedModel& model,
                  const std::vector<ControlInput>& inputs, const ControlRun& run) {
  check_controls(model, inputs);
  if (inputs.empty()) return;
  const int64_t steps = run.steps;
  const Discretisation levels = Precond(model.diffusion).levels();
  // After which steps something changes.
  std::set<int64_t> ends;
  std::vector<Given> given;
  for (size_t k = 0; k < inputs.size(); ++k) {
    given.push_back(given_of(inputs[k], model, k, run));
    for (int64_t step = 1; step < steps; ++step)
      if (takes_part(inputs[k], step, run, levels) != takes_part(inputs[k], step + 1, run, levels))
        ends.insert(step);
  }
  ends.insert(RunConditions::at_the_end);
  RunConditions out = conditions;
  out.steps.clear();
  out.controls_look_back =
      picture_dialect(run.dialect).control_shares == ControlShares::begun_steps;
  if (conditions.empty())
    conditions.steps.push_back(
        {.end_step = steps, .branches = std::vector<NamedTensors>(out.branches.size())});
  for (const RunConditions::Steps& prompt : conditions.steps)
    for (auto end = ends.begin(); end != ends.end(); ++end) {
      const int64_t first = end == ends.begin() ? 1 : *std::prev(end) + 1;
      RunConditions::Steps s = prompt;
      s.end_control = *end;
      for (size_t k = 0; k < inputs.size(); ++k)
        if (takes_part(inputs[k], first, run, levels)) give(s, out.branches, k, given[k]);
      out.steps.push_back(std::move(s));
    }
  conditions = std::move(out);
}

}  // namespace ebb
