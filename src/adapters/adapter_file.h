// AdapterFile: the modules of a file of adapters, whatever program wrote it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "adapters/kind.h"
#include "io/safetensors.h"
#include "runtime/weight_change.h"

namespace ebb::adapters {

// A layer that a file changes.
struct FileModule {
  const AdapterKind* kind = nullptr;
  Module module;
  // Weight-decomposed (DoRA, Liu et al. 2024, arXiv:2402.09353): the lengths of the weight's rows,
  // or of its columns where the tensor is [1,in,...], are the file's. PEFT has those of rows in
  // whatever shape.
  static constexpr const char *magnitude = "magnitude", *row_magnitude = "row_magnitude";
  bool decomposes() const { return module.has(magnitude) || module.has(row_magnitude); }
};

// Whether the file has tensors by whose names no other file has tensors.
bool is_adapter(const io::TensorFile& file);

class AdapterFile {
 public:
  // Reads and checks the names; of the tensors' numbers only single ones. Throws Error
  // "adapter: ..." for a file that holds none of the kinds.
  static std::shared_ptr<const AdapterFile> open(const std::string& path);
  // Of a file that is open; `path`: for errors.
  static std::shared_ptr<const AdapterFile> from(io::TensorFile file, std::string path);
  const std::string& path() const { return path_; }
  // Another text after the file was written anew.
  const std::string& identity() const { return identity_; }
  const std::vector<FileModule>& modules() const { return modules_; }   // by their stems
  const std::vector<std::string>& unknown() const { return unknown_; }  // tensors of no kind
  const std::map<std::string, std::string>& metadata() const { return file_->metadata(); }
  // "LoRA", "LoHa, with DoRA"
  std::string kinds() const;

  // A tensor as the file has it, where a kernel can read that, else in f32. Throws Error for
  // numbers that are not finite.
  StoredWeight stored(const std::string& name) const;
  Tensor in_f32(const std::string& name) const;  // likewise
  const io::TensorFile& file() const { return *file_; }

 private:
  AdapterFile(io::TensorFile file, std::string path);
  void read_names();
  void read_alphas();
  void read_peft_alphas();
  void drop_unknown();

  std::shared_ptr<const io::TensorFile> file_;
  std::string path_, identity_;
  std::vector<FileModule> modules_;
  std::vector<std::string> unknown_;
  mutable std::mutex reading_;            // devices share a file, a thread each
  mutable std::set<std::string> finite_;  // tensors that were read and are
};

}  // namespace ebb::adapters
