// Files as torch.save writes them, of tensors or of a pickle made by hand.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors.h"

namespace ebb::testing {

using ZipFiles = std::vector<std::pair<std::string, std::string>>;  // names and bytes

// A zip archive of stored files.
std::string zip_text(const ZipFiles& files);
// Of torch.save with this pickle and storages "0", "1", ...
std::string torch_zip(std::string_view pickle, const std::vector<std::string>& storages = {});
// The same, where each storage's elements are counted, in the format before zip.
std::string torch_legacy(std::string_view pickle,
                         const std::vector<std::pair<int64_t, std::string>>& storages = {});

// A state dict, under the key `wrap` where that is given.
std::string torch_text(std::span<const io::NamedTensor> tensors, const std::string& wrap = "",
                       bool legacy = false);

// Opcodes: text, a number below 2^31, module and name of a callable.
std::string pickled(std::string_view text);
std::string pickled(int64_t number);
std::string pickled_global(std::string_view module, std::string_view name);
// Calls this with one text, the way harmful files do.
std::string pickled_call(std::string_view module, std::string_view name, std::string_view argument);

}  // namespace ebb::testing
