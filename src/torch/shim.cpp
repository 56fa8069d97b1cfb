#include "torch/shim.h"

#include <dlfcn.h>

#include <array>
#include <string>

#include "base/error.h"

namespace ebb::torch {
namespace {

class Finder {
 public:
  // Handles of libraries that are loaded already, whose names are not global.
  Finder() {
    constexpr std::array names = {"libtorch_cpu.so", "libtorch_cuda.so"};
    for (size_t i = 0; i < names.size(); ++i)
      libraries_[i] = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    require(libraries_[0] != nullptr, "torch: this process has not loaded libtorch_cpu.so");
  }
  template <class F>
  void optional(F*& f, const char* name) {
    f = nullptr;
    for (void* library : libraries_)
      if (library != nullptr && f == nullptr) f = reinterpret_cast<F*>(dlsym(library, name));
  }
  template <class F>
  void find(F*& f, const char* name) {
    optional(f, name);
    if (f == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
  }
  const std::string& missing() const { return missing_; }

 private:
  std::array<void*, 2> libraries_ = {};
  std::string missing_;
};

Shim found() {
  Shim s;
  Finder in;
  in.find(s.library_init_impl, "aoti_torch_library_init_impl");
  in.find(s.library_impl, "torch_library_impl");
  in.find(s.get_data_ptr, "aoti_torch_get_data_ptr");
  in.find(s.get_dim, "aoti_torch_get_dim");
  in.find(s.get_sizes, "aoti_torch_get_sizes");
  in.find(s.get_strides, "aoti_torch_get_strides");
  in.find(s.get_dtype, "aoti_torch_get_dtype");
  in.find(s.get_device_type, "aoti_torch_get_device_type");
  in.find(s.get_device_index, "aoti_torch_get_device_index");
  in.find(s.empty_strided, "aoti_torch_empty_strided");
  in.find(s.copy, "aoti_torch_copy_");
  in.find(s.zero, "aoti_torch_zero_");
  in.find(s.delete_tensor, "aoti_torch_delete_tensor_object");
  in.find(s.new_list, "torch_new_list_reserve_size");
  in.find(s.list_size, "torch_list_size");
  in.find(s.list_item, "torch_list_get_item");
  in.find(s.list_push_back, "torch_list_push_back");
  in.find(s.delete_list, "torch_delete_list");
  in.find(s.string_length, "torch_string_length");
  in.find(s.string_text, "torch_string_c_str");
  in.find(s.delete_string, "torch_delete_string");
  in.find(s.dtype_f32, "aoti_torch_dtype_float32");
  in.find(s.dtype_bf16, "aoti_torch_dtype_bfloat16");
  in.find(s.dtype_f16, "aoti_torch_dtype_float16");
  in.find(s.device_type_cpu, "aoti_torch_device_type_cpu");
  in.find(s.device_type_cuda, "aoti_torch_device_type_cuda");
  in.optional(s.current_cuda_stream, "aoti_torch_get_current_cuda_stream");
  require(in.missing().empty(), "torch: this version is older than 2.10 (it lacks ", in.missing(),
          ")");
  return s;
}

}  // namespace

const Shim& shim() {
  static const Shim s = found();
  return s;
}

void check(Status status, const char* what) {
  require(status == 0, "torch: ", what, " failed (status ", status, ")");
}

}  // namespace ebb::torch
