// Elementwise and reducing passes over broadcast tensors, prepared once and run many times.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"
#include "ir/expr.h"

namespace ebb::cpu {

// out_k[i] = result k of `expr` at index i of `shape`. An output may be the memory of an input of
// the same type.
class MapPass {
 public:
  MapPass(const Expr& expr, const Shape& shape, std::vector<Type> in, std::vector<DType> out);
  ~MapPass();
  int64_t workspace() const;  // bytes
  void run(std::span<void* const> in, std::span<void* const> out, void* workspace) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// out_k = scale * sum (or the maximum) over the dims of result k, in the order of the kept dims.
// Sums do not depend on the number of threads.
class ReducePass {
 public:
  struct Options {
    std::vector<int64_t> dims;
    bool maximum = false;
    double scale = 1;
    std::vector<DType> out;  // by result
  };
  ReducePass(const Expr& expr, const Shape& shape, std::vector<Type> in, const Options& options);
  ~ReducePass();
  int64_t workspace() const;
  void run(std::span<void* const> in, std::span<void* const> out, void* workspace) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace ebb::cpu
