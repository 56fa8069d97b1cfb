// What a file of adapters says of itself, for people.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "adapters/adapter_file.h"
#include "adapters/targets.h"

namespace ebb::adapters {

struct AdapterFacts {
  std::string kinds;                 // "LoRA with DoRA"
  std::string ranks, alphas;         // "4", "4 to 16"; "" if there are none
  std::string layers;                // "192 of the U-Net, 72 of text encoder 1"
  std::vector<std::string> fits;     // "Stable Diffusion 1", "Stable Diffusion XL in part: ..."
  std::string made_for;              // the model, as the metadata say; "" if they do not
  std::vector<std::string> words;    // that bring its subject: trigger phrase or most frequent tags
  std::string strength;              // that its maker advises; "" if nobody does
  std::vector<std::string> unknown;  // tensors of no kind
};
// A model that a file may be for: its denoiser and its text encoders, of which no numbers are read.
struct Candidate {
  std::string name;  // for people
  std::vector<Network> networks;
};
Network described_network(Network::Part part, int64_t number, const Model& model,
                          const ModelConfig& config);

// `others`: what it may fit beside the published models of all families.
AdapterFacts facts_of(const AdapterFile& file, std::vector<Candidate> others = {});
// Names and texts of those that are there, in order.
std::vector<std::pair<std::string, std::string>> lines_of(const AdapterFacts& facts);

}  // namespace ebb::adapters
