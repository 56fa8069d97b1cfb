// WeightStore: the weights of a model, once on the host and once on every device, whatever the
// number of plans that read them. docs/weights.md says how.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "passes/prepare.h"
#include "runtime/context.h"

namespace ebb {

// A weight as it lies on the host, and what a network makes of it.
struct StoredWeight {
  Type type;       // as stored
  ReadBytes read;  // its bytes; may throw Error
  Tensor host;     // the same in memory, perhaps a mapped file's, or undefined
  // Adds to a graph the weight as the network reads it.
  std::function<Value(Value stored)> decode = [](Value v) { return v; };
};

// One in memory that is as the network reads it.
StoredWeight stored_tensor(const Tensor& host);

class WeightStore {
 public:
  using Weights = std::map<std::string, StoredWeight, std::less<>>;  // by their names in graphs
  explicit WeightStore(Weights weights) : weights_(std::move(weights)) {}

  const Weights& weights() const { return weights_; }
  // `g` with the weights that it does not update as they are stored, and what they are decoded by.
  // Throws Error for those of another type than they decode to.
  Graph as_stored(const Graph& g) const;
  // Whether a source of such a graph is a weight of this store.
  bool holds(const Graph& g, const Source& s) const;

  // The values of a prepare graph in the device's memory: those that are there, and those that are
  // read and computed now. The same memory for the same key. Throws Error.
  std::vector<Tensor> get(const PreparedGraph& g, const Context& context);
  // Bytes that get() would take of the device's memory and keep.
  int64_t missing_bytes(const PreparedGraph& g, const Device& device) const;
  // Bytes that get() needs beyond these while it works: for the files' own tensors and for what
  // lies between these and a result, less what it takes only later.
  int64_t working_bytes(const PreparedGraph& g, const Device& device) const;
  // Bytes of the device's memory that are held for plans to come, too.
  int64_t held_bytes(const Device& device) const;
  // Lets go of what no plan has.
  void drop_unused();

 private:
  class Preparer;
  using Values = std::map<std::string, Tensor, std::less<>>;  // by key
  // A value to be computed, and the bytes that this takes beside the result.
  struct Missing {
    const PreparedValue* value;
    int64_t working = 0;
  };
  // Those that `values` lacks, in the order in which they are computed; with the lock held.
  std::vector<Missing> missing_computed(const PreparedGraph& g, const Values* values,
                                        const Device& device) const;
  // Those on the device, or null; with the lock held.
  const Values* values_on(const Device& device) const;
  bool in_place(const std::string& name, const Device& device) const;
  static void drop(Values& values, const std::set<std::string>& kept);

  const Weights weights_;
  mutable std::mutex mutex_;
  std::map<std::shared_ptr<Device>, Values> on_device_;
};

}  // namespace ebb
