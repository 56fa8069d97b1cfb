// What the derived tests share: the cases, their inputs, and guarded memory.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "ir/kernel.h"
#include "ir/op.h"
#include "reference.h"

namespace ebb::test {

// One op on one example, all its float inputs of one dtype where that is not f32.
struct Case {
  const OpDef* op = nullptr;
  Example example;
  DType dtype = DType::f32;
  const Kernel* kernel = nullptr;  // of kernel cases
  std::string backend = "cpu";     // that it runs on
  bool aligned = true;             // else its arrays begin one element past a boundary

  std::string name() const;     // op__example[__dtype__kernel]
  Signature signature() const;  // with output types
};

void PrintTo(const Case& c, std::ostream* out);  // for failures

inline std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  return info.param.name();
}

std::vector<Case> all_cases();  // every op x example that is no bench case
// x dtype x kernel. Those of the CPU support the case; those of another backend may have no device
// to ask, so their tests do. f16 is for accelerators only.
std::vector<Case> kernel_cases(const std::string& backend);

// The inputs: a function of the case's name. Floats are uniform in [low, high), rounded through
// their dtype; integers in [0, integers).
std::vector<RefArray> inputs_of(const Case& c);
// Uniform in [-1, 1), a function of `key`.
std::vector<double> noise(size_t count, std::string_view key);

// One use of the op in a graph; inputs are called x0, x1, ...
struct Use {
  Graph graph;
  std::vector<Value> in, out;
};
std::unique_ptr<Use> use_of(const Case& c);

// loss = sum_k sum(w_k * y_k) with random w_k, and its gradients.
struct Loss {
  std::unique_ptr<Use> use;
  Graph backward;    // outputs loss, grad.x0, ...
  RefInputs inputs;  // x0, ... and w0, ...
  std::vector<std::string> wrt;
};
Loss loss_of(const Case& c);
bool has_gradient(const Case& c);  // else the list in derived.cpp has the reason

// How far a result moves, at most over the array, when the inputs move by one f32 rounding unit,
// divided by that unit. `outputs` computes the results; its key is "" for the exact ones, else it
// may move what comes between by that unit too.
using Results =
    std::function<std::vector<RefArray>(const std::vector<RefArray>&, std::string_view key)>;
std::vector<double> conditions_of(const std::vector<RefArray>& in, const std::vector<bool>& moves,
                                  const Results& outputs);

// Moves every element by one f32 rounding unit up or down, a function of `key`.
void move_by_a_unit(RefArray& a, std::string_view key);

// A host device without any backend behind it, for kernels that only ask for its name.
Device& test_device();

}  // namespace ebb::test
