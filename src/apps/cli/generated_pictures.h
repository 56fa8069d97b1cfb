// The pictures of a run of `ebb generate`: where and how they are written, and with which texts.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/generate_flags.h"
#include "apps/cli/input_files.h"
#include "apps/cli/picture_output.h"
#include "apps/cli/written_files.h"
#include "base/background_tasks.h"
#include "io/file.h"
#include "io/picture_file.h"
#include "pipeline/file_hash.h"
#include "pipeline/text_to_image.h"

namespace ebb::cli {

// Of the files that --out names; none: latents.
std::optional<io::PictureFormat> format_of(const GenerateFlags& o);
bool has_quality(const GenerateFlags& o);
PictureStyle style_of(const GenerateFlags& o, int64_t first_image = 0);
int64_t pictures_of(const GenerateFlags& o);  // that are kept

// Writes pictures into a folder when they come, in whatever order, by their numbers; what is one
// file in the end, once.
class PictureFiles {
 public:
  // Throws Error where the texts would not fit into the format.
  PictureFiles(const GenerateFlags& o, const ResolvedTextToImage& r, const GenerateOptions& ran);
  void add(const Picture& p);
  // Behind it all files are there. Where one file was to have all pictures and some are missing, it
  // replaces none of an earlier run.
  void finish();
  int64_t count() const { return count_; }
  // Of those that came, how many are in files by now.
  int64_t written() const;
  // "3 of 6 images written to out/".
  std::string written_text() const;
  // In the order of the pictures. Behind finish().
  std::vector<WrittenFile> files() const { return in_order(files_); }
  nlohmann::ordered_json json() const;  // json_of() of them

 private:
  void write_one_file(const std::string& file, const std::vector<Tensor>& all) const;
  void note(const std::string& file, std::vector<int64_t> images);
  Tensor bytes_of(const Picture& p) const;

  const GenerateFlags& options_;
  const ResolvedTextToImage& request_;
  Output output_;
  InputHashes hashes_;
  std::list<FileHash> lora_hashes_;
  std::function<std::map<std::string, std::string>(const Picture&)> text_;
  std::map<int64_t, Tensor> kept_;  // by index
  Picture last_;            // without its numbers; its index negative: of several in one file
  int64_t first_file_ = 0;  // the number of the first one in a folder
  int64_t count_ = 0;
  std::mutex files_mutex_;
  std::vector<WrittenFile> files_;
  std::optional<io::TrialFolder> folder_;  // from the first picture on
  BackgroundTasks writing_;                // last: its tasks end before what they use
};

}  // namespace ebb::cli
