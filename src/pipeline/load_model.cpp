#include "pipeline/load_model.h"

#include "base/choices.h"
#include "base/error.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "pipeline/component.h"
#include "pipeline/file_purpose.h"
#include "pipeline/open_files.h"
#include "train/checkpoint.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

// A network and where its tensors are in a file.
struct Found {
  LoadedModel model;
  std::string prefix = {};
};

Component denoiser_in(const io::TensorFile& tensors, const std::string& file) {
  for (Component& c : recognise_components(train::shapes_of(tensors)))
    if (c.model->kind == ModelKind::denoiser) return std::move(c);
  fail("model: the file ", purpose_of(tensors, file), "  ", file);
}

Found recognised(const std::string& file, const std::string& name, OpenFiles& open) {
  if (!name.empty()) {
    const NamedModel m = find_model(name);
    return {{m.model, m.config, usual_diffusion(*m.model, m.config), {}}};
  }
  const auto tensors = open.get(file);
  Component c = denoiser_in(*tensors, file);
  examine(c, *tensors);
  return {{.model = c.model,
           .config = c.config,
           .diffusion = usual_diffusion(*c.model, c.config),
           .guessed = c.model->guessed(c.config)},
          c.prefix};
}

Found from_run(const train::ModelFileInfo& info, const std::string& file) {
  const NamedModel m = find_model(info.run.model);
  LoadedModel out{m.model, m.config, {}, info.run.class_names, nullptr, info.step, true};
  const auto part = [&](const char* name) { return str("checkpoint: '", name, "' in ", file); };
  const std::string network = set_known_fields(out.config.fields(), info.run.model_config,
                                               part("ebb.model_config")),
                    diffusion =
                        set_known_fields(fields_of(out.diffusion), info.run.diffusion_config,
                                         part("ebb.diffusion_config"));
  out.missing = join_texts(network, diffusion);
  check(*m.model, out.config);
  check(out.diffusion);
  const auto names = static_cast<int64_t>(out.class_names.size());
  require(names == 0 || names == out.config.common().classes,
          "checkpoint: must name all classes of its network or none (", names, " names, ",
          out.config.common().classes, " classes)");
  return {out};
}

struct Asked {
  const std::string& path;
  const std::string file;  // that `path` means
  const std::string& model;
};

Found without_weights(const std::string& file, const std::string& model, OpenFiles& open) {
  const auto info = model.empty() ? train::read_model_info(file) : std::nullopt;
  return info ? from_run(*info, file) : recognised(file, model, open);
}

std::shared_ptr<WeightStore> weights_in(const std::string& path, const Found& f,
                                        const io::TensorFileOptions& options, OpenFiles& open) {
  const LoadedModel& m = f.model;
  return open_component(open.get(path, options), path, {m.model, m.config, f.prefix});
}

// The text of an error in this file, which it names at the end if it does not name it yet.
std::string naming(const std::string& error, const std::string& file) {
  return error.find(file) == std::string::npos ? error + "  " + file : error;
}

// An Error says what was made up of the config, which may be why the tensors do not fit.
std::shared_ptr<WeightStore> weights_or_reason(const std::string& file, const Found& f,
                                               const io::TensorFileOptions& options,
                                               OpenFiles& open) {
  try {
    return weights_in(file, f, options, open);
  } catch (const Error& e) {
    if (f.model.missing.empty()) throw;
    fail(naming(e.what(), file), "\n  ", missing_text(f.model.missing));
  }
}

// What f() gives; an Error of it says which file is wrong and, in a folder, which older one can be
// loaded.
auto in_file(const Asked& a, const auto& f) {
  try {
    return f();
  } catch (const Error& e) {
    const std::string what = e.what();
    const std::string older = train::older_model(a.path, a.file, [&](const std::string& file) {
      OpenFiles other;
      weights_in(file, without_weights(file, a.model, other), {}, other);
    });
    fail(naming(what, a.file), older.empty() ? "" : "; an older model is whole: " + older);
  }
}

// Throws Error for overrides that say nothing of this network, or that training has decided.
void set_overrides(LoadedModel& m,
                   const std::vector<std::pair<std::string, std::string>>& overrides) {
  const std::string trained = m.diffusion.precond;
  for (const auto& [name, text] : overrides) {
    const std::vector<Field> fields = fields_of(m.diffusion);
    set_field(find_field(fields, name, "diffusion"), text);
  }
  resolve(m.diffusion);
  require(!m.of_run || m.diffusion.precond == trained,
          "diffusion: the model was trained with precond ", trained,
          ", which its weights are of (--precond ", m.diffusion.precond, ")");
  for (const auto& [name, text] : overrides) check_applies(name, m.diffusion.precond);
  check(m.diffusion);
}

}  // namespace

std::vector<std::string> class_labels(const LoadedModel& m) {
  if (!m.class_names.empty()) return m.class_names;
  std::vector<std::string> out;
  for (int64_t i = 0; i < m.config.common().classes; ++i) out.push_back(std::to_string(i));
  return out;
}

DiffusionConfig usual_diffusion(const Model& model, const ModelConfig& config) {
  DiffusionConfig d;
  parse_fields(fields_of(d), model.diffusion(config));
  return d;
}

std::string set_known_fields(const std::vector<Field>& fields, const std::string& json,
                             const std::string& subject) {
  std::string missing;
  for (const std::string& name : set_fields_json(fields, json, subject))
    missing +=
        str(missing.empty() ? "" : ", ", name, " ", field_text(find_field(fields, name, subject)));
  return missing;
}

std::string missing_text(const std::string& missing) {
  return str("the file's config does not have all fields; these defaults stand for them: ",
             missing);
}

std::string join_texts(const std::string& a, const std::string& b) {
  return str(a, a.empty() || b.empty() ? "" : ", ", b);
}

LoadedModel load_model(const std::string& path, const std::string& model,
                       const std::vector<std::pair<std::string, std::string>>& overrides,
                       const io::TensorFileOptions& options) {
  OpenFiles open;
  return load_model(path, open, model, overrides, options);
}

LoadedModel load_model(const std::string& path, OpenFiles& open, const std::string& model,
                       const std::vector<std::pair<std::string, std::string>>& overrides,
                       const io::TensorFileOptions& options) {
  const Asked asked{path, train::find_model_file(path), model};
  Found found = in_file(asked, [&] { return without_weights(asked.file, model, open); });
  set_overrides(found.model, overrides);
  found.model.weights =
      in_file(asked, [&] { return weights_or_reason(asked.file, found, options, open); });
  return found.model;
}

}  // namespace ebb
