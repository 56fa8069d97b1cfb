// OpDef: what an op is. One per op, in the op's folder; knows no backend.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"
#include "ir/attrs.h"
#include "ir/expr.h"
#include "ir/graph.h"

namespace ebb {

// A use of an op: everything that determines what it computes, without the data. Also the tuner's
// key.
struct Signature {
  const OpDef* op = nullptr;
  Attrs attrs;
  std::vector<Type> in, out;  // out is empty while infer runs
  std::string at;             // model path, for errors
  // On a device with memory of its own: every operand and result lies at a multiple of `alignment`,
  // as in plans; false: of its elements' size alone. On the host no kernel may rely on more than
  // the latter, since weights lie where their file has them.
  bool aligned = true;

  static constexpr int64_t alignment = 16;  // bytes

  template <class A>
  const A& as() const {
    return attrs.as<A>();
  }
  std::string text() const;  // op f32[..],f32[..] {attrs}; and "unaligned"
};

// Work of a use: the least bytes moved, and floating-point operations.
struct Cost {
  double bytes = 0;
  double flops = 0;
};

// An array in double, for reference implementations.
struct RefArray {
  Shape shape;
  std::vector<double> v;
};

// Example inputs of an op: for derived tests, benches and tuner warm-up.
struct Example {
  std::string label = {};
  Attrs attrs = {};
  std::vector<Type> in = {};
  bool bench = false;         // also a bench case; too large for the tests if numel > 1e5
  int64_t integers = 0;       // inputs of integer type hold values in [0, integers)
  double low = -1, high = 1;  // float inputs are uniform in [low, high)
};

// The input of a gradient rule for y = op(x). A dout without a graph is zero.
struct VjpCall {
  Graph& graph;
  const Signature& sig;
  std::span<const Value> in, out, dout;
};

struct LoopForm;     // ir/loop_form.h
struct Contraction;  // ir/contraction.h
struct CopyForm;     // ir/copy_form.h
struct UseViews;     // ir/strided_view.h

// How uses that do not depend on each other become one use of another op, which is one launch.
struct Together {
  // What uses must have in common beside their dtypes; "": this one stays alone.
  std::string (*key)(const Signature&);
  Signature (*join)(std::span<const Signature> uses);
  // Limits of a group, so that no large result waits long for its readers: its elements, those of
  // the largest operand or result of each use; its uses; and nodes from its first to its last.
  int64_t most_elements = INT64_MAX;
  size_t most_uses = SIZE_MAX, most_apart = SIZE_MAX;
};

struct OpDef {
  std::string_view name;
  // Default attributes; their type is the op's attribute struct.
  Attrs (*attrs)() = +[] { return Attrs(); };
  // Output types. Throws Error in the house grammar.
  std::vector<Type> (*infer)(const Signature&) = nullptr;
  // Pointwise ops: the results as expressions of the (broadcast) inputs. All else is derived from
  // it.
  std::vector<Scalar> (*expr)(const Signature&, std::span<const Scalar> x) = nullptr;
  // Other composite ops: the decomposition into simpler ops. Null for primitives.
  std::vector<Value> (*decompose)(Graph&, const Signature&, std::span<const Value> in) = nullptr;
  // Gradients of the inputs (a Value without a graph: none), each of its input's dtype or f32, so
  // that the gradients of weights cast to 16 bits stay exact. Null: expr or decompose is
  // differentiated; what `copy` says is a range of the operand has no rule of its own.
  std::vector<Value> (*vjp)(const VjpCall&) = nullptr;
  // Primitives: the reference implementation, in double.
  void (*reference)(const Signature&, std::span<const RefArray> in,
                    std::span<RefArray> out) = nullptr;
  // How a fused loop may compute a use; none: not this one. Null: it never does.
  std::optional<LoopForm> (*loop)(const Signature&) = nullptr;
  // What a use that only copies puts where. Null: the op does more than that.
  CopyForm (*copy)(const Signature&) = nullptr;
  // Of a use whose result is its operand with the dims in another order: that order. Null: it is
  // not.
  std::vector<int64_t> (*permutation)(const Signature&) = nullptr;
  // The attributes of a use that reads and writes through these views; none: it cannot. Null: the
  // op reads and writes whole tensors, or has views of its own kind.
  std::optional<Attrs> (*viewed)(const Signature&, const UseViews&) = nullptr;
  // Its result is its operand under another shape; nothing moves.
  bool renames = false;
  // Each element of a result is computed from its index alone, and numbers that all share.
  bool by_index = false;
  // The results are elements of the first operand, which the others choose.
  bool gathers = false;
  // It waits for the same use of it on other ranks: plans have it begin early, beside other work.
  bool collective = false;
  // Of a collective: how often a rank sends the larger of an operand and its result, less its own
  // share of it.
  int sends = 0;
  // Null: every input read and every output written once, expr's flops an element.
  Cost (*cost)(const Signature&) = nullptr;
  std::vector<Example> (*examples)() = nullptr;
  // False: the gradient with respect to every input is zero by definition.
  bool differentiable = true;
  // What mixed precision does with float inputs.
  enum class Precision : uint8_t {
    follow,  // as they come, but all of one dtype if the f32 graph had one
    mixed,   // as they come
    low,     // matmuls, convolutions, attention: casts them to 16 bits
    full,    // losses and the like: casts them to f32
  };
  Precision precision = Precision::follow;
  size_t operands = SIZE_MAX;          // how many first inputs `low` casts; later ones are biases
  const Together* together = nullptr;  // null: each use is a launch of its own
  // What a use multiplies and computes of its products. Null: it is no sum of products.
  Contraction (*contraction)(const Signature&) = nullptr;
  // Matmuls, convolutions and attention: many operations for each element read, which devices have
  // hardware for.
  bool matrix_work = false;
};

// The expression of a pointwise signature over its tensor inputs. Throws Error for other ops.
Expr expression_of(const Signature& sig);

Cost cost_of(const Signature& sig);

// The type rule of pointwise ops: shapes broadcast; the `results` results have the widest float
// dtype of the float inputs (f32 over bf16 and f16).
std::vector<Type> infer_pointwise(const Signature& sig, size_t results = 1);

}  // namespace ebb
