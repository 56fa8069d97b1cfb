// Files as torch.save writes them, of tensors or of a pickle made by hand.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"

namespace ebb::testing {

using ZipFiles = std::vector<std::pair<std::string, std::string>>;  // names and bytes

// Opcodes: text, a number below 2^31, module and name of a callable.
inline std::string pickled(std::string_view text);
inline std::string pickled(int64_t number);
inline std::string pickled_global(std::string_view module, std::string_view name);

inline std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

// Of both headers of a file, from its version to its lengths.
inline std::string zip_fields(const std::string& name, const std::string& bytes) {
  const std::string size = little(bytes.size(), 4);
  return little(20, 2) + little(0, 2) + little(0, 2) + little(0, 4) + little(0, 4) + size + size +
         little(name.size(), 2) + little(0, 2);
}

inline std::string_view storage_class(DType dtype) {
  switch (dtype) {
    case DType::f32: return "FloatStorage";
    case DType::f16: return "HalfStorage";
    case DType::bf16: return "BFloat16Storage";
    case DType::i32: return "IntStorage";
    case DType::i64: return "LongStorage";
    case DType::u8: return "ByteStorage";
  }
  return "";
}

inline std::string pickled_tuple(const std::vector<int64_t>& numbers) {
  std::string out = "(";
  for (const int64_t n : numbers) out += pickled(n);
  return out + "t";
}

inline std::string pickled_tensor(const Tensor& t, size_t key, bool legacy) {
  std::vector<int64_t> strides(t.shape().sizes().size());
  int64_t stride = 1;
  for (size_t d = strides.size(); d-- > 0; stride *= t.shape().sizes()[d]) strides[d] = stride;
  return pickled_global("torch._utils", "_rebuild_tensor_v2") + "((" + pickled("storage") +
         pickled_global("torch", storage_class(t.dtype())) + pickled(std::to_string(key)) +
         pickled("cpu") + pickled(t.numel()) + (legacy ? "N" : "") + "tQ" + pickled(int64_t{0}) +
         pickled_tuple(t.shape().sizes()) + pickled_tuple(strides) + "\x89" +
         pickled_global("collections", "OrderedDict") + ")RtR";
}

// A zip archive of stored files.
inline std::string zip_text(const ZipFiles& files) {
  std::string out, directory;
  for (const auto& [name, bytes] : files) {
    directory += "PK\1\2" + little(20, 2) + zip_fields(name, bytes) + little(0, 2) + little(0, 2) +
                 little(0, 2) + little(0, 4) + little(out.size(), 4) + name;
    out += "PK\3\4" + zip_fields(name, bytes) + name + bytes;
  }
  const std::string count = little(files.size(), 2);
  return out + directory + "PK\5\6" + little(0, 4) + count + count + little(directory.size(), 4) +
         little(out.size(), 4) + little(0, 2);
}

// Of torch.save with this pickle and storages "0", "1", ...
inline std::string torch_zip(std::string_view pickle,
                             const std::vector<std::string>& storages = {}) {
  ZipFiles files{{"archive/data.pkl", std::string(pickle)}, {"archive/byteorder", "little"}};
  for (size_t i = 0; i < storages.size(); ++i)
    files.emplace_back(str("archive/data/", i), storages[i]);
  files.emplace_back("archive/version", "3\n");
  return zip_text(files);
}

// The same, where each storage's elements are counted, in the format before zip.
inline std::string torch_legacy(std::string_view pickle,
                                const std::vector<std::pair<int64_t, std::string>>& storages = {}) {
  std::string out("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  out += "\x80\x02M\xe9\x03.";
  out += "\x80\x02}" + pickled("little_endian") + "\x88s.";
  out += std::string(pickle) + "\x80\x02](";
  for (size_t i = 0; i < storages.size(); ++i) out += pickled(std::to_string(i));
  out += "e.";
  for (const auto& [count, bytes] : storages)
    out += little(static_cast<uint64_t>(count), 8) + bytes;
  return out;
}

// A state dict, under the key `wrap` where that is given.
inline std::string torch_text(std::span<const io::NamedTensor> tensors,
                              const std::string& wrap = "", bool legacy = false) {
  std::string pickle = "}(";
  std::vector<std::string> storages;
  std::vector<std::pair<int64_t, std::string>> counted;
  for (const auto& [name, t] : tensors) {
    pickle += pickled(name) + pickled_tensor(t, storages.size(), legacy);
    storages.emplace_back(static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes()));
    counted.emplace_back(t.numel(), storages.back());
  }
  pickle += "u";
  if (!wrap.empty()) pickle = "}" + pickled(wrap) + pickle + "s";
  pickle = "\x80\x02" + pickle + ".";
  return legacy ? torch_legacy(pickle, counted) : torch_zip(pickle, storages);
}

inline std::string pickled(std::string_view text) {
  return "X" + little(text.size(), 4) + std::string(text);
}

inline std::string pickled(int64_t number) {
  return "J" + little(static_cast<uint64_t>(number), 4);
}

inline std::string pickled_global(std::string_view module, std::string_view name) {
  return str('c', module, '\n', name, '\n');
}

// Calls this with one text, the way harmful files do.
inline std::string pickled_call(std::string_view module, std::string_view name,
                                std::string_view argument) {
  return pickled_global(module, name) + "(" + pickled(argument) + "tR";
}

}  // namespace ebb::testing
