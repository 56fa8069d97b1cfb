// Catalogue: the model files of some folders, by what is in them. Names of requests are looked up
// here; no path is made of them. A thread of its own reads headers and computes hashes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ebb::server {

constexpr size_t longest_name = 1024;  // that is looked up, in bytes

enum class FileKind : uint8_t { model, vae, text_encoder, lora, embedding, upscaler, control };
std::string_view name_of(FileKind kind);  // "model"

// What `ebb generate` takes where nothing says another; of denoisers.
struct ModelDefaults {
  ModelDefaults();   // those of models that say nothing of themselves
  std::string size;  // pixels: "512x512"; "" where it is not known
  int64_t steps;
  double guidance;
  std::vector<std::string> unused;  // settings without effect on its pictures
};

struct CatalogueFile {
  FileKind kind = FileKind::model;
  std::string path;      // where it lies
  std::string given;     // the same by the path of its folder that the user gave
  std::string file;      // from its folder on, with / between
  std::string name;      // that without ending
  std::string sha256;    // "" until it is known
  std::string old_hash;  // 8 digits, as A1111 had them first; "" of small files
  std::string family;    // "Stable Diffusion XL"; "" where it is not known
  std::string fault;     // why it cannot be used; "" where it can
  bool of_ebb = false;   // the model that comes with the program
  double scale = 0;      // of an upscaler
  ModelDefaults defaults;
  int64_t bytes = 0, modified = 0;

  std::string hash() const { return sha256.substr(0, 10); }
  // As A1111 shows it: "NAME.safetensors [0123456789]", without the hash until it is known.
  std::string title() const { return sha256.empty() ? file : file + " [" + hash() + "]"; }
  std::string model_name() const;  // folders joined by _
};

// A folder, and what its files are if they do not say it themselves.
struct CatalogueFolder {
  std::string path;  // as clients may say it
  std::optional<FileKind> kind = {};
  bool of_ebb = false;  // the folder of the model that comes with the program
};

class Catalogue {
 public:
  explicit Catalogue(std::vector<CatalogueFolder> folders);
  ~Catalogue() = default;  // waits for the file that is being read, however long
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;

  void rescan();               // soon, by its thread
  void wait_for_scan() const;  // until headers are read, or finish(); a folder may hang
  bool scanning() const;
  bool has_scanned() const;  // once
  // Reads no more. False: the file that is being read does not come in this time.
  bool finish(std::chrono::milliseconds time);

  std::vector<CatalogueFile> all(FileKind kind) const;  // sorted by name, ebb's own model last
  std::vector<CatalogueFile> all() const;
  // By title, name, file, base name, SHA-256 or its first digits, old hash (also in brackets behind
  // a name), or either path, in this order. Throws HttpFault: 400 "not in the catalogue" with the
  // nearest names, or the file's own fault. `field`: of the request.
  CatalogueFile find(FileKind kind, std::string_view text, const std::string& field) const;
  // The same; none where there is none. Before the first scan all three throw HttpFault 503:
  // requests wait for it by On::models.
  std::optional<CatalogueFile> lookup(FileKind kind, std::string_view text) const;
  // Of a request that names no model: the first one, ebb's own if there is no other.
  std::optional<CatalogueFile> usual_model() const;
  std::optional<CatalogueFile> by_path(std::string_view path) const;
  // An error's text with files as clients know them, by CatalogueFile::file: not where they lie.
  std::string for_clients(std::string text) const;
  const std::vector<CatalogueFolder>& folders() const { return folders_; }

 private:
  void check_scanned() const;
  void work(const std::stop_token& stop);
  void scan(const std::stop_token& stop);
  void hash(const std::stop_token& stop);

  std::vector<CatalogueFolder> folders_;
  mutable std::mutex mutex_;
  mutable std::condition_variable_any wake_, scanned_;
  std::vector<CatalogueFile> files_;
  bool wanted_ = true, scanning_ = true, scanned_once_ = false, ends_ = false, ended_ = false;
  std::jthread thread_;  // last: it ends before the rest
};

}  // namespace ebb::server
