// Weights: initialisation of a network's tensors, and their layout in checkpoint files.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "nn/weight_spec.h"

namespace ebb::nn {

// Number of elements.
int64_t count_elements(const Weights& weights);
// The names of trained weights without weight decay.
std::set<std::string> without_decay(const Weights& weights);

// ---- starting values -----------------------------------------------------------------------

// Drawn by the rule of spec.init; a function of (seed, name), not of the order of calls. Rows of
// q, k and v are drawn in the order of files. Rules:
// zeros, ones, normal, uniform, and sin_cos_2d, DiT's table [1,side*side,D] of positions.
Tensor initial_tensor(const Weight& w, uint64_t seed);
std::map<std::string, Tensor> initial_tensors(const Weights& weights, uint64_t seed);

// ---- checkpoint files ----------------------------------------------------------------------

using Tensors = std::map<std::string, Tensor>;
using FileShapes = std::map<std::string, Shape>;  // tensor names of a file

// The entries whose name starts with `prefix`, without it.
FileShapes without_prefix(const FileShapes& tensors, std::string_view prefix);

// Where a file has a weight that it does not have as the network names it.
struct FilePlace {
  std::string name;             // of the tensor
  int64_t part = 0, parts = 1;  // of so many, of the tensor's rows: q, k and v in one
  bool transposed = false;      // the file has [I,O], the network [O,I]
};
using FilePlaces = std::function<FilePlace(const std::string& weight)>;

Shape file_shape(const Weight& w);
// Throws Error for a tensor of another shape. Sizes of 1 at the end of a file's shape do not count
// (linears that are stored as 1x1 convolutions).
void check_file_shape(const Weight& w, const Type& tensor);
// Sizes [a,b,c,d] of what the file has as [a,b,c,d] and the network as [a,c,b,d]; none: both have
// the same order.
std::optional<std::array<int64_t, 4>> file_order(const Weight& w);
// f32 in the network's layout from a tensor as files have it, and back. decode() in nn/storage.h
// adds the same to a graph.
Tensor from_file(const Weight& w, const Tensor& t);
// The same of the tensor that has the weight in it.
Tensor from_file(const Weight& w, const FilePlace& place, const Tensor& t);
Tensor to_file(const Weight& w, const Tensor& t);

struct FileTensors {
  FileShapes shapes;                                   // of all the tensors in the file
  std::string prefix = {};                             // of the network's names in the file
  std::function<bool(std::string_view)> ignored = {};  // names, without prefix, not to be missed
  FilePlaces places = {};                              // names are without prefix, too
  bool alone = true;  // whether what is not under the prefix is unused, or another component's

  FilePlace place(const std::string& weight) const;  // its name with the prefix
};
// Binding is total: missing, unused and misshapen tensors are one Error that lists up to ten of
// each. Returns the states that the file lacks and that can be computed, by initial_tensor().
std::vector<const Weight*> match_weights(const Weights& weights, const FileTensors& file);
// Every weight by name, in the network's layout, checked so. `load` takes names of the file.
Tensors load_weights(const Weights& weights, const FileTensors& file,
                     const std::function<Tensor(const std::string&)>& load);

}  // namespace ebb::nn
