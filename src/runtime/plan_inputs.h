// PlanInputs: the inputs of a plan in its device's memory. Small ones lie side by side in one block
// with an image of it on the host, so that a run copies them all at once, however many there are.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "ir/graph.h"

namespace ebb {

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

// Whether an input is copied with others; where it is larger, a copy's own cost counts for little.
inline bool is_small_input(const Type& type) {
  constexpr int64_t largest = 4096;  // bytes
  return type.bytes() <= largest;
}

class PlanInputs {
 public:
  // `take` gives memory of the device, of so many bytes.
  using Take = std::function<std::shared_ptr<Buffer>(int64_t bytes)>;
  PlanInputs() = default;
  PlanInputs(const Graph& g, const Take& take);

  // The memory of an input, by its index in g.sources(); not defined for other sources.
  Tensor at(size_t source) const;
  // Copies the inputs of one run to the device. Throws Error unless every one is given, here or to
  // keep(), and has its type, and for names that `g` has no source of.
  void load(const NamedTensors& inputs, const Graph& g, Device& device);
  // Copies a value that every later load() which does not give this input takes. Throws Error.
  void keep(std::string_view name, const Tensor& value, Device& device);
  bool keeps() const;  // any value
  // Keeps the values that `other` keeps.
  void keep_those_of(const PlanInputs& other, Device& device);

 private:
  struct Input {
    std::string name;
    size_t source = 0;
    Tensor memory = {};   // on the device
    int64_t offset = -1;  // in the block; -1: has memory of its own
    bool kept = false;
  };
  void put(const Input& input, const Tensor& value, Device& device);

  std::vector<Input> inputs_;
  Tensor block_, host_;  // u8; the host's memory is the device's own where that lies on the host
};

}  // namespace ebb
