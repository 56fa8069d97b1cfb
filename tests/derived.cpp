#include "derived.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "ops/add/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/table.h"
#include "passes/gradients.h"
#include "tolerance.h"

namespace ebb::test {
namespace {

constexpr int64_t largest_case = 100000;  // elements of an input

class TestDevice final : public Device {
 public:
  std::string_view backend() const override { return "cpu"; }
  std::string description() const override { return "memory of the test"; }
  bool fast_in(DType) const override { return true; }
  int64_t free_memory() const override { return int64_t{1} << 32; }
  std::shared_ptr<Buffer> allocate(int64_t bytes) override { return host_buffer(bytes); }
  void copy(const Tensor& from, const Tensor& to) override {
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  }
  void synchronize() override {}
};

bool small(const Example& e) {
  for (const Type& t : e.in)
    if (t.shape.numel() > largest_case) return false;
  return !e.bench;
}

}  // namespace

Device& test_device() {
  static TestDevice device;
  return device;
}

std::string Case::name() const {
  std::string s = str(op->name, "__", example.label);
  if (kernel) s += str("__", name_of(dtype), "__", kernel->name);
  return s;
}

Signature Case::signature() const {
  Signature s{op, example.attrs, example.in, {}, ""};
  for (Type& t : s.in)
    if (is_float(t.dtype) && dtype != DType::f32) t.dtype = dtype;
  s.out = op->infer(s);
  s.aligned = aligned;
  return s;
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.signature().text(); }

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const OpDef* op : all_ops())
    if (op->examples)
      for (Example& e : op->examples())
        if (small(e)) out.push_back({op, std::move(e)});
  return out;
}

namespace {

// Has narrow floats: in narrower ones than f32 it would be another example.
bool mixed(const Example& e) {
  return std::ranges::any_of(
      e.in, [](const Type& t) { return is_float(t.dtype) && t.dtype != DType::f32; });
}

// Ops with an expression run as the primitive `pointwise`: the same example of that.
Case as_pointwise(const Case& c) {
  const Signature s = c.signature();
  Case out = c;
  out.op = &ops::def::pointwise();
  out.example.label = str(c.op->name, '_', c.example.label);
  out.example.attrs = ops::Pointwise{expression_of(s), s.out[0].shape.sizes()};
  return out;
}

}  // namespace

std::vector<Case> kernel_cases(const std::string& backend) {
  std::vector<Case> cases = all_cases();
  for (const Case& c : all_cases())
    if (c.op->expr && c.op != &ops::def::pointwise()) cases.push_back(as_pointwise(c));
  std::vector<Case> out;
  for (Case c : cases)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Kernel* k : kernels_of(c.op->name, backend)) {
        c.dtype = dtype;
        c.kernel = k;
        c.backend = backend;
        const Signature s = c.signature();
        const bool other = dtype == DType::f32 || (s.in != c.example.in && !mixed(c.example));
        if (other && (backend != "cpu" || k->supports(s, test_device()))) out.push_back(c);
      }
  return out;
}

std::vector<double> noise(size_t count, std::string_view key) {
  std::vector<double> v(count);
  const uint64_t start = fnv1a(key);
  for (size_t i = 0; i < count; ++i)
    v[i] = static_cast<double>(splitmix64(start + i) >> 11) * 0x1p-52 - 1;
  return v;
}

std::vector<RefArray> inputs_of(const Case& c) {
  const Signature s = c.signature();
  std::vector<RefArray> out;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const auto count = static_cast<size_t>(s.in[i].shape.numel());
    RefArray a{s.in[i].shape, noise(count, str(c.op->name, '/', c.example.label, '/', i))};
    for (double& v : a.v) {
      const double unit = (v + 1) / 2;
      v = is_float(s.in[i].dtype)
              ? rounded(c.example.low + (c.example.high - c.example.low) * unit, s.in[i].dtype)
              : std::floor(unit * static_cast<double>(c.example.integers));
    }
    out.push_back(std::move(a));
  }
  return out;
}

// ---- graphs --------------------------------------------------------------------------------

std::unique_ptr<Use> use_of(const Case& c) {
  auto u = std::make_unique<Use>();
  const Signature s = c.signature();
  for (size_t i = 0; i < s.in.size(); ++i) u->in.push_back(u->graph.input(str("x", i), s.in[i]));
  u->out = u->graph.add(*c.op, c.example.attrs, u->in);
  return u;
}

namespace {

// Ops and examples that have no gradient, with the reason.
const std::map<std::string, std::string>& without_gradient() {
  static const std::map<std::string, std::string> list = {
      {"reduce__row_maximum", "a maximum has no gradient"},
      {"reduce__narrow_rows", "a maximum has no gradient"},
      {"reduce__narrow_columns", "a loss of results of 16 bits is not as exact as f32"},
      {"reduce__narrow_long_columns", "a loss of results of 16 bits is not as exact as f32"},
      {"max_pool_grad", "nothing differentiates twice through max_pool"},
      {"attention_grad", "nothing differentiates twice through attention"},
  };
  return list;
}

Value weighted(Value y, Value w) {
  std::vector<int64_t> all;
  for (int64_t d = 0; d < y.shape().rank(); ++d) all.push_back(d);
  return ops::reshape(ops::sum_of({y, w}, all, [](auto v) { return v[0] * v[1]; }), {});
}

}  // namespace

bool has_gradient(const Case& c) {
  return c.op->differentiable && !without_gradient().contains(c.name()) &&
         !without_gradient().contains(std::string(c.op->name));
}

Loss loss_of(const Case& c) {
  Loss l{use_of(c), {}, {}, {}};
  Graph& g = l.use->graph;
  const auto in = inputs_of(c);
  for (size_t i = 0; i < in.size(); ++i) {
    l.inputs[str("x", i)] = in[i];
    if (is_float(l.use->in[i].dtype())) l.wrt.push_back(str("x", i));
  }
  Value loss;
  for (size_t k = 0; k < l.use->out.size(); ++k) {
    const Value y = l.use->out[k];
    const std::string name = str("w", k);
    const Value part = weighted(y, g.input(name, {DType::f32, y.shape()}));
    RefArray w{y.shape(), noise(static_cast<size_t>(y.shape().numel()), c.name() + name)};
    for (double& v : w.v) v = rounded(v, DType::f32);
    l.inputs[name] = std::move(w);
    loss = loss ? loss + part : part;
  }
  g.output("loss", loss);
  l.backward = gradients(g, "loss", l.wrt);
  return l;
}

void move_by_a_unit(RefArray& a, std::string_view key) {
  const double unit = rounding_unit(DType::f32);
  const auto sign = noise(a.v.size(), key);
  for (size_t e = 0; e < sign.size(); ++e) a.v[e] *= 1 + (sign[e] < 0 ? -unit : unit);
}

std::vector<double> conditions_of(const std::vector<RefArray>& in, const std::vector<bool>& moves,
                                  const Results& outputs) {
  const double unit = rounding_unit(DType::f32);
  const auto exact = outputs(in, "");
  std::vector<double> largest(exact.size(), 0.0);
  for (const char* key : {"a", "b", "c"}) {
    std::vector<RefArray> moved = in;
    for (size_t i = 0; i < in.size(); ++i) {
      if (moves[i]) move_by_a_unit(moved[i], str(key, i));
    }
    const auto other = outputs(moved, key);
    for (size_t k = 0; k < exact.size(); ++k)
      for (size_t e = 0; e < exact[k].v.size(); ++e) {
        const double d = std::fabs(other[k].v[e] - exact[k].v[e]);
        if (std::isfinite(d)) largest[k] = std::max(largest[k], d / unit);
      }
  }
  return largest;
}

}  // namespace ebb::test
