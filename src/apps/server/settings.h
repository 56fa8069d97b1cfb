// Settings of a request to those of a job: by the names of `ebb generate --config`, from the one
// list of GenerateFlags::fields(). Names of files are looked up in the catalogue, pictures are
// decoded, and what only the server decides is refused.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "apps/server/catalogue.h"
#include "apps/server/job.h"
#include "apps/server/store.h"
#include "core/tensor.h"

namespace ebb::server {

// Where what is not in the request comes from.
struct SettingsSource {
  const Catalogue& catalogue;
  Store& store;
  std::string lora_dir, embedding_dir;
  std::string model;  // that is set for requests that name none; "": none
};

// Of a request that names none: the one that is set, or the usual one where that is not there or
// cannot be used. None: there is none at all.
std::optional<CatalogueFile> current_model(const SettingsSource& source);

// Settings that name files of the catalogue, and of which kind. Behind the name may stand numbers.
struct FileSetting {
  std::string_view name;
  FileKind kind;
};
std::span<const FileSetting> file_settings();

class SettingsBuilder {
 public:
  explicit SettingsBuilder(const SettingsSource& source) : source_(source) {}

  // That the job will have: the one that is set, or that is taken where none is. None: there is
  // none.
  std::optional<CatalogueFile> model() const;
  // Its own, or those of any; what a request leaves open.
  ModelDefaults defaults() const;

  // Throw HttpFault, naming `field`, or the setting where it is "": 422 for what cannot be, 400 for
  // what is not in the catalogue.
  void set(const std::string& name, const Json& value, const std::string& field = "");
  // Sides of protocols that round them down; one that is left open is the model's, or 512.
  ImageSize set_size(std::optional<int64_t> width, std::optional<int64_t> height);
  // A picture of the request: init, mask, image. Of all, most_pictures.
  void picture(const std::string& name, const Tensor& pixels);
  // A start picture behind that of picture("init").
  void another_init(const Tensor& pixels);
  // A control network with its picture: {"model","kind","image","strength","start","end"}.
  void control(const Json& unit);
  bool has(const std::string& name) const { return spec_.given.contains(name); }
  JobSpec& spec() { return spec_; }
  // With what the server adds; checks limits and what can be known before the job runs.
  JobSpec finish();

 private:
  void set_file(const std::string& name, FileKind kind, const Json& value,
                const std::string& field);
  void set_hires(const std::string& text, const std::string& field);
  void set_plain(const std::string& name, const Json& value, const std::string& field);
  std::string path_with_numbers(FileKind kind, const std::string& text, const std::string& field);
  void check_names() const;
  void add_input(const std::string& name, const Tensor& pixels, const std::string& field);
  void check_tags() const;

  SettingsSource source_;
  JobSpec spec_;
  ImageSize init_ = {};  // of the start image
};

// The setting `hires`, of what protocols have in fields of their own.
std::string hires_text(double scale, const std::string& upscaler, int64_t steps, double strength);
// One of GenerateFlags for clients: its name, type, default and help.
Json settings_description();
// Throws HttpFault 422, naming the setting, for what no request may ask for, with a start image of
// this size ({}: none), and an upscaler that has this scale of its own. The pixels of each picture.
int64_t check_limits(const cli::GenerateFlags& o, ImageSize init, double upscaler_scale);
// Throws HttpFault 422 for more pictures than a request may bring along.
void check_count(const std::string& field, size_t pictures);
// Throws HttpFault 422 for a picture that would be too large.
void check_pixels(const std::string& field, double height, double width);
// "sampler": looked up by any name that a program uses, with a schedule behind it. Throws HttpFault
// 400 "Sampler not found".
void check_sampler(const std::string& name);
// Whether such a sampler, or the one that is taken for "auto", has this option: protocols send all.
// Throws likewise.
bool takes_option(const std::string& sampler, std::string_view option);

}  // namespace ebb::server
