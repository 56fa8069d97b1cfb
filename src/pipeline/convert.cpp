#include "pipeline/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/temporary.h"
#include "io/file.h"
#include "io/new_folder.h"
#include "io/safetensors.h"
#include "io/tensor_header.h"
#include "pipeline/checkpoint_family.h"
#include "pipeline/checkpoint_layouts.h"
#include "pipeline/component.h"
#include "pipeline/component_config.h"
#include "pipeline/diffusers_folder.h"
#include "pipeline/file_purpose.h"
#include "pipeline/latent_space.h"
#include "pipeline/load_model.h"
#include "pipeline/merged_weights.h"
#include "pipeline/scheduler_config.h"
#include "pipeline/suggested_guidance.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using File = std::shared_ptr<const io::TensorFile>;
using CopyProgress = std::function<void(int64_t, int64_t)>;

constexpr int64_t chunk_bytes = int64_t{8} << 20, scheduler_limit = 1 << 20;
struct Opened {
  File file;
  std::string path;
  std::vector<Component> components;  // of those that layouts know
};

// ---- one tensor ----------------------------------------------------------------------------

bool is_floating(const io::TensorEntry& e) { return e.dtype && ebb::is_float(*e.dtype); }
// Rounded; what does not fit is an Error.
Tensor cast(const Tensor& t, DType dtype, const std::string& name) {
  return train::rounded(name, t, dtype, "convert");
}

void give(const Tensor& t, const io::ByteSink& out) {
  out({static_cast<const uint8_t*>(t.raw()), static_cast<size_t>(t.bytes())});
}

// Whether the file's own bytes are what is to be written.
bool passes(const io::TensorEntry& e, const std::optional<DType>& dtype) {
  if (!e.strides.empty() || e.scale) return false;
  return !dtype || !is_floating(e) || (io::TensorFile::as_stored(e) && e.dtype == dtype);
}

std::string dtype_after(const io::TensorEntry& e, const std::optional<DType>& dtype) {
  if (passes(e, dtype)) return e.file_dtype;
  if (!e.dtype) return e.file_dtype;
  return std::string(io::safetensors_dtype(dtype && is_floating(e) ? *dtype : *e.dtype));
}

// As it lies in the file, but for the dtype.
io::TensorToWrite copied(const File& file, const io::TensorEntry& e, const std::string& name,
                         const std::optional<DType>& dtype) {
  require(e.dtype || passes(e, dtype), "convert: cannot write ", e.name, " of ", e.file_dtype,
          " in another order");
  return {name, dtype_after(e, dtype), e.shape, [file, &e, name, dtype](const io::ByteSink& out) {
            if (!passes(e, dtype)) {
              const Tensor t = file->load(e);
              return give(dtype && is_floating(e) ? cast(t, *dtype, name) : t, out);
            }
            std::vector<uint8_t> bytes(static_cast<size_t>(std::min(chunk_bytes, e.end - e.begin)));
            for (int64_t at = 0; at < e.end - e.begin; at += chunk_bytes) {
              const auto n = static_cast<size_t>(std::min(chunk_bytes, e.end - e.begin - at));
              file->read(e, at, std::span(bytes).first(n));
              out(std::span(bytes).first(n));
            }
          }};
}

Tensor turned(const Tensor& t) {
  const int64_t rows = t.shape()[0], columns = t.shape()[1], size = size_of(t.dtype());
  Tensor out(t.dtype(), {columns, rows});
  const auto* from = static_cast<const uint8_t*>(t.raw());
  auto* to = static_cast<uint8_t*>(out.raw());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      std::memcpy(to + (j * rows + i) * size, from + (i * columns + j) * size,
                  static_cast<size_t>(size));
  return out;
}

// ---- components ----------------------------------------------------------------------------

// A tensor of the output: weights that stand in it, one or q, k and v, and where they come from.
struct Target {
  struct Part {
    nn::FilePlace from, to;
    Shape shape;                     // of the weight in the layout of files
    std::function<Tensor()> merged;  // with the changes of LoRAs; null: as the file has it
    bool transposed = false;         // what is read or merged
  };
  File file;
  std::string name;
  std::vector<Part> parts;
  bool matrix = false;

  const io::TensorEntry& source(const Part& p) const { return file->find(p.from.name); }

  Shape shape() const {
    std::vector<int64_t> sizes = parts.front().shape.sizes();
    if (parts.front().to.transposed) std::swap(sizes.at(0), sizes.at(1));
    if (parts.size() > 1) sizes.at(0) *= static_cast<int64_t>(parts.size());
    if (matrix && sizes.size() == 4) sizes.resize(2);
    return Shape(sizes);
  }

  bool is_merged() const {
    return std::ranges::any_of(parts, [](const Part& p) { return bool(p.merged); });
  }

  Tensor part(const Part& p) const {
    Tensor t = p.merged ? p.merged() : file->load(source(p));
    if (!p.merged && p.from.parts > 1) {
      const int64_t rows = t.shape()[0] / p.from.parts;
      t = t.rows(p.from.part * rows, (p.from.part + 1) * rows).clone();
    }
    return p.transposed != p.to.transposed ? turned(t) : t;
  }
};

io::TensorToWrite written(const Target& t, const std::optional<DType>& dtype) {
  const io::TensorEntry& first = t.source(t.parts.front());
  require(first.dtype.has_value(), "convert: cannot read ", first.name, " of ", first.file_dtype);
  const DType as = dtype && is_floating(first) ? *dtype : *first.dtype;
  return {t.name, std::string(io::safetensors_dtype(as)), t.shape(),
          [t, as](const io::ByteSink& out) {
            for (const Target::Part& p : t.parts) give(cast(t.part(p), as, t.name), out);
          }};
}

bool is_attention(const std::string& weight, const Shape& shape) {
  return weight.find(".attn_1.") != std::string::npos && shape.rank() == 4;
}

// What takes the place of the input's weights.
struct Changed {
  const MergedWeights& merged;
  std::optional<TrainedWeights> trained = {};

  // What a part of the output is made of.
  Target::Part part(const std::string& path, const Component& c, const nn::Weight& w,
                    const std::pair<nn::FilePlace, nn::FilePlace>& from_to) const {
    const auto& [from, to] = from_to;
    Target::Part out{from, to, nn::file_shape(w), {}, from.transposed};
    if (trained) out.merged = trained->of(path, c, w.name);
    if (out.merged)
      out.transposed = false;
    else
      out.merged = merged.of(path, c.prefix, w.name);
    return out;
  }
};

// The tensors of a component at its new place; `used` gets those of the input.
std::vector<Target> targets_of(const Opened& source, const Component& c, const ComponentPlace& to,
                               const Changed& changed, std::set<std::string>& used) {
  const nn::FileShapes shapes = train::shapes_of(*source.file);
  const nn::FileTensors from{
      .shapes = shapes,
      .prefix = c.prefix,
      .ignored = [](std::string_view) { return true; },
      .places = c.model->places(c.config, nn::without_prefix(shapes, c.prefix)),
      .alone = false};
  const nn::Weights weights = weights_of(*c.model, c.config);
  nn::match_weights(weights, from);
  std::map<std::string, Target> out;
  for (const nn::Weight& w : weights) {
    nn::FilePlace place = to.places(w.name);
    Target& t = out[to.prefix + place.name];
    t.file = source.file;
    t.name = to.prefix + place.name;
    t.matrix = to.matrices && is_attention(w.name, nn::file_shape(w));
    t.parts.push_back(changed.part(source.path, c, w, {from.place(w.name), place}));
    used.insert(t.parts.back().from.name);
  }
  std::vector<Target> list;
  for (auto& [name, t] : out) {
    std::ranges::stable_sort(t.parts, {}, [](const Target::Part& p) { return p.to.part; });
    list.push_back(std::move(t));
  }
  return list;
}

// ---- input ---------------------------------------------------------------------------------

Opened opened(const std::string& path, const io::TensorFileOptions& options) {
  Opened out{std::make_shared<const io::TensorFile>(io::TensorFile::open(path, options)), path, {}};
  for (Component& c : recognise_components(train::shapes_of(*out.file))) {
    if (!has_layouts(c)) continue;
    examine(c, *out.file);
    out.components.push_back(std::move(c));
  }
  return out;
}

struct Input {
  std::vector<Opened> sources;
  std::optional<SchedulerConfig> scheduler;
  std::string scheduler_text;      // of its file
  std::vector<std::string> files;  // that must not be written to
};

Input read_input(const ConvertOptions& o) {
  require(fs::exists(o.in), "convert: does not exist  ", o.in);
  const io::TensorFileOptions how{.averaged = o.averaged};
  Input out;
  if (!fs::is_directory(o.in)) {
    require(o.variant.empty(), "convert: --variant is of folders of diffusers  ", o.in);
    out.sources.push_back(opened(o.in, how));
  } else {
    const DiffusersFolder folder = read_diffusers_folder(o.in, o.variant);
    require(folder.missing.empty(), "convert: the folder lacks the weights of ",
            folder.missing.empty() ? "" : folder.missing.front(),
            ", which its model_index.json names  ", o.in);
    out.sources.push_back(opened(folder.denoiser, how));
    for (const std::string& file : folder.text_encoders) out.sources.push_back(opened(file, {}));
    if (!folder.autoencoder.empty()) out.sources.push_back(opened(folder.autoencoder, {}));
    if (!folder.autoencoder_config.empty())
      for (Opened& s : out.sources)
        for (Component& c : s.components) read_latent_scaling(c.config, folder.autoencoder_config);
    if (!folder.scheduler.empty()) {
      out.scheduler = read_scheduler_config(folder.scheduler);
      out.scheduler_text = io::read_whole_file(folder.scheduler, "scheduler", scheduler_limit);
    }
    for (Opened& s : out.sources)
      for (Component& c : s.components) take_config(*c.model, c.config, s.path);
  }
  for (const Opened& s : out.sources)
    for (const std::string& file : s.file->files()) out.files.push_back(file);
  for (const LoraChoice& lora : o.loras) out.files.push_back(lora.file);
  return out;
}

// What the denoiser is trained to predict, by its file or its folder.
DiffusionConfig diffusion_of(const Input& in) {
  for (const Opened& s : in.sources)
    for (const Component& c : s.components) {
      if (c.model->kind != ModelKind::denoiser) continue;
      DiffusionConfig out = usual_diffusion(*c.model, c.config);
      if (in.scheduler)
        for (const auto& [name, value] : in.scheduler->diffusion)
          set_field(find_field(fields_of(out), name, "diffusion"), value);
      return out;
    }
  return {};
}

// ---- output --------------------------------------------------------------------------------

class Writer {
 public:
  Writer(const ConvertOptions& options, const CopyProgress& progress)
      : options_(options), progress_(progress) {}

  void add(const std::string& path, io::TensorToWrite t) {
    all_ += t.shape.numel() * io::find_file_dtype(t.file_dtype)->bits / 8;
    ++out_.tensors;
    files_[path].push_back(std::move(t));
  }
  void add(const std::string& path, std::map<std::string, std::string> metadata) {
    metadata_[path] = std::move(metadata);
  }

  void write() {
    for (auto& [path, tensors] : files_) {
      for (io::TensorToWrite& t : tensors)
        t.data = [this, data = std::move(t.data)](const io::ByteSink& out) {
          data([&](std::span<const uint8_t> bytes) {
            out(bytes);
            out_.bytes += static_cast<int64_t>(bytes.size());
            if (progress_) progress_(out_.bytes, all_);
          });
        };
      io::stream_safetensors(path, tensors, metadata_[path],
                             options_.overwrite ? io::Existing::replaced : io::Existing::kept);
    }
  }
  Converted& result() { return out_; }

 private:
  const ConvertOptions& options_;
  const CopyProgress& progress_;
  std::map<std::string, std::vector<io::TensorToWrite>> files_;  // by path
  std::map<std::string, std::map<std::string, std::string>> metadata_;
  int64_t all_ = 0;
  Converted out_;
};

void check_output(const Input& in, const ConvertOptions& o) {
  require(!o.out.empty(), "convert: OUT must name a file or a folder");
  std::error_code ignored;
  for (const std::string& file : in.files)
    require(!fs::equivalent(file, o.out, ignored), "convert: must not overwrite its input  ",
            o.out);
  if (o.layout != CheckpointLayout::diffusers) {
    require(!fs::is_directory(o.out), "convert: OUT must be a file of this layout  ", o.out);
    require(o.out.ends_with(".safetensors"),
            "convert: writes safetensors: OUT must end with .safetensors  ", o.out);
    require(o.overwrite || !fs::exists(o.out, ignored),
            "convert: OUT exists; another name keeps it, --overwrite replaces it  ", o.out);
    return io::check_can_write(o.out, "convert");
  }
  for (const char* file :
       {".safetensors", ".ckpt", ".pt", ".pth", ".bin", ".onnx", ".gguf", ".npy", ".npz", ".pkl",
        ".zip", ".tar", ".gz", ".json", ".txt", ".png", ".jpg", ".jpeg", ".webp"})
    require(!o.out.ends_with(file) || fs::is_directory(o.out),
            "convert: OUT must be a folder of diffusers' layout, or a .safetensors file of another "
            "(--layout), and not be called as a file of another kind (",
            file, ")  ", o.out);
  remove_abandoned((fs::path(o.out) / "").string());  // it is empty then
  require(!fs::exists(o.out) || (fs::is_directory(o.out) && fs::is_empty(o.out)),
          "convert: OUT must be a new or empty folder  ", o.out);
}

// What shapes do not say, as tensors whose names are what matters.
void add_markers(Writer& w, const std::string& path, const DiffusionConfig& d,
                 const Component& denoiser, const Family& family) {
  const auto marker = [&](const char* name) {
    w.add(path, io::TensorToWrite{name, "F32", {0}, [](const io::ByteSink&) {}});
  };
  if (!family.markers || denoiser.model->kind != ModelKind::denoiser) return;
  if (d.precond == "v") marker("v_pred");
  if (d.zero_snr != "no") marker("ztsnr");
  if (d.precond != "edm") return;
  const LatentScaling latents = latent_scaling(*denoiser.model, denoiser.config);
  for (const auto& [name, numbers] :
       {std::pair{"edm_mean", latents.mean}, {"edm_std", latents.deviation}}) {
    Tensor t(DType::f32, {1, static_cast<int64_t>(numbers.size()), 1, 1});
    std::ranges::transform(numbers, t.span<float>().begin(),
                           [](double v) { return static_cast<float>(v); });
    w.add(path, io::TensorToWrite{name, "F32", t.shape(),
                                  [t](const io::ByteSink& out) { give(t, out); }});
  }
}

// Programs know two predictions; others are told by markers, or by none.
std::map<std::string, std::string> metadata_of(const DiffusionConfig& d) {
  std::map<std::string, std::string> out{{"format", "pt"}};
  if (d.precond == "v" || d.precond == "eps")
    out["modelspec.prediction_type"] = d.precond == "v" ? "v" : "epsilon";
  return out;
}

// Those that LoRAs change, at their own places, by name.
std::map<std::string, Target> merged_in_place(const Opened& s, const MergedWeights& merged) {
  const nn::FileShapes shapes = train::shapes_of(*s.file);
  std::map<std::string, Target> out;
  for (const Component& c : s.components) {
    const nn::FilePlaces own = c.model->places(c.config, nn::without_prefix(shapes, c.prefix));
    const ComponentPlace place{
        .file = "", .prefix = c.prefix, .places = [own](const std::string& weight) {
          return own ? own(weight) : nn::FilePlace{weight};
        }};
    std::set<std::string> used;
    for (Target& t : targets_of(s, c, place, {merged, {}}, used))
      if (t.is_merged()) out.emplace(t.name, std::move(t));
  }
  return out;
}

MergedWeights merged_weights(const Input& in, const std::vector<LoraChoice>& loras) {
  std::vector<MergedWeights::Part> parts;
  for (const Opened& s : in.sources)
    for (const Component& c : s.components) parts.push_back({s.file, s.path, c});
  if (const Opened& s = in.sources.front(); !loras.empty() && !MergedWeights::changes_any(parts))
    fail("convert: --lora changes U-Nets and text encoders, and the file ",
         purpose_of(*s.file, s.path), "  ", s.path);
  return {parts, loras};
}

// All tensors under their names.
Converted copy(const Input& in, const MergedWeights& loras, const ConvertOptions& o,
               const CopyProgress& progress) {
  Writer w(o, progress);
  const Opened& s = in.sources.front();
  const auto merged = merged_in_place(s, loras);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : s.file->metadata())
    if (!key.starts_with("torch.")) metadata.emplace(key, value);
  w.add(o.out, std::move(metadata));
  for (const io::TensorEntry& e : s.file->entries()) {
    const auto changed = merged.find(e.name);
    if (changed == merged.end()) {
      w.add(o.out, copied(s.file, e, e.name, o.dtype));
      continue;
    }
    io::TensorToWrite t = written(changed->second, o.dtype);
    t.shape = e.shape;
    w.add(o.out, std::move(t));
  }
  w.write();
  return std::move(w.result());
}

struct Moved {
  std::vector<std::pair<const Opened*, Component>> components;  // the denoiser first
  std::vector<Component> list;
};

Moved components_of(const Input& in) {
  Moved out;
  for (const ModelKind kind :
       {ModelKind::denoiser, ModelKind::text_encoder, ModelKind::autoencoder})
    for (const Opened& s : in.sources)
      for (const Component& c : s.components)
        if (c.model->kind == kind) out.components.emplace_back(&s, c), out.list.push_back(c);
  if (const Opened& s = in.sources.front(); out.list.empty())
    fail(
        "convert: there is no U-Net, text encoder or autoencoder of Stable Diffusion, so it has "
        "one layout only (OUT must be a .safetensors file, and --layout same): the file ",
        purpose_of(*s.file, s.path), "  ", s.path);
  return out;
}

void note_left_out(const Input& in, const std::map<const Opened*, std::set<std::string>>& used,
                   Converted& out) {
  for (const Opened& s : in.sources)
    for (const io::TensorEntry& e : s.file->entries())
      if (const auto it = used.find(&s); it == used.end() || !it->second.contains(e.name))
        out.left_out.push_back(e.name);
}

Converted move(const Input& in, const MergedWeights& merged, const ConvertOptions& o,
               const CopyProgress& progress) {
  const Moved moved = components_of(in);
  const bool folder = o.layout == CheckpointLayout::diffusers;
  const auto places = folder ? diffusers_places(moved.list) : original_places(moved.list);
  const DiffusionConfig diffusion = o.trained ? o.trained->diffusion : diffusion_of(in);
  const Changed changed{merged, o.trained};
  std::optional<io::NewFolder> made;
  if (folder) made.emplace(o.out, "convert");
  Writer w(o, progress);
  std::map<const Opened*, std::set<std::string>> used;
  for (size_t i = 0; i < moved.list.size(); ++i) {
    const auto& [source, component] = moved.components[i];
    const std::string path = folder ? made->file(places[i].file) : o.out;
    for (const Target& t : targets_of(*source, component, places[i], changed, used[source]))
      w.add(path, written(t, o.dtype));
    if (const std::string guess = component.model->guessed(component.config);
        folder && !guess.empty())
      w.result().warnings.push_back(
          str("convert: tensors do not tell all of a network without a preset; ", places[i].file,
              " is written with what was guessed, so check its config.json (", guess, ")  ",
              source->path));
    auto metadata =
        folder ? std::map<std::string, std::string>{{"format", "pt"}} : metadata_of(diffusion);
    if (!folder) metadata.merge(resolution_metadata(moved.list[0]));
    if (!folder) metadata.merge(guidance_metadata(*moved.components[0].first->file));
    if (o.trained) metadata.insert(o.trained->metadata.begin(), o.trained->metadata.end());
    w.add(path, std::move(metadata));
  }
  if (folder) {
    const SchedulerFile scheduler{in.scheduler ? in.scheduler->name : "", in.scheduler_text};
    for (const auto& [name, text] : diffusers_files(moved.list, diffusion, scheduler))
      io::write_whole_file(made->file(name), text, "convert");
  } else {
    add_markers(w, o.out, diffusion, moved.list[0], family_in(moved.list));
    w.result().warnings = unsaid_by_one_file(moved.list, diffusion, in.scheduler);
  }
  w.write();
  if (made) made->commit();
  note_left_out(in, used, w.result());
  return std::move(w.result());
}

}  // namespace

Converted convert_checkpoint(const ConvertOptions& o, const CopyProgress& progress) {
  const Input in = read_input(o);
  check_output(in, o);
  require(!o.dtype || ebb::is_float(*o.dtype), "convert: dtype must be f32, f16 or bf16");
  const bool same = o.layout == CheckpointLayout::same;
  require(!same || in.sources.size() == 1,
          "convert: a folder becomes one file by --layout original  ", o.in);
  const MergedWeights merged = merged_weights(in, o.loras);
  Converted out = same ? copy(in, merged, o, progress) : move(in, merged, o, progress);
  for (const std::string& w : merged.warnings()) out.warnings.push_back(w);
  return out;
}

}  // namespace ebb
