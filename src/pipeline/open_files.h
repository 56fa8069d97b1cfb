// OpenFiles: files of tensors that are opened once, however many of their components are loaded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/tensor_file.h"
#include "pipeline/load_model.h"

namespace ebb {

class OpenFiles {
 public:
  // Reads the headers the first time. Throws Error.
  std::shared_ptr<const io::TensorFile> get(const std::string& path,
                                            const io::TensorFileOptions& options = {}) {
    auto& file = files_[{path, options.averaged}];
    if (!file) file = std::make_shared<const io::TensorFile>(io::TensorFile::open(path, options));
    return file;
  }

 private:
  std::map<std::pair<std::string, bool>, std::shared_ptr<const io::TensorFile>> files_;
};

// load_model() by files that may be open already.
LoadedModel load_model(const std::string& path, OpenFiles& open, const std::string& model,
                       const std::vector<std::pair<std::string, std::string>>& overrides,
                       const io::TensorFileOptions& options);

}  // namespace ebb
