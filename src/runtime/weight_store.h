// WeightStore: the weights of a model, once on the host and once on every device, whatever the
// number of plans that read them. docs/weights.md says how.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "passes/schedule/prepare.h"
#include "runtime/context.h"
#include "runtime/weight_change.h"

namespace ebb {

// What plans take of the device's memory for weights: what is not there yet.
struct WeightNeeds {
  const void* store = nullptr;            // plans of one store share values of one key
  std::map<std::string, int64_t> values;  // bytes, by key
  // Beyond these while they are prepared: for the files' own tensors and for what lies between
  // these and a result, less what is taken only later.
  int64_t working = 0;

  int64_t bytes() const;  // of all values
};

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

  // Puts the changes of adapters in place of those before. Plans take them with their next run,
  // which computes what is concerned into the memory that it has already; other weights are not
  // touched. keep: the devices keep what a change of strengths needs again; without, each lets go
  // of it with its next get(). Throws Error for changes of weights that are none of these.
  void change(WeightChanges changes, bool keep = false);
  bool is_changed(std::string_view weight) const;
  // Another number after every change().
  uint64_t version() const { return version_; }
  // A weight with its changes, on the host: f32, in the shape of the stored weight.
  Tensor changed(const std::string& name, const Context& context) const;

  // The values of a prepare graph in the device's memory: those that are there, and those that are
  // read and computed now. The same memory for the same key. Throws Error.
  std::vector<Tensor> get(const PreparedGraph& g, const Context& context);
  // What get() would take.
  WeightNeeds needs(const PreparedGraph& g, const Device& device) const;
  // Bytes of the device's memory that are held for plans to come, too.
  int64_t held_bytes(const Device& device) const;
  // Lets go of what no plan has on a device, on whose thread this is called: a file's mapped pages
  // leave the process's memory, too. Other devices, which may be in the middle of a run, are left
  // alone.
  void drop_unused(const Device& device);
  // Lets go of what change() asks a device no more to keep, as its next get() does.
  void drop_outdated(const Device& device);

 private:
  class Preparer;
  struct Computed {
    Tensor tensor;
    std::string changes;  // of the weights that it was computed from; "": none
    bool shared = false;  // the host's own, in place; the buffer counts the plans that have it
  };
  using Values = std::map<std::string, Computed, std::less<>>;  // by key
  struct OnDevice {
    Values values;
    std::unique_ptr<ChangedWeights> changed;
    uint64_t keeps = 0;  // keeps_ when `changed` was made
  };
  // A value to be computed, and the bytes that this takes beside the result.
  struct Missing {
    const PreparedValue* value;
    int64_t working = 0;
    std::string changes;
  };
  // Those that `values` lacks or has with other changes, in the order in which they are computed;
  // with the lock held, as all of these.
  std::vector<Missing> missing_computed(const PreparedGraph& g, const Values* values,
                                        const Device& device) const;
  std::map<std::string, int64_t> missing_values(const PreparedGraph& g, const Values* values,
                                                const Device& device) const;
  int64_t working_bytes(const PreparedGraph& g, const Values* values, const Device& device) const;
  OnDevice* on(const Device& device);  // or null
  void drop_outdated(OnDevice& on) const;
  // Those on the device, or null.
  const Values* values_on(const Device& device) const;
  bool in_place(const std::string& name, const Device& device) const;
  // The changes of a weight as text; "" if it has none.
  std::string_view changes_of(std::string_view weight) const;
  // Of the weights that each value of g.prepare depends on.
  std::vector<std::string> changes_by_value(const PreparedGraph& g) const;
  const PreparedExpression& expression_for(const PreparedGraph& g, const PreparedValue& v);
  ChangedWeights::Source changed_source(const std::string& name) const;
  void drop(Values& values, const std::set<std::string>& kept) const;

  const Weights weights_;
  mutable std::mutex mutex_;
  WeightChanges changes_;
  std::map<std::string, std::string, std::less<>> change_texts_;        // by weight
  std::map<std::string, PreparedExpression, std::less<>> expressions_;  // by key, of changed values
  bool keep_ = false;
  uint64_t keeps_ = 0;  // another number after a change() that keeps nothing
  std::atomic<uint64_t> version_ = 0;
  std::map<std::shared_ptr<Device>, OnDevice> on_device_;
};

}  // namespace ebb
