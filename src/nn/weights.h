// Weights: initialisation of a network's tensors, and their layout in checkpoint files.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "ir/graph.h"

namespace ebb::nn {

// A param or state of a network.
struct Weight {
  std::string name;
  Shape shape;  // as the network has it
  ParamInfo info;
  bool trained = true;
};
// Those of a graph in which only a network was built, in the order they were made.
std::vector<Weight> weights_of(const Graph& g);
// Number of elements.
int64_t count_elements(const std::vector<Weight>& weights);

// ---- starting values -----------------------------------------------------------------------

// Drawn by the rule of info.init; a function of (seed, name), not of the order of calls. Rows of
// q, k and v are drawn in the order of files. Rules:
// zeros, ones, normal, uniform, and sin_cos_2d, DiT's table [1,side*side,D] of positions.
Tensor initial_tensor(const Weight& w, uint64_t seed);
std::map<std::string, Tensor> initial_tensors(const std::vector<Weight>& weights, uint64_t seed);

// ---- checkpoint files ----------------------------------------------------------------------

using Tensors = std::map<std::string, Tensor>;
using FileShapes = std::map<std::string, Shape>;  // tensor names of a file

// The entries whose name starts with `prefix`, without it.
FileShapes without_prefix(const FileShapes& tensors, std::string_view prefix);

Shape file_shape(const Weight& w);
// f32 in the network's layout from a tensor as files have it, and back. Sizes of 1 at the end of
// a file's shape do not count (linears that are stored as 1x1 convolutions).
Tensor from_file(const Weight& w, const Tensor& t);
Tensor to_file(const Weight& w, const Tensor& t);

struct FileTensors {
  FileShapes shapes;                                   // of all the tensors in the file
  std::function<Tensor(const std::string&)> load;      // by a name of `shapes`
  std::string prefix;                                  // of the network's names in the file
  std::function<bool(std::string_view)> ignored = {};  // names, without prefix, not to be missed
};
// Every weight by name, in the network's layout. Binding is total: missing, unused and misshapen
// tensors are one Error that lists up to ten of each. States that a file lacks are computed.
Tensors load_weights(const std::vector<Weight>& weights, const FileTensors& file);

}  // namespace ebb::nn
