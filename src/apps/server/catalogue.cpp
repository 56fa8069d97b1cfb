#include "apps/server/catalogue.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <set>

#include "adapters/adapter_file.h"
#include "apps/cli/generate_flags.h"
#include "apps/server/fault.h"
#include "base/names.h"
#include "io/tensor_file.h"
#include "models/model.h"
#include "pipeline/checkpoint_summary.h"
#include "pipeline/component.h"
#include "pipeline/file_hash.h"
#include "pipeline/file_purpose.h"
#include "pipeline/suggested_guidance.h"
#include "pipeline/upscaler.h"
#include "train/model_weights.h"

namespace ebb::server {
namespace {

namespace fs = std::filesystem;

bool is_model_file(const fs::path& p) {
  const std::string ending = small_letters(p.extension().string());
  return ending == ".safetensors" || ending == ".ckpt" || ending == ".pt" || ending == ".pth" ||
         ending == ".bin";
}

std::optional<FileKind> kind_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::denoiser: return FileKind::model;
    case ModelKind::autoencoder: return FileKind::vae;
    case ModelKind::text_encoder: return FileKind::text_encoder;
    case ModelKind::control_network:
    case ModelKind::image_encoder: return FileKind::control;
    case ModelKind::upscaler: return FileKind::upscaler;
    case ModelKind::adapter: return FileKind::lora;
  }
  return {};
}

// A checkpoint has parts of several kinds: the first of these names it.
FileKind kind_of(const std::vector<Component>& components) {
  for (const ModelKind k : {ModelKind::denoiser, ModelKind::control_network, ModelKind::upscaler,
                            ModelKind::autoencoder, ModelKind::text_encoder})
    for (const Component& c : components)
      if (c.model->kind == k) return *kind_of(k);
  return FileKind::model;
}

ModelDefaults defaults_of(const Component& denoiser, const io::TensorFile& file) {
  ModelDefaults out;
  out.guidance = suggested_guidance(file).value_or(out.guidance);
  const auto latents = denoiser.model->latents(denoiser.config);
  const int64_t side = denoiser.config.common().image_size * (latents ? latents->factor : 1);
  if (side > 0) out.size = str(side, 'x', side);
  // guidance is a condition of the network: nothing is evaluated with the negative prompt
  if (is_told_guidance({.model = denoiser.model, .config = denoiser.config}))
    out.unused.emplace_back("negative");
  return out;
}

// By which A1111's first versions and their pictures tell models apart: SHA-256 of 64 KiB at 1 MiB.
std::string old_hash_of(const CatalogueFile& f) {
  constexpr int64_t from = 0x100000, bytes = 0x10000;
  return f.bytes > from ? sha256_of(f.path, {}, from, bytes).substr(0, 8) : "";
}

void read_header(CatalogueFile& f) {
  const io::TensorFile file = io::TensorFile::open(f.path);
  if (adapters::is_adapter(file)) {
    f.kind = FileKind::lora;
    return;
  }
  if (!embedding_title(file, f.path).empty()) {
    f.kind = FileKind::embedding;
    return;
  }
  auto components = recognise_components(train::shapes_of(file));
  require(!components.empty(), "catalogue: the file ", purpose_of(file, f.path));
  for (Component& c : components) examine(c, file);
  f.kind = kind_of(components);
  if (f.kind == FileKind::model) f.old_hash = old_hash_of(f);
  for (const Component& c : components)
    if (c.model->kind == ModelKind::denoiser && f.defaults.size.empty())
      f.defaults = defaults_of(c, file);
  for (const Component& c : components)
    if (c.model->kind == ModelKind::upscaler) f.scale = static_cast<double>(scale_of_upscaler(c));
  for (const auto& [name, text] : summary_of(file, components, f.path))
    if (name == "family") f.family = text;
}

// What cannot be read has a fault.
void read_safely(CatalogueFile& f, std::optional<FileKind> kind) {
  try {
    read_header(f);
  } catch (const std::exception& e) {
    f.fault = e.what();
    f.kind = kind.value_or(FileKind::model);
  }
}

std::string unslashed(std::string_view text) {
  std::string out(trimmed(text));
  std::ranges::replace(out, '\\', '/');
  return out;
}

// "NAME [0123456789]" without what stands in brackets.
std::string without_hash(const std::string& text) {
  const size_t at = text.rfind(" [");
  return at != text.npos && text.ends_with(']') ? text.substr(0, at) : text;
}

// "0123abcd" of "NAME [0123abcd]" and of itself.
std::string hash_in(const std::string& text) {
  const size_t at = text.rfind(" [");
  return at != text.npos && text.ends_with(']') ? text.substr(at + 2, text.size() - at - 3) : text;
}

bool is_hash_of(const CatalogueFile& f, const std::string& text) {
  return text.size() >= 8 && !f.sha256.empty() && f.sha256.starts_with(small_letters(text));
}

std::string base_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// A link to a folder in which it lies: it would be read again and again.
bool leads_back(const fs::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_symlink(error)) return false;
  const fs::path to = fs::canonical(entry.path(), error);
  const fs::path from = fs::canonical(entry.path().parent_path(), error);
  return !to.empty() && std::ranges::mismatch(to, from).in1 == to.end();
}

// A path below a folder, and why it cannot be read; "" if it can.
using Found = std::function<void(const fs::path&, const std::string& fault)>;

// Tells of each file below a folder that is named as a model's, and of folders that cannot be read.
void walk(const fs::path& folder, int depth, const std::stop_token& stop, const Found& found) {
  constexpr int deepest = 16;
  if (depth > deepest) return found(folder, str("lies more than ", deepest, " folders deep"));
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; !error && i != end && !stop.stop_requested();
       i.increment(error)) {
    std::error_code unknown;
    const fs::file_status status = i->status(unknown);
    if (fs::is_directory(status)) {
      if (!leads_back(*i)) walk(i->path(), depth + 1, stop, found);
    } else if (is_model_file(i->path())) {
      const bool link = i->is_symlink(unknown);
      found(i->path(), fs::is_regular_file(status) ? ""
                       : link                      ? "the link leads to no file"
                                                   : "is no file that can be read");
    }
  }
  if (error) found(folder, str("the folder cannot be read (", error.message(), ")"));
}

// A file as far as its folder tells it.
CatalogueFile named(const fs::path& path, const CatalogueFolder& folder, const fs::path& root) {
  std::error_code unreadable;
  CatalogueFile f;
  f.path = path.string();
  f.file = path == root ? folder.path : path.lexically_relative(root).generic_string();
  f.given = (fs::absolute(folder.path, unreadable) / f.file).lexically_normal().string();
  f.name = fs::path(f.file).replace_extension().generic_string();
  f.bytes = static_cast<int64_t>(fs::file_size(path, unreadable));
  f.modified = fs::last_write_time(path, unreadable).time_since_epoch().count();
  f.of_ebb = folder.of_ebb;
  return f;
}

}  // namespace

std::string_view name_of(FileKind kind) {
  constexpr std::array<std::string_view, 7> names = {
      "model", "vae", "text_encoder", "lora", "embedding", "upscaler", "control"};
  return names[static_cast<size_t>(kind)];
}

ModelDefaults::ModelDefaults() {
  const GenerateOptions usual = cli::GenerateFlags().generate;
  steps = usual.steps, guidance = usual.guidance;
}

std::string CatalogueFile::model_name() const {
  std::string out = name;
  std::ranges::replace(out, '/', '_');
  return out;
}

Catalogue::Catalogue(std::vector<CatalogueFolder> folders)
    : folders_(std::move(folders)), thread_([this](const std::stop_token& s) { work(s); }) {}

void Catalogue::rescan() {
  const std::lock_guard lock(mutex_);
  wanted_ = scanning_ = true;
  wake_.notify_all();
}

void Catalogue::wait_for_scan() const {
  std::unique_lock lock(mutex_);
  scanned_.wait(lock, [&] { return !scanning_ || ends_; });
}

bool Catalogue::finish(std::chrono::milliseconds time) {
  thread_.request_stop();
  std::unique_lock lock(mutex_);
  ends_ = true;
  scanned_.notify_all();
  return scanned_.wait_for(lock, time, [&] { return ended_; });
}

bool Catalogue::has_scanned() const {
  const std::lock_guard lock(mutex_);
  return scanned_once_;
}

void Catalogue::check_scanned() const {
  if (!has_scanned())
    throw HttpFault(503, "models_are_read",
                    "the folders of models are being read; try again later");
}

bool Catalogue::scanning() const {
  const std::lock_guard lock(mutex_);
  return scanning_;
}

void Catalogue::work(const std::stop_token& stop) {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [&] { return wanted_; });
      if (stop.stop_requested()) break;
      wanted_ = false;
    }
    scan(stop);
    {
      const std::lock_guard lock(mutex_);
      scanning_ = wanted_, scanned_once_ = true;
      scanned_.notify_all();
    }
    hash(stop);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  scanned_.notify_all();
}

void Catalogue::scan(const std::stop_token& stop) {
  const std::vector<CatalogueFile> before = all();
  std::vector<CatalogueFile> found;
  for (const CatalogueFolder& folder : folders_) {
    std::error_code gone;
    const fs::path resolved = fs::canonical(folder.path, gone);
    const fs::path root = gone ? fs::path(folder.path) : resolved;
    walk(root, 0, stop, [&](const fs::path& path, const std::string& fault) {
      if (std::ranges::find(found, path.string(), &CatalogueFile::path) != found.end()) return;
      CatalogueFile f = named(path, folder, root);
      const auto old = std::ranges::find(before, f.path, &CatalogueFile::path);
      const bool same = old != before.end() && old->bytes == f.bytes && old->modified == f.modified;
      if (!fault.empty()) {
        f.kind = folder.kind.value_or(FileKind::model);
        f.fault = str("catalogue: ", fault, "  ", f.path);
      } else if (same) {
        f = *old;
      } else {
        read_safely(f, folder.kind);
      }
      found.push_back(std::move(f));
    });
  }
  std::ranges::stable_sort(
      found, {}, [](const auto& f) { return std::pair(f.of_ebb, small_letters(f.name)); });
  const std::lock_guard lock(mutex_);
  files_ = std::move(found);
}

// Files of checkpoints are large: names are there long before hashes.
void Catalogue::hash(const std::stop_token& stop) {
  for (const CatalogueFile& f : all()) {
    if (!f.sha256.empty() || !f.fault.empty()) continue;
    {
      const std::lock_guard lock(mutex_);
      if (wanted_ || stop.stop_requested()) return;
    }
    FileHash hash(f.path);
    std::unique_lock lock(mutex_);
    while (!hash.done() && !wanted_ && !stop.stop_requested())
      wake_.wait_for(lock, stop, std::chrono::milliseconds(20), [&] { return wanted_; });
    if (!hash.done()) return;
    const std::string digits = hash.hex();
    for (CatalogueFile& own : files_)
      if (own.path == f.path && own.modified == f.modified) own.sha256 = digits;
  }
}

std::vector<CatalogueFile> Catalogue::all(FileKind kind) const {
  std::vector<CatalogueFile> out = all();
  std::erase_if(out, [&](const CatalogueFile& f) { return f.kind != kind; });
  return out;
}

std::vector<CatalogueFile> Catalogue::all() const {
  const std::lock_guard lock(mutex_);
  return files_;
}

std::optional<CatalogueFile> Catalogue::lookup(FileKind kind, std::string_view asked) const {
  if (asked.size() > longest_name) return {};
  check_scanned();
  const std::vector<CatalogueFile> files = all(kind);
  const std::string text = unslashed(asked), plain = without_hash(text),
                    hash = small_letters(hash_in(text));
  using Match = std::function<bool(const CatalogueFile&)>;
  const std::array<Match, 10> matches = {
      [&](const CatalogueFile& f) { return f.title() == text; },
      [&](const CatalogueFile& f) { return f.file == text || f.file == plain; },
      [&](const CatalogueFile& f) { return f.name == text || f.name == plain; },
      [&](const CatalogueFile& f) { return f.model_name() == plain; },
      [&](const CatalogueFile& f) { return base_of(f.file) == plain; },
      [&](const CatalogueFile& f) { return base_of(f.name) == plain; },
      [&](const CatalogueFile& f) { return small_letters(f.name) == small_letters(plain); },
      [&](const CatalogueFile& f) { return is_hash_of(f, text); },
      [&](const CatalogueFile& f) { return !f.old_hash.empty() && f.old_hash == hash; },
      [&](const CatalogueFile& f) { return f.path == text || f.given == text; },
  };
  if (text.empty()) return {};
  for (const Match& m : matches)
    if (const auto at = std::ranges::find_if(files, m); at != files.end()) return *at;
  return {};
}

std::optional<CatalogueFile> Catalogue::usual_model() const {
  check_scanned();
  const std::vector<CatalogueFile> models = all(FileKind::model);
  const auto at = std::ranges::find(models, "", &CatalogueFile::fault);
  return at == models.end() ? std::nullopt : std::optional(*at);
}

CatalogueFile Catalogue::find(FileKind kind, std::string_view text,
                              const std::string& field) const {
  if (text.size() > longest_name)
    throw HttpFault(400, "not_found", str(field, ": the name is not in the catalogue"), field);
  if (const auto f = lookup(kind, text)) {
    if (!f->fault.empty()) throw HttpFault(422, "bad_file", str(field, ": ", f->fault), field);
    return *f;
  }
  std::vector<std::string> names;
  for (const CatalogueFile& f : all(kind)) names.push_back(f.name);
  throw HttpFault(
      400, "not_found",
      str(field, ": '", printable(text), "' is not in the catalogue",
          names.empty() ? str("; it has no ", name_of(kind), " files") : suggestion(text, names)),
      field);
}

std::string Catalogue::for_clients(std::string text) const {
  if (text.find('/') == text.npos) return text;
  // With a / behind; the innermost of nested ones first.
  std::set<std::string, std::greater<>> folders;
  const auto add = [&](const std::string& path, const std::string& file) {
    if (path.size() > file.size() + 1 && path.ends_with("/" + file))
      folders.insert(path.substr(0, path.size() - file.size()));
  };
  {
    const std::lock_guard lock(mutex_);
    for (const CatalogueFile& f : files_) add(f.path, f.file), add(f.given, f.file);
  }
  // Where a path begins, so not "/models/" of "/my/models/".
  const auto begins = [&](size_t at) {
    return at == 0 || std::string_view(" '\"(:=").find(text[at - 1]) != std::string_view::npos;
  };
  for (const std::string& folder : folders)
    for (size_t at = text.find(folder); at != text.npos; at = text.find(folder, at))
      if (begins(at))
        text.erase(at, folder.size());
      else
        ++at;
  return text;
}

std::optional<CatalogueFile> Catalogue::by_path(std::string_view path) const {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(files_, path, &CatalogueFile::path);
  return at == files_.end() ? std::nullopt : std::optional(*at);
}

}  // namespace ebb::server
