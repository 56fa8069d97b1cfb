// Built as a library called libtorch_cpu.so, so that torch/shim.cpp finds it as it finds torch's.
#include "stand_in_torch.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <string>

using namespace ebb::torch;  // NOLINT: every line is about it

namespace {
int64_t alive = 0;  // NOLINT
// So many allocations and writes of zeros succeed before one fails; negative: all do.
int64_t before_failure = -1;  // NOLINT
Status next_status() { return before_failure < 0 || before_failure-- > 0 ? 0 : 1; }
std::map<std::string, BoxedKernel>& kernels() {
  static std::map<std::string, BoxedKernel> all;
  return all;
}
struct Counted {
  Counted() { ++alive; }
  Counted(const Counted&) { ++alive; }
  Counted& operator=(const Counted&) = default;
  ~Counted() { --alive; }
};
}  // namespace

namespace ebb::torch {
struct TensorObject : Counted {
  std::vector<int64_t> sizes, strides;
  int32_t dtype = 0, device_type = 0;
  std::shared_ptr<char> memory;
  int64_t offset = 0;
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t s : sizes) n *= s;
    return n;
  }
  char* data() const { return memory.get() + offset; }
};
struct ListObject : Counted {
  std::vector<StackValue> items;
};
struct StringObject : Counted {
  std::string text;
};
struct LibraryObject {};
}  // namespace ebb::torch

static TensorHandle made(const int64_t* sizes, const int64_t* strides, size_t rank, int32_t dtype,
                         int32_t device) {
  auto* t = new TensorObject;
  t->sizes.assign(sizes, sizes + rank);
  t->strides.assign(strides, strides + rank);
  t->dtype = dtype;
  t->device_type = device;
  const auto bytes = static_cast<size_t>(t->count()) * 4 + 256;
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  t->memory = std::shared_ptr<char>(static_cast<char*>(memory), std::free);
  return t;
}

extern "C" {
BoxedKernel stand_in_kernel(const char* name) {
  const auto it = kernels().find(name);
  return it == kernels().end() ? nullptr : it->second;
}
TensorHandle stand_in_tensor(const std::vector<int64_t>* sizes, int32_t dtype, int32_t device) {
  std::vector<int64_t> strides(sizes->size(), 1);
  for (size_t d = sizes->size(); d-- > 1;) strides[d - 1] = strides[d] * (*sizes)[d];
  return made(sizes->data(), strides.data(), sizes->size(), dtype, device);
}
float* stand_in_data(TensorHandle t) { return reinterpret_cast<float*>(t->data()); }
void stand_in_move_data(TensorHandle t, int64_t bytes) { t->offset += bytes; }
void stand_in_set_strides(TensorHandle t, const std::vector<int64_t>* s) { t->strides = *s; }
StringHandle stand_in_string(const char* text) {
  auto* s = new StringObject;
  s->text = text;
  return s;
}
int64_t stand_in_alive() { return alive; }
void stand_in_fail_after(int64_t successes) { before_failure = successes; }

Status aoti_torch_library_init_impl(const char*, const char*, const char*, uint32_t,
                                    LibraryHandle* out) {
  static LibraryObject library;
  *out = &library;
  return 0;
}
Status torch_library_impl(LibraryHandle, const char* name, BoxedKernel kernel, uint64_t) {
  kernels()[name] = kernel;
  return 0;
}
Status aoti_torch_get_data_ptr(TensorHandle t, void** out) {
  *out = t->data();
  return 0;
}
Status aoti_torch_get_dim(TensorHandle t, int64_t* out) {
  *out = static_cast<int64_t>(t->sizes.size());
  return 0;
}
Status aoti_torch_get_sizes(TensorHandle t, int64_t** out) {
  *out = t->sizes.data();
  return 0;
}
Status aoti_torch_get_strides(TensorHandle t, int64_t** out) {
  *out = t->strides.data();
  return 0;
}
Status aoti_torch_get_dtype(TensorHandle t, int32_t* out) {
  *out = t->dtype;
  return 0;
}
Status aoti_torch_get_device_type(TensorHandle t, int32_t* out) {
  *out = t->device_type;
  return 0;
}
Status aoti_torch_get_device_index(TensorHandle, int32_t* out) {
  *out = -1;
  return 0;
}
Status aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides,
                                int32_t dtype, int32_t device, int32_t, TensorHandle* out) {
  if (const Status failed = next_status()) return failed;
  *out = made(sizes, strides, static_cast<size_t>(rank), dtype, device);
  return 0;
}
Status aoti_torch_copy_(TensorHandle to, TensorHandle from, int32_t) {
  for (int64_t i = 0; i < to->count(); ++i) {
    int64_t rest = i, at_from = 0, at_to = 0;
    for (size_t d = to->sizes.size(); d-- > 0; rest /= to->sizes[d]) {
      at_from += rest % to->sizes[d] * from->strides[d];
      at_to += rest % to->sizes[d] * to->strides[d];
    }
    stand_in_data(to)[at_to] = stand_in_data(from)[at_from];
  }
  return 0;
}
Status aoti_torch_zero_(TensorHandle t) {
  if (const Status failed = next_status()) return failed;
  for (int64_t i = 0; i < t->count(); ++i) stand_in_data(t)[i] = 0;
  return 0;
}
Status aoti_torch_delete_tensor_object(TensorHandle t) {
  delete t;
  return 0;
}
Status torch_new_list_reserve_size(size_t, ListHandle* out) {
  *out = new ListObject;
  return 0;
}
Status torch_list_size(ListHandle l, size_t* out) {
  *out = l->items.size();
  return 0;
}
Status torch_list_get_item(ListHandle l, size_t i, StackValue* out) {
  *out = stack_value(new TensorObject(*as<TensorHandle>(l->items[i])));
  return 0;
}
Status torch_list_push_back(ListHandle l, StackValue v) {
  l->items.push_back(v);
  return 0;
}
Status torch_delete_list(ListHandle l) {
  for (const StackValue v : l->items) delete as<TensorHandle>(v);
  delete l;
  return 0;
}
Status torch_string_length(StringHandle s, size_t* out) {
  *out = s->text.size();
  return 0;
}
Status torch_string_c_str(StringHandle s, const char** out) {
  *out = s->text.c_str();
  return 0;
}
Status torch_delete_string(StringHandle s) {
  delete s;
  return 0;
}
int32_t aoti_torch_dtype_float32() { return 6; }
int32_t aoti_torch_dtype_bfloat16() { return 15; }
int32_t aoti_torch_dtype_float16() { return 5; }
int32_t aoti_torch_device_type_cpu() { return 0; }
int32_t aoti_torch_device_type_cuda() { return 1; }
}
