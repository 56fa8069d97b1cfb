// ebb info FILE: what is in a checkpoint, without loading it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "adapters/facts.h"
#include "apps/cli/command.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "base/parse_json.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "pipeline/checkpoint_summary.h"
#include "pipeline/component.h"
#include "pipeline/diffusers_folder.h"
#include "pipeline/file_purpose.h"
#include "pipeline/load_model.h"
#include "pipeline/model_in_the_box.h"
#include "train/checkpoint.h"
#include "train/model_weights.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string file, model, variant;
  bool json = false;
  bool all = false;
  void fields(auto&& f) {
    f("model", model, "take the file for this model instead of recognising it");
    f("variant", variant, "of a folder's files that are there in several: fp16");
    f("all", all, "list every tensor");
    f("json", json, "print one JSON object on standard output");
  }
};

// A network in the file.
struct Part {
  std::string kind, model, prefix, config;  // config: JSON
  std::string sizes;                        // of its images; "" of other kinds
};

Part part_of(const Component& c) {
  ModelConfig config = c.config;
  const bool denoiser = c.model->kind == ModelKind::denoiser;
  return {std::string(name_of(c.model->kind)), c.model->name, c.prefix,
          fields_json(config.fields()), denoiser ? sizes_text(*c.model, c.config) : ""};
}

struct Recognised {
  std::string model, config;  // of the denoiser; config: JSON
  std::string fault = {};     // why there is no model, or no network of this config
  std::string refused = {};   // why no run takes a network of the file
  std::string guessed = {};   // what neither the file nor a preset says of the config
  std::vector<Part> parts = {};
  Summary summary = {};
  std::vector<std::pair<std::string, std::string>> adapter = {};  // facts, by name
  std::string use = {};                                           // which flag takes it
};

// The model that comes with ebb, where it is installed: adapters may have been trained on it.
std::vector<adapters::Candidate> model_in_the_box_for_adapters() {
  using adapters::Network;
  const auto path = find_model_in_the_box();
  if (!path) return {};
  adapters::Candidate out{.name = "the model that comes with ebb", .networks = {}};
  try {
    for (const Component& c : recognise_components(train::shapes_of(io::TensorFile::open(*path)))) {
      const bool denoiser = c.model->kind == ModelKind::denoiser;
      if (denoiser || c.model->kind == ModelKind::text_encoder)
        out.networks.push_back(adapters::described_network(
            denoiser ? Network::Part::denoiser : Network::Part::text, 1, *c.model, c.config));
    }
  } catch (const Error&) {
    return {};  // its file is damaged, which is no fault of the adapter
  }
  return {out};
}

// A file that changes another network's weights.
Recognised adapter_in(const io::TensorFile& file, const std::string& path) {
  Recognised out;
  try {
    out.adapter = lines_of(adapters::facts_of(*adapters::AdapterFile::from(file, path),
                                              model_in_the_box_for_adapters()));
  } catch (const Error& e) {
    out.fault = e.what();
  }
  return out;
}

// By what ebb's own file says; `fault`: what keeps the network from being built.
Recognised recorded(const std::string& model, const std::string& config) {
  Recognised out{.model = model, .config = config};
  try {
    NamedModel m = find_component(model);
    set_fields_json(m.config.fields(), config, "config");
    check(*m.model, m.config);
    out.parts = {part_of({m.model, m.config, ""})};
  } catch (const Error& e) {
    out.fault = e.what();
  }
  return out;
}

// Latents and images that ebb generate and ebb sample write. "": it has none.
std::string numbers_in(const io::TensorFile& file) {
  const auto software = file.metadata().find("Software");
  if (software == file.metadata().end() || !software->second.starts_with("ebb ")) return "";
  if (file.entries().size() != 1) return "";
  const auto& e = file.entries()[0];
  if (e.name != "latents" && e.name != "images") return "";
  return str(e.name, " of ", e.shape[0], e.shape[0] == 1 ? " picture" : " pictures", " by ",
             software->second, ", not a model");
}

// Why a run does not take the tensors of this part of a checkpoint; "": it does, or it is none.
std::string refusal_of(const Component& c, const io::TensorFile& file) {
  constexpr std::array parts = {ModelKind::denoiser, ModelKind::text_encoder,
                                ModelKind::autoencoder};
  if (std::ranges::find(parts, c.model->kind) == parts.end()) return "";
  try {
    check_tensors(c, file);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// As the model that is named, whose tensors a checkpoint may have among others; of several of that
// model, the text encoders of a checkpoint, those of its config, or else the first.
Recognised taken_for(const NamedModel& named, const io::TensorFile& file) {
  Component c{named.model, named.config, ""};
  bool found = false;
  for (const Component& one : recognise_components(train::shapes_of(file))) {
    if (one.model != named.model) continue;
    const bool same = one.config == named.config;
    if (same || !found) c.prefix = one.prefix;
    found = true;
    if (same) break;
  }
  Part part = part_of(c);
  return {.model = named.model->name,
          .config = part.config,
          .refused = refusal_of(c, file),
          .parts = {std::move(part)}};
}

// By what ebb's own files say, or else by the tensors' names and shapes.
Recognised recognise(const io::TensorFile& file, const Options& o) {
  if (file.entries().empty())
    return {.model = "", .config = "", .fault = "the file has no tensors, so it holds no model"};
  const auto& said = file.metadata();
  if (!o.model.empty()) {
    const NamedModel named = find_component(o.model);
    const auto model = said.find("ebb.model");
    require(model == said.end() || model->second == named.model->name, "info: the file's model is ",
            model->second, " (--model ", o.model, ")  ", o.file);
    return taken_for(named, file);
  }
  if (said.contains("ebb.model") && said.contains("ebb.model_config")) {
    const std::string &name = said.at("ebb.model"), &config = said.at("ebb.model_config");
    return recorded(name, config);
  }
  if (adapters::is_adapter(file)) return adapter_in(file, o.file);
  const nn::FileShapes shapes = train::shapes_of(file);
  Recognised out;
  if (std::string numbers = numbers_in(file); !numbers.empty()) {
    out.summary = {{"numbers", std::move(numbers)}};
    return out;
  }
  std::vector<Component> components = recognise_components(shapes);
  for (Component& c : components) {
    try {
      examine(c, file);
    } catch (const Error& e) {
      out.fault = e.what();
    }
    if (out.fault.empty() && out.refused.empty()) out.refused = refusal_of(c, file);
    out.parts.push_back(part_of(c));
    if (!out.model.empty() || c.model->kind != ModelKind::denoiser) continue;
    out.model = c.model->name;
    out.config = out.parts.back().config;
    out.guessed = c.model->guessed(c.config);
  }
  out.summary = summary_of(file, components, o.file);
  const bool named = !out.summary.empty() && out.summary.front().first == "family";
  try {
    if (out.parts.empty() && !named) recognise_model(shapes);  // its Error says what was looked for
  } catch (const Error& e) {
    out.fault = e.what();
  }
  return out;
}

int64_t elements(const io::TensorFile& file) {
  int64_t n = 0;
  for (const auto& e : file.entries()) n += e.shape.numel();
  return n;
}

// Without the optimiser's moments, which the state of a training run has beside its weights.
int64_t parameters(const io::TensorFile& file) {
  int64_t n = 0;
  for (const auto& e : file.entries())
    if (!train::is_moment(file.metadata(), e.name)) n += e.shape.numel();
  return n;
}

// null where there is none, or a damaged one.
nlohmann::ordered_json config_json(const std::string& text) {
  auto j = parse_json<nlohmann::ordered_json>(text);
  return j.is_discarded() ? nlohmann::ordered_json() : j;
}

std::string config_text(const Recognised& r) {
  const nlohmann::ordered_json j = config_json(r.config);
  const std::string text = j.is_null() ? "" : j.dump();
  if (r.fault.empty()) return text;
  return str(text, text.empty() ? "" : "\n            ", "of no network: ", r.fault);
}

void print_json(const io::TensorFile& file, const Recognised& r) {
  nlohmann::ordered_json j;
  j["model"] = r.model.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(r.model);
  j["parameters"] = parameters(file);
  if (parameters(file) < elements(file)) j["moments"] = elements(file) - parameters(file);
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const auto& e : file.entries())
    tensors.push_back({{"name", e.name}, {"dtype", e.file_dtype}, {"shape", e.shape.sizes()}});
  j["tensors"] = std::move(tensors);
  j["config"] = config_json(r.config);
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const Part& p : r.parts) {
    parts.push_back({{"kind", p.kind}, {"model", p.model}, {"prefix", p.prefix}});
    parts.back()["config"] = config_json(p.config);
    if (!p.sizes.empty()) parts.back()["sizes"] = p.sizes;
  }
  j["components"] = std::move(parts);
  for (const auto& [name, text] : r.summary) j["summary"][name] = text;
  for (const auto& [name, text] : r.adapter)
    j["adapter"][name == "adapter" ? "kinds" : name] = text;
  if (!r.fault.empty()) j["fault"] = r.fault;
  if (!r.refused.empty()) j["fault"] = r.refused;
  if (!r.use.empty()) j["use"] = r.use;
  if (!r.guessed.empty()) j["guessed"] = r.guessed;
  j["metadata"] = file.metadata();
  cli::print_json(j);
}

std::string moments_text(const io::TensorFile& file) {
  const int64_t moments = elements(file) - parameters(file);
  return moments > 0 ? str(", and ", moments, " of the optimiser's moments,") : "";
}

void print_line(const std::string& text) { std::puts(printable(text).c_str()); }

void print_texts(const std::map<std::string, std::string>& texts, bool all) {
  for (const auto& [key, value] : texts) {
    const bool cut = value.size() > 120 && !all;
    print_line(str("  ", key, " = ", value.substr(0, cut ? 117 : value.size()), cut ? "..." : ""));
  }
}

void print_summary(const Summary& summary) {
  constexpr size_t column = 12;
  for (const auto& [name, text] : summary)
    print_line(name + std::string(column - std::min(name.size(), column - 1), ' ') + text);
}

void print_text(const io::TensorFile& file, const Recognised& r, bool all) {
  for (const Part& p : r.parts)
    print_line(str("component   ", p.kind, " ", p.model,
                   p.prefix.empty() ? "" : str(", under ", p.prefix),
                   p.sizes.empty() ? "" : str(", images ", p.sizes)));
  print_summary(r.summary);
  for (const auto& [name, text] : r.adapter)
    print_line(name + std::string(12 - name.size(), ' ') + text);
  const bool empty = file.entries().empty();
  if (empty) print_line(r.fault);
  if (!r.refused.empty()) print_line("fault       " + r.refused);
  if (!r.use.empty()) print_line("use         " + r.use);
  if (r.parts.empty() && r.adapter.empty() && r.model.empty() && !empty && !r.fault.empty())
    print_line("model       not recognised: " +
               r.fault.substr(r.fault.starts_with("model: ") ? 7 : 0));
  if (!r.model.empty()) {
    print_line("model       " + r.model);
    print_line("config      " + config_text(r));
    if (!r.guessed.empty()) print_line("guessed     " + r.guessed);
  }
  if (!empty)
    print_line(str("parameters  ", parameters(file), moments_text(file), " in ",
                   file.entries().size(), " tensors"));
  print_texts(file.metadata(), all);
  constexpr size_t shown = 20, column = 56;
  for (size_t i = 0; i < file.entries().size() && (all || i < shown); ++i) {
    const auto& e = file.entries()[i];
    const std::string gap(e.name.size() < column ? column - e.name.size() : 0, ' ');
    print_line(str("  ", e.name, gap, ' ', e.file_dtype, e.shape));
  }
  if (!all && file.entries().size() > shown)
    print_line(str("  ... ", file.entries().size() - shown, " more (--all)"));
}

// Pictures and what is there by mistake are called what they are. False: it may be a checkpoint.
bool print_other(const Options& o) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  require(fs::exists(o.file, ignored), "info: there is no such file or folder  ", o.file);
  if (fs::is_directory(o.file, ignored)) {
    const bool training = fs::exists(fs::path(o.file) / "metrics.jsonl", ignored);
    const bool models = std::ranges::any_of(
        fs::directory_iterator(o.file, ignored), [](const fs::directory_entry& e) {
          return e.path().filename().string().starts_with("model-");
        });
    require(training || models || !component_weights(o.file, o.variant).empty(),
            "info: the folder has no checkpoint: neither diffusers' model_index.json or weights, "
            "nor model-<step>.safetensors of ebb train  ",
            o.file);
    return false;
  }
  if (!fs::is_regular_file(o.file, ignored)) return false;
  require(fs::file_size(o.file, ignored) > 0, "info: the file is empty (0 bytes)  ", o.file);
  require(!o.file.ends_with(".npy"),
          "info: an array of NumPy has no model, only numbers, such as latents of --out FILE.npy  ",
          o.file);
  if (!io::picture_format(o.file)) return false;
  const auto texts = io::read_picture_text(o.file);
  const bool own = texts.contains("ebb"), settings = texts.contains("parameters");
  const std::string use = own        ? str("ebb generate --like ", o.file, " makes it again")
                          : settings ? str("ebb generate --like ", o.file, " --model CHECKPOINT ",
                                           "follows its settings")
                                     : "ebb generate takes it as --init, --mask or --control";
  if (o.json) {
    cli::print_json({{"picture", true}, {"use", use}, {"metadata", texts}});
    return true;
  }
  print_line(str("picture     ", own        ? "with the settings of ebb"
                                 : settings ? "with settings as A1111 writes them"
                                            : "without settings"));
  print_line("use         " + use);
  print_texts(texts, o.all);
  return true;
}

// The newest model of a folder; where that is damaged, the Error names an older one that is whole.
io::TensorFile open_file(Options& o) {
  const std::string given = o.file;
  if (std::filesystem::is_directory(given)) {
    const std::string component = component_weights(given, o.variant);
    o.file = component.empty() ? train::find_model_file(given) : component;
  }
  try {
    return io::TensorFile::open(o.file);
  } catch (const Error& e) {
    const std::string older = train::older_model(
        given, o.file, [&](const std::string& file) { load_model(file, o.model, {}); });
    fail(e.what(), older.empty() ? "" : "; an older model is whole: " + older);
  }
}

// As ebb generate takes it, with an index or without.
bool is_pipeline(const Options& o) {
  const std::filesystem::path folder(o.file);
  return std::filesystem::exists(folder / "model_index.json") ||
         !component_weights((folder / "unet").string(), o.variant).empty();
}

constexpr std::string_view takes_model = "ebb generate takes it as --model";

// Of diffusers' layout: its components lie in files of their own.
void print_folder(const Options& o) {
  const Summary summary = summary_of_folder(o.file, o.variant);
  if (!o.json) return print_summary(summary);
  nlohmann::ordered_json j, lines = nlohmann::ordered_json::array();
  for (const auto& [name, text] : summary) lines.push_back({name, text});
  j["summary"] = std::move(lines);
  cli::print_json(j);
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(
      app, "FILE", o->file,
      "a file of tensors (.safetensors, .ckpt, .pt, .pth, .bin, .index.json), a folder of "
      "diffusers or of a training run");
  add_flags(app, fields_of(*o));
  return [o] {
    require(o->variant.empty() || std::filesystem::is_directory(o->file),
            "info: --variant is of folders of diffusers (", o->variant, ")  ", o->file);
    if (is_pipeline(*o)) {
      print_folder(*o);
      return 0;
    }
    if (print_other(*o)) return 0;
    const std::string given = o->file;
    const auto file = open_file(*o);
    Recognised r = recognise(file, *o);
    if (r.fault.empty() && r.refused.empty())
      r.use = with_missing(use_text(file, o->file), r.summary);
    if (r.use.starts_with(takes_model) && given != o->file)  // the folder is no pipeline's
      r.use.replace(0, takes_model.size(), str("ebb generate takes its file as --model ", o->file));
    o->json ? print_json(file, r) : print_text(file, r, o->all);
    return 0;
  };
}

}  // namespace

const Command& info() {
  static const Command c{"info", "list tensors, metadata, model and config of a checkpoint",
                         "ebb info out/demo", bind};
  return c;
}

}  // namespace ebb::cli
