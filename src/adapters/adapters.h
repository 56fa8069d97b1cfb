// Adapters: files of LoRAs and their relatives on the weights of a pipeline's networks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "adapters/adapter_file.h"
#include "adapters/block_weights.h"
#include "adapters/targets.h"

namespace ebb::adapters {

// A file and how strongly it is applied.
struct AdapterUse {
  std::shared_ptr<const AdapterFile> file;
  double strength = 1;       // of the U-Net's changes
  double text_strength = 1;  // of the text encoders'
  BlockWeights blocks = {};
};

// What of a file found a weight.
struct Fit {
  size_t matched = 0;                  // modules
  std::vector<size_t> by_network;      // likewise, of each network
  std::vector<std::string> unmatched;  // their stems, and tensors of no kind
  // "3 of 264 layers fit no network here: 'a' (nearest: 'b'), ..."; "" if all fit.
  std::string unmatched_text(const Targets& targets) const;
};

// Checks all names and shapes. Throws Error "adapter: ..." for shapes that do not go together or do
// not fit the weights, and where no module fits.
Fit fit_of(const AdapterFile& file, const std::vector<Network>& networks, const Targets& targets);

// The changes of each network, in the order of `uses`, which is that of application. What has
// strength 0 makes none.
std::vector<WeightChanges> changes_of(const std::vector<AdapterUse>& uses,
                                      const std::vector<Network>& networks, const Targets& targets);

// fit_of() of all files: a warning for each that fits in part. Throws Error.
std::vector<std::string> check(const std::vector<AdapterUse>& uses,
                               const std::vector<Network>& networks);

// After apply(): which weight has numbers beyond `dtype`, and the files that change it; "": none.
std::string overflow_of(const std::vector<AdapterUse>& uses, const std::vector<Network>& networks,
                        DType dtype, const Context& context);

// Gives all networks' stores the changes of these files, in place of those before: other strengths
// or other files compile nothing that was compiled before, if `keep` holds it. What fits no network
// has no effect. Throws Error for what check() does, and then changes nothing.
void apply(const std::vector<AdapterUse>& uses, const std::vector<Network>& networks,
           bool keep = false);

}  // namespace ebb::adapters
