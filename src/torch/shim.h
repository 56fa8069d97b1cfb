// The C functions of PyTorch that this library calls, found by name in the libraries of the torch
// that the process has loaded: nothing of torch is needed to build, and one build serves all
// versions from 2.10 on. They are torch's stable C interface (torch/csrc/stable/c/shim.h and
// torch/csrc/inductor/aoti_torch/c/shim.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ebb::torch {

using Status = int32_t;  // 0: success
struct TensorObject;
struct ListObject;
struct StringObject;
struct LibraryObject;
using TensorHandle = TensorObject*;
using ListHandle = ListObject*;
using StringHandle = StringObject*;
using LibraryHandle = LibraryObject*;

// A value on the stack of a boxed kernel: the bits of a number or of a handle. An optional value is
// the address of one on the heap, or null.
using StackValue = uint64_t;
using BoxedKernel = void (*)(StackValue* stack, uint64_t arguments, uint64_t results);

template <class T>
T as(StackValue v) {
  T out;
  static_assert(sizeof(T) <= sizeof v);
  std::memcpy(&out, &v, sizeof out);
  return out;
}
template <class T>
StackValue stack_value(T v) {
  StackValue out = 0;
  std::memcpy(&out, &v, sizeof v);
  return out;
}

struct Shim {
  Status (*library_init_impl)(const char* space, const char* key, const char* file, uint32_t line,
                              LibraryHandle* out);
  Status (*library_impl)(LibraryHandle, const char* name, BoxedKernel, uint64_t version);

  Status (*get_data_ptr)(TensorHandle, void** out);
  Status (*get_dim)(TensorHandle, int64_t* out);
  Status (*get_sizes)(TensorHandle, int64_t** out);
  Status (*get_strides)(TensorHandle, int64_t** out);
  Status (*get_dtype)(TensorHandle, int32_t* out);
  Status (*get_device_type)(TensorHandle, int32_t* out);
  Status (*get_device_index)(TensorHandle, int32_t* out);
  Status (*empty_strided)(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                          int32_t device_type, int32_t device_index, TensorHandle* out);
  Status (*copy)(TensorHandle to, TensorHandle from, int32_t non_blocking);
  Status (*zero)(TensorHandle);
  Status (*delete_tensor)(TensorHandle);

  Status (*new_list)(size_t reserved, ListHandle* out);
  Status (*list_size)(ListHandle, size_t* out);
  Status (*list_item)(ListHandle, size_t index, StackValue* out);  // owned
  Status (*list_push_back)(ListHandle, StackValue);                // takes what it gets
  Status (*delete_list)(ListHandle);
  Status (*string_length)(StringHandle, size_t* out);
  Status (*string_text)(StringHandle, const char** out);
  Status (*delete_string)(StringHandle);

  int32_t (*dtype_f32)();
  int32_t (*dtype_bf16)();
  int32_t (*dtype_f16)();
  int32_t (*device_type_cpu)();
  int32_t (*device_type_cuda)();

  Status (*current_cuda_stream)(int32_t device_index, void** out);  // null: torch without CUDA
};

// Of the torch in this process, looked up once. Throws Error: no torch is loaded, or it is older
// than 2.10 (names what is missing).
const Shim& shim();

// Throws Error for a status that is not success; `what` is the function's purpose.
void check(Status status, const char* what);

}  // namespace ebb::torch
