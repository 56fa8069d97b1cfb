// Library: functions compiled for a device, and called with the memory of another program.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "functions/function.h"
#include "runtime/compiled_function.h"

namespace ebb::functions {

// A tensor of the caller's. Strides count elements.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::f32;
  bool present = false;  // of an optional operand
  std::span<const int64_t> sizes, strides;
};

// A function for operands of some types, strides and attributes.
class Prepared {
 public:
  Prepared(const Function& f, std::span<const TensorRef> in,
           std::span<const AttributeValue> attributes, const Context& context);

  const std::vector<Type>& results() const { return results_; }  // dense
  int64_t workspace_bytes() const { return function_ ? function_->workspace_bytes() : 0; }
  // An operand has no elements: the results are zeros, which the caller writes; nothing runs.
  bool empty() const { return !function_; }
  // The strides of this operand are not served: the caller gives a dense copy.
  bool wants_copy(size_t operand) const { return wants_copy_[operand]; }

  // Enqueues the work on `stream`, as CompiledFunction::run; addresses of absent operands are
  // ignored.
  void run(std::span<void* const> operands, std::span<void* const> results, void* workspace,
           void* stream) const;

 private:
  std::shared_ptr<Device> device_;
  std::vector<size_t> present_;  // operands that are inputs of the function, in order
  std::vector<bool> wants_copy_;
  std::vector<Type> results_;
  std::unique_ptr<const CompiledFunction> function_;
  mutable std::atomic<bool> loaded_ = false;  // its code, by the first run
};

class Library {
 public:
  explicit Library(Context context) : context_(std::move(context)) {}

  // Made at the first call for these types, strides and attributes, and kept. Threads may call at
  // once. Throws Error that names what does not fit.
  const Prepared& prepare(const Function& f, std::span<const TensorRef> in,
                          std::span<const AttributeValue> attributes);

 private:
  Context context_;
  std::mutex making_;  // one at a time
  std::shared_mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<const Prepared>> prepared_;
};

}  // namespace ebb::functions
