#include "apps/cli/generated_pictures.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/cli/file_faults.h"
#include "apps/cli/picture_texts.h"
#include "apps/cli/terminal.h"
#include "io/file.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "pipeline/picture_bytes.h"

namespace ebb::cli {
namespace {

// Those whose hashes are told or compared.
InputFiles hashed_files(const GenerateFlags& o, Output output) {
  return output == Output::npy && o.made_with.empty() ? InputFiles() : input_files(o);
}

}  // namespace

std::optional<io::PictureFormat> format_of(const GenerateFlags& o) {
  return io::picture_format(output_of(o.out, "generate") == Output::folder ? "." + o.format
                                                                           : o.out);
}
bool has_quality(const GenerateFlags& o) {
  const auto format = format_of(o);
  return format && *format != io::PictureFormat::png;
}

PictureStyle style_of(const GenerateFlags& o, int64_t first_image) {
  return {.format = o.format,
          .quality = o.quality,
          .first_image = first_image,
          .overwrite = o.overwrite};
}

int64_t pictures_of(const GenerateFlags& o) { return o.only < 0 ? o.n : 1; }

PictureFiles::PictureFiles(const GenerateFlags& o, const ResolvedTextToImage& r,
                           const GenerateOptions& ran)
    : options_(o),
      request_(r),
      output_(output_of(o.out, "generate")),
      hashes_(hashed_files(o, output_)),
      text_([&o, &r, ran, this](const Picture& p) {
        std::vector<std::string> loras;
        for (FileHash& hash : lora_hashes_) loras.push_back(hash.hex());
        return picture_texts({o, r, ran, p, hashes_.texts(), loras});
      }) {
  if (output_ != Output::npy)  // which has no texts
    for (const auto* uses : {&r.loras, &r.refiner_loras})
      for (const adapters::AdapterUse& use : *uses)
        lora_hashes_.emplace_back(use.file->path(), HashOf::tensors);
  HashTexts some;
  const InputFiles files = input_files(o);
  for (const InputFile& f : files.all()) some[f.name] = "0123456789";
  if (const auto format = format_of(o))
    io::check_picture_text(*format, picture_texts({o, r, ran, Picture{}, some, {}}));
  if (output_ == Output::folder) first_file_ = first_number(o.out);
  if (!o.made_with.empty()) say_warnings(other_files(o.made_with, hashes_.texts()));
  tell_at_file_fault("generate: " + written_text());
}

void PictureFiles::add(const Picture& p) {
  if (options_.only >= 0 && p.index != options_.only) return;
  last_ = {.index = kept_.empty() ? p.index : -1,
           .batch = p.batch,
           .batch_first = p.batch_first,
           .pixels = {},
           .latents = {}};
  ++count_;
  if (output_ == Output::folder) {
    static constexpr std::string_view flag = "generate: --out";
    if (!folder_) folder_.emplace(options_.out, flag);
    return writing_.add([this, bytes = bytes_of(p), text = text_(last_), index = p.index,
                         number = first_file_ + (options_.only < 0 ? p.index : 0)] {
      // Another run that made the folder and got no picture may have removed it.
      io::make_folder(options_.out, flag);
      const auto files = write_pictures(
          options_.out, {bytes}, [&](int64_t) { return text; }, style_of(options_, number));
      note(files.at(0), {index});
    });
  }
  kept_[p.index] = output_ == Output::grid ? bytes_of(p) : p.latents;
}

void PictureFiles::finish() {
  writing_.finish();
  if (kept_.empty()) return;
  std::vector<Tensor> kept;
  std::vector<int64_t> of;
  for (auto& [index, t] : std::exchange(kept_, {})) kept.push_back(t), of.push_back(index);
  const std::string file =
      count_ < pictures_of(options_) ? partial_file(options_.out) : options_.out;
  write_one_file(file, kept);
  note(file, std::move(of));
}

nlohmann::ordered_json PictureFiles::json() const {
  return json_of(files(), options_.first_image, request_.first());
}

int64_t PictureFiles::written() const {
  int64_t out = 0;
  for (const WrittenFile& f : files_) out += std::ssize(f.images);
  return out;
}

std::string PictureFiles::written_text() const {
  const int64_t count = written(), of = pictures_of(options_);
  if (count == 0) return "nothing was written to " + options_.out;
  const std::string& first = files_[0].file;  // the only one where it is no folder
  const bool other = output_ != Output::folder && first != options_.out;
  return str(count, " of ", of, of == 1 ? " image" : " images", " written to ",
             other ? str(first, "; ", options_.out, " stays as it was") : options_.out);
}

void PictureFiles::write_one_file(const std::string& file, const std::vector<Tensor>& all) const {
  if (output_ == Output::grid) {
    write_pictures(
        file, all, [&](int64_t) { return text_(last_); }, style_of(options_));
    return;
  }
  const Tensor latents = channels_first(stacked(all));
  const io::Existing existing = existing_at(file, options_.overwrite);
  if (output_ == Output::npy) return io::write_npy(file, latents, existing);
  const io::NamedTensor tensor{"latents", latents};
  io::write_safetensors(file, {&tensor, 1}, text_(last_), existing);
}

void PictureFiles::note(const std::string& file, std::vector<int64_t> images) {
  const std::lock_guard lock(files_mutex_);
  files_.push_back({file, std::move(images)});
  tell_at_file_fault("generate: " + written_text());
}

Tensor PictureFiles::bytes_of(const Picture& p) const {
  return picture_bytes(p.pixels, options_.generate.dialect);
}

}  // namespace ebb::cli
