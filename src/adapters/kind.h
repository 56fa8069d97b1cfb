// AdapterKind: one way to write a change of a weight as a few small tensors.
// src/adapters/kinds/<k>.cpp defines `const AdapterKind& ebb::adapters::kinds::<k>()`.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "ir/graph.h"

namespace ebb::adapters {

// A weight as kinds see it, [out, in, taps]: a filter [O,I,KH,KW] has KH KW taps, a matrix one, and
// a vector has one input and one tap.
struct WeightSize {
  int64_t out = 1, in = 1, taps = 1;
  int64_t numel() const { return out * in * taps; }
  bool operator==(const WeightSize&) const = default;
};
WeightSize weight_size(const Shape& shape);

// A tensor of a module, as the file has it.
struct ModuleTensor {
  std::string name;
  Shape shape;
};

// The tensors of one changed layer by their roles, and checks of their shapes.
class Module {
 public:
  Module(std::string stem, std::string file) : stem_(std::move(stem)), file_(std::move(file)) {}
  const std::string& stem() const { return stem_; }  // the layer's name in the file
  const std::map<std::string, ModuleTensor, std::less<>>& tensors() const { return tensors_; }
  bool add(const std::string& role, ModuleTensor tensor);  // false: it has one in this role
  bool has(std::string_view role) const { return tensors_.contains(role); }
  const Shape& shape(std::string_view role) const;  // throws Error where there is none
  // Size `dim`; 1 beyond the rank.
  int64_t size(std::string_view role, int64_t dim) const;
  // Elements of a row of a tensor that is read as a matrix of shape()[0] rows.
  int64_t columns(std::string_view role) const;
  // Throws Error unless the tensor has so many rows and columns, read so.
  void expect(std::string_view role, int64_t rows, int64_t columns, const WeightSize& w) const;
  void expect_numel(std::string_view role, int64_t numel, const WeightSize& w) const;
  [[noreturn]] void fail_shape(std::string_view role, const std::string& rule,
                               const WeightSize& w) const;

  std::optional<double> alpha;   // as the file says, or its metadata
  bool rank_stabilised = false;  // alpha is divided by the root of the rank

 private:
  std::string stem_, file_;
  std::map<std::string, ModuleTensor, std::less<>> tensors_;
};

struct DeltaInputs {
  WeightSize size;
  Value scale;   // f32[1]: strength times alpha / rank
  Value weight;  // f32[out, in, taps] as the file has it; only of kinds that read it
  std::function<Value(std::string_view role)> tensor;  // f32; none where the module has none
  bool has(std::string_view role) const { return static_cast<bool>(tensor(role)); }
};

// Whose names a file has that is written.
enum class FileNames : uint8_t { others, kohya, peft };
// "kohya", "peft"; those that can be written, for flags, and back. Throws Error.
std::vector<std::string> file_names();
FileNames parse_file_names(const std::string& name);

// A tensor that a new adapter begins with, as files have it.
struct Factor {
  std::string role;
  Shape shape;
  std::string init = "zeros";  // as nn::WeightSpec has it, so that the first change is 0
  double init_scale = 1;
};
struct FactorSizes {
  int64_t rank = 16;
  int64_t factor = -1;  // of Kronecker products: rows and columns of the first, at most; -1: any
};

struct AdapterKind {
  struct Role {
    std::string suffix;  // of a tensor's name, behind the layer's
    std::string role;
    FileNames names = FileNames::others;  // that the suffix is written with
  };
  using Tensors = std::map<std::string, Tensor, std::less<>>;  // f32, by role

  std::string name;  // "LoRA"
  std::string help;
  std::vector<Role> roles;
  std::string main;            // the role that every module with a weight's change has
  std::string bias_role = {};  // a change of the bias that is there as it is
  bool reads_weight = false;
  // Throws Error for shapes that do not go together or do not fit the weight. Returns what alpha is
  // divided by; 0: alpha does not count.
  int64_t (*rank)(const Module&, const WeightSize&) = nullptr;
  // What of the module the formula needs in another form, by role; computed once.
  Tensors (*computed)(const Module&, const Tensors&, const WeightSize&) = nullptr;
  std::vector<std::string> (*computed_from)(const Module&) = nullptr;  // those roles
  // The change of the weight: its elements in the order of [out, in, taps].
  Value (*delta)(const DeltaInputs&) = nullptr;
  // Of kinds that can be trained: the factors for a weight of this shape in files.
  std::vector<Factor> (*factors)(const FactorSizes&, const Shape& weight) = nullptr;
  bool has_factor = false;                     // FactorSizes::factor says something
  std::string kohya_module = "lycoris.kohya";  // that trains it, in the metadata of files
};

const std::vector<const AdapterKind*>& all_kinds();

// sum over i, j of outer[out,i] mid[i,j,taps] inner[j,in]: a filter in Tucker form (Cong et al.
// 2022, LyCORIS), [out, in, taps].
Value tucker(Value outer, Value mid, Value inner, const WeightSize& size);
// [cols, rows] of a tensor with the elements of [rows, cols].
Value transposed(Value a, int64_t rows, int64_t cols);
// a [M,K] b [K,N] of tensors in any shapes with these elements.
Value product(Value a, Value b, int64_t m, int64_t k, int64_t n);

}  // namespace ebb::adapters
