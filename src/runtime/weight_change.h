// WeightChange: what an adapter adds to a weight. docs/adapters.md says where it comes in.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "passes/schedule/prepare.h"
#include "runtime/context.h"

namespace ebb {

// A weight as it lies on the host, and what a network makes of it.
struct StoredWeight {
  Type type;       // as stored
  ReadBytes read;  // its bytes; may throw Error
  Tensor host;     // the same in memory, perhaps a mapped file's, or undefined
  // Of a mapped file's: lets it leave the process's memory until it is read again.
  std::function<void()> forget = [] {};
  bool transposed = false;  // stored as [I,O], while the network and adapters have [O,I]
  // Adds to a graph the weight as the network reads it.
  std::function<Value(Value stored)> decode = [](Value v) { return v; };
};

// One in memory that is as the network reads it.
StoredWeight stored_tensor(const Tensor& host);

// One term of a sum: weight + term + term. The sum is f32 and is rounded once, when it is done.
struct WeightChange {
  static constexpr int64_t scalar_count = 4;
  // The values that a term may be computed from, in f32 but for the factors.
  struct Operands {
    Value sum;     // of what came before, in the shape of the stored weight
    Value weight;  // as the file has it; only where `reads_weight`
    std::vector<Value> factors;
    Value scalars;  // f32[scalar_count]
  };
  std::string name;  // of its factors: equal names mean equal factors
  std::string form;  // equal forms with factors of equal types make equal graphs
  std::vector<StoredWeight> factors;
  std::array<float, scalar_count> scalars = {};  // strengths: other ones need no other graph
  bool reads_weight = false;
  std::function<Value(const Operands&)> apply;  // the sum with this term
};
using WeightChanges = std::map<std::string, std::vector<WeightChange>, std::less<>>;  // by weight

// What a plan reads of weights, as expression_of() (passes/schedule/prepare.h) gives it.
struct PreparedExpression {
  Graph graph;
  std::string text;                  // of the graph
  std::vector<std::string> sources;  // of "in.0", "in.1", ...
};

// Computes what plans read of weights that have changes, on one device. Graphs are compiled once
// for all weights of the same types.
class ChangedWeights {
 public:
  struct Source {
    std::string name;
    const StoredWeight* weight = nullptr;
    const std::vector<WeightChange>* changes = nullptr;  // null: none
  };
  // keep: holds weights as stored, factors and plans for the next time.
  ChangedWeights(Context context, bool keep);
  ~ChangedWeights();
  ChangedWeights(const ChangedWeights&) = delete;
  ChangedWeights& operator=(const ChangedWeights&) = delete;

  // Writes to `result` what the expression makes of its sources. Throws Error.
  void compute(const PreparedExpression& expression, const std::vector<Source>& sources,
               const Tensor& result);
  // Waits for all of it, and lets go of what is not kept.
  void finish();
  // Lets go of all.
  void drop();
  int64_t held_bytes() const;
  // Bytes that compute() takes for a while, beside the result.
  static int64_t working_bytes(const Source& source);

 private:
  class Plans;
  Tensor stored(const std::string& name, const StoredWeight& w);
  Tensor scratch(const Type& type);
  Tensor changed(const Source& source, const Tensor& sum);
  void widen(const Tensor& stored, const Tensor& sum);
  void apply(const WeightChange& change, const Tensor& weight, const Tensor& sum);

  Context context_;
  bool keep_;
  std::unique_ptr<Plans> plans_;
  std::map<std::string, Tensor, std::less<>> held_;  // by name
  std::vector<std::shared_ptr<Buffer>> scratch_;
  size_t used_ = 0;
};

}  // namespace ebb
