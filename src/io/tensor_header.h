// What the readers of formats give to TensorFile: places of tensors, and what a file says of
// itself.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/tensor_file.h"

namespace ebb::io {

struct TensorHeader {
  std::vector<TensorEntry> entries;  // by place in the data
  std::map<std::string, std::string> metadata;
  int64_t data_start = 0;  // bytes of the file before the data
};

TensorHeader read_safetensors(const ReadFile& file);
// Of torch.save, by its first bytes.
bool is_torch(const ReadFile& file);
TensorHeader read_torch(const ReadFile& file, const TensorFileOptions& options);

// A dtype as safetensors name it.
struct FileDType {
  std::string_view name;
  int bits;
  std::optional<DType> loads_as;  // what load() makes of it
  bool same_bytes;                // the tensor that load() gives has the file's bytes
};
const FileDType* find_file_dtype(std::string_view name);  // null: there is none
// The file's name of a dtype of ours: "BF16".
std::string_view safetensors_dtype(DType dtype);

using HasTensor = std::function<bool(const std::string& name)>;
// Of weights in fp8 and int8 whose numbers a scale alone does not give: why; "" of all others.
std::string why_not_read(const TensorEntry& entry, const HasTensor& has);
// Gives weights in fp8 and int8 the scales that stand beside them, and takes what says how they
// were made out of the list: ComfyUI's `scale_weight` and `scaled_fp8`, `weight_scale` and
// `comfy_quant`. Both may be in different ones of `files`. Throws Error for scales that do not fit.
void take_scales(std::vector<TensorEntry>& entries, const std::vector<std::string>& files);
// Numbers of fp8 and int8, exactly; times `scale`, which has one or one a row.
Tensor from_fp8(const TensorEntry& entry, std::span<const uint8_t> bytes);
Tensor from_int8(const TensorEntry& entry, std::span<const uint8_t> bytes);
void apply_scale(Tensor& t, const Tensor& scale);

}  // namespace ebb::io
