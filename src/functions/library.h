// Library: functions compiled for a device, and called with the memory of another program.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/inline_vector.h"
#include "functions/attributes.h"
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
  Prepared(const Function& f, std::span<const TensorRef> in, const Attributes& attributes,
           const Context& context);

  const std::vector<Type>& results() const { return results_; }  // dense
  int64_t workspace_bytes() const { return function_ ? function_->workspace_bytes() : 0; }
  // An operand has no elements: the results are zeros, which the caller writes; nothing runs.
  bool empty() const { return !function_; }
  // The strides of this operand are not served: the caller gives a dense copy.
  bool wants_copy(size_t operand) const { return wants_copy_[operand]; }

  // Before a run that is recorded in a graph of the device, which then holds addresses of what this
  // keeps there.
  void set_recorded() const { recorded_.store(true, std::memory_order_relaxed); }
  bool recorded() const { return recorded_.load(std::memory_order_relaxed); }

  // Enqueues the work on `stream`, as CompiledFunction::run; addresses of absent operands are
  // ignored. What was enqueued needs nothing of the host's.
  void run(std::span<void* const> operands, std::span<void* const> results, void* workspace,
           void* stream) const;

 private:
  std::shared_ptr<Device> device_;
  std::vector<size_t> present_;  // operands that are inputs of the function, in order
  std::vector<bool> wants_copy_;
  std::vector<Type> results_;
  std::unique_ptr<const CompiledFunction> function_;
  mutable std::atomic<bool> loaded_ = false;  // its code, by the first run
  mutable std::atomic<bool> recorded_ = false;
};

// What a prepared function depends on.
class Key {
 public:
  Key(const Function& f, std::span<const TensorRef> in, const Attributes& attributes);
  bool operator==(const Key& o) const {
    return hash_ == o.hash_ && std::ranges::equal(words_, o.words_);
  }
  struct Hash {
    size_t operator()(const Key& k) const { return k.hash_; }
  };

 private:
  void put(uint64_t word) {
    words_.push_back(word);
    constexpr uint64_t odd = 0x9e3779b97f4a7c15ULL;
    hash_ = (hash_ ^ word) * odd;
    hash_ ^= hash_ >> 32;
  }
  InlineVector<uint64_t, 48> words_;
  uint64_t hash_ = 0;
};

// Keeps the functions that were used last. What it lets go of may still be running: their code
// belongs to the device, which waits for its work before it frees memory. Those that were recorded
// in a graph, whose end nobody tells, are kept for good, and not counted.
class Library {
 public:
  static constexpr size_t most_kept = 1024;
  explicit Library(Context context, size_t most = most_kept)
      : context_(std::move(context)), most_(most) {
    // reads the presets once, not for each function
    if (!context_.tuner) context_.tuner = std::make_shared<Tuner>();
  }

  // Made at the first call for these types, strides and attributes. Threads may call at once.
  // Throws Error that names what does not fit.
  std::shared_ptr<const Prepared> prepare(const Function& f, std::span<const TensorRef> in,
                                          const Attributes& attributes);
  size_t kept() const;

 private:
  struct Entry {
    std::shared_ptr<const Prepared> prepared;
    uint64_t used = 0;  // the number of its last use
  };
  std::shared_ptr<const Prepared> known(const Key& key);
  std::shared_ptr<const Prepared> took_out_oldest();

  Context context_;
  size_t most_;
  std::mutex making_;         // one at a time
  mutable std::mutex mutex_;  // of all below
  uint64_t uses_ = 0;
  std::unordered_map<Key, Entry, Key::Hash> prepared_;
};

}  // namespace ebb::functions
