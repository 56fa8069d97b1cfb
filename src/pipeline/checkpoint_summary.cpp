#include "pipeline/checkpoint_summary.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "models/config_fields.h"
#include "pipeline/checkpoint_family.h"
#include "pipeline/component.h"
#include "pipeline/component_config.h"
#include "pipeline/diffusers_folder.h"
#include "pipeline/file_purpose.h"
#include "pipeline/load_model.h"
#include "pipeline/scheduler_config.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

int64_t number_of(const Component& c, std::string_view field) { return number_in(c.config, field); }

// Of a denoiser or a control network.
std::string family_text(const Component& c) {
  const Family& family = family_of(c.config, "info");
  std::string out = family.name;
  if (family.is(c.config) == Likeness::similar)
    out += str(" with text of ", text_channels(c.config), " channels");
  if (c.model->kind == ModelKind::control_network) return out;
  switch (beside_of(c.config)) {
    case Beside::mask_and_image: out += ", for inpainting"; break;
    case Beside::image: out += ", for editing by instructions"; break;
    case Beside::depth_map: out += ", with a depth map"; break;
    case Beside::nothing:
    case Beside::unknown: break;
  }
  if (find_number(c.config, "guidance_channels").value_or(0) > 0)
    out += ", with distilled guidance";
  return out;
}

std::string control_family(const Component& c) {
  if (c.model->name == "ip_adapter")
    return str("IP-Adapter (", text_in(c.config, "kind"), ") of a U-Net with text of ",
               number_of(c, "context"), " channels, which reads ", number_of(c, "features"),
               " channels of an image encoder");
  if (c.model->name != "control_net") return "";
  const int64_t tasks = number_of(c, "tasks"), rank = number_of(c, "rank");
  return str(rank > 0 ? str("control LoRA of rank ", rank) : "control network",
             tasks > 0 ? str(" of ", tasks, " tasks (union)") : "", " of ", family_text(c));
}

std::vector<std::string> missing_of(const Component& denoiser,
                                    const std::vector<Component>& components) {
  std::vector<std::string> out = missing_texts(denoiser, components);
  for (std::string& text : out) text += " (--text-encoder FILE brings it)";
  if (std::ranges::none_of(
          components, [](const Component& c) { return c.model->kind == ModelKind::autoencoder; }))
    out.push_back("autoencoder (--vae FILE brings it)");
  return out;
}

std::string prediction_of(const DiffusionConfig& d) {
  const std::string what = d.precond == "eps"   ? "noise (eps)"
                           : d.precond == "x0"  ? "the image (x0)"
                           : d.precond == "edm" ? "noise of EDM"
                                                : d.precond;
  return what + (d.zero_snr != "no" ? ", no signal at the last timestep" : "");
}

// "F16 1130, F32 2": names in order of how many tensors have them.
std::string dtypes_of(const std::vector<const io::TensorFile*>& files) {
  std::map<std::string, int64_t> counts;
  for (const io::TensorFile* f : files)
    for (const io::TensorEntry& e : f->entries())
      ++counts[e.file_dtype + (e.scale ? " scaled" : "")];
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [name, n] : counts) order.emplace_back(-n, name);
  std::ranges::sort(order);
  std::vector<std::string> out;
  for (const auto& [n, name] : order)
    out.push_back(order.size() == 1 ? name : str(name, " (", -n, " tensors)"));
  return listed(out);
}

void add_denoiser(Summary& out, const Component& c, const DiffusionConfig& diffusion,
                  const std::vector<Component>& components) {
  if (!find_family(c.config)) return;  // networks that read no text
  out.emplace_back("family", family_text(c));
  out.emplace_back("predicts", prediction_of(diffusion));
  if (const auto missing = missing_of(c, components); !missing.empty())
    out.emplace_back("missing", listed(missing));
}

const Component* find_kind(const std::vector<Component>& components, ModelKind kind) {
  const auto it =
      std::ranges::find(components, kind, [](const Component& c) { return c.model->kind; });
  return it == components.end() ? nullptr : &*it;
}

// Completes the config of a component in a folder as a run does; "": the run takes it, else why
// not.
std::string fault_of(Component& c, const io::TensorFile& file, const std::string& path) {
  try {
    examine(c, file);
    if (c.model->kind != ModelKind::autoencoder) take_config(*c.model, c.config, path);
    check_tensors(c, file);
    return "";
  } catch (const Error& e) {
    const std::string what = e.what();
    const std::string folder = std::filesystem::path(path).parent_path().string();
    return what + (what.find(folder) == what.npos ? "  " + path : "");
  }
}

}  // namespace

Summary summary_of(const io::TensorFile& file, const std::vector<Component>& components,
                   const std::string& path) {
  Summary out;
  if (file.metadata().contains("ebb.model")) return out;
  if (const Component* c = find_kind(components, ModelKind::denoiser))
    add_denoiser(out, *c, usual_diffusion(*c->model, c->config), components);
  else if (const Component* net = find_kind(components, ModelKind::control_network);
           net && !control_family(*net).empty())
    out.emplace_back("family", control_family(*net));
  else if (components.empty())
    if (std::string text = embedding_title(file, path); !text.empty())
      out.emplace_back("family", std::move(text));
  if (!file.entries().empty()) out.emplace_back("dtype", dtypes_of({&file}));
  if (file.has_averages()) out.emplace_back("averages", "beside the weights (--ema takes them)");
  if (const auto it = file.metadata().find("torch.not_read"); it != file.metadata().end())
    out.emplace_back("not read", it->second);
  return out;
}

Summary summary_of_folder(const std::string& path, const std::string& variant) {
  const DiffusersFolder folder = read_diffusers_folder(path, variant);
  Summary out;
  if (!folder.pipeline.empty()) out.emplace_back("pipeline", folder.pipeline);
  std::vector<std::string> files{folder.denoiser};
  files.insert(files.end(), folder.text_encoders.begin(), folder.text_encoders.end());
  if (!folder.autoencoder.empty()) files.push_back(folder.autoencoder);
  std::vector<io::TensorFile> open;
  std::vector<Component> components;
  for (const std::string& name : files) {
    open.push_back(io::TensorFile::open(name));
    for (Component& c : recognise_components(train::shapes_of(open.back()))) {
      if (std::string wrong = fault_of(c, open.back(), name); !wrong.empty())
        out.emplace_back("fault", std::move(wrong));
      out.emplace_back("component",
                       str(name_of(c.model->kind), ' ', c.model->name, ", ",
                           std::filesystem::path(name).lexically_relative(path).string()));
      components.push_back(std::move(c));
    }
  }
  if (const Component* c = find_kind(components, ModelKind::denoiser)) {
    DiffusionConfig diffusion = usual_diffusion(*c->model, c->config);
    if (!folder.scheduler.empty())
      for (const auto& [name, text] : read_scheduler_config(folder.scheduler).diffusion)
        set_field(find_field(fields_of(diffusion), name, "diffusion"), text);
    add_denoiser(out, *c, diffusion, components);
  }
  std::vector<const io::TensorFile*> all;
  for (const io::TensorFile& f : open) all.push_back(&f);
  out.emplace_back("dtype", dtypes_of(all));
  for (const std::string& name : folder.missing)
    out.emplace_back("fault", str("the folder lacks the weights of ", name,
                                  ", which its model_index.json names"));
  const auto is_fault = [](const auto& line) { return line.first == "fault"; };
  if (std::ranges::none_of(out, is_fault))
    out.emplace_back("use", with_missing("ebb generate takes it as --model", out));
  return out;
}

std::string with_missing(const std::string& use, const Summary& summary) {
  const bool lacks =
      use.ends_with(" --model") &&
      std::ranges::any_of(summary, [](const auto& line) { return line.first == "missing"; });
  return use + (lacks ? " with the flags that bring what is missing" : "");
}

}  // namespace ebb
