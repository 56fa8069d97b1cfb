// The tests that every op gets for its examples: types, text, gradient, and each kernel against
// the reference in double. Names are op__example[__dtype__kernel].
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <optional>
#include <set>

#include "backends.h"
#include "derived.h"
#include "guarded.h"
#include "ir/contraction.h"
#include "ir/copy_form.h"
#include "ir/text.h"
#include "ops/prim/epilogue_form.h"
#include "ops/table.h"
#include "passes/lower.h"
#include "tolerance.h"

namespace ebb::test::derived_test {
namespace {

// ---- graphs --------------------------------------------------------------------------------

class Ops : public ::testing::TestWithParam<Case> {};

TEST_P(Ops, text_reads_back) {
  const auto u = use_of(GetParam());
  for (size_t i = 0; i < u->out.size(); ++i) u->graph.output(str("y", i), u->out[i]);
  const std::string text = to_text(u->graph);
  EXPECT_EQ(to_text(parse_graph(text, find_op)), text);
}

// The decomposition has the types of the rule, down to primitives, for every float dtype.
TEST_P(Ops, lowers_with_its_types) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Case c = GetParam();
    c.dtype = dtype;
    const auto u = use_of(c);
    for (size_t i = 0; i < u->out.size(); ++i) u->graph.output(str("y", i), u->out[i]);
    const Graph low =
        lower(u->graph, [](const Signature& s) { return s.op->reference != nullptr; });
    for (size_t i = 0; i < u->out.size(); ++i)
      EXPECT_EQ(low.type(low.outputs()[i].value), u->out[i].type()) << name_of(dtype);
  }
}

// One that is too large for the tests would be left out of them without a word.
TEST(Examples, of_every_op__are_cases_unless_they_are_for_benches) {
  std::set<std::string> cases;
  for (const Case& c : all_cases()) cases.insert(c.name());
  for (const OpDef* op : all_ops())
    for (const Example& e : op->examples ? op->examples() : std::vector<Example>{})
      EXPECT_TRUE(e.bench || cases.contains(Case{op, e}.name())) << op->name << "__" << e.label;
}

INSTANTIATE_TEST_SUITE_P(derived, Ops, ::testing::ValuesIn(all_cases()), name_of_case);

// ---- copies --------------------------------------------------------------------------------

class Copies : public ::testing::TestWithParam<Case> {};

// What the form says, of arrays whose shapes differ along `dim` alone.
std::vector<double> copied(const CopyForm& f, size_t result, std::span<const RefArray> in) {
  const Shape& shape = in[0].shape;
  const int64_t outer = shape.slice(0, f.dim).numel(),
                inner = shape.slice(f.dim + 1, shape.rank()).numel();
  std::vector<double> out;
  for (int64_t o = 0; o < outer; ++o)
    for (const CopyForm::Part& p : f.results[result]) {
      const auto row = in[p.operand].v.begin() + o * in[p.operand].shape[f.dim] * inner;
      out.insert(out.end(), row + p.begin * inner, row + p.end * inner);
    }
  return out;
}

TEST_P(Copies, are_what_the_op_says) {
  const Signature s = GetParam().signature();
  const std::vector<RefArray> in = inputs_of(GetParam()), out = evaluate_reference(s, in);
  if (s.op->renames) {
    EXPECT_EQ(out.at(0).v, in.at(0).v);
    return;
  }
  const CopyForm form = s.op->copy(s);
  ASSERT_EQ(form.results.size(), out.size());
  for (size_t k = 0; k < out.size(); ++k) EXPECT_EQ(out[k].v, copied(form, k, in));
}

std::vector<Case> copy_cases() {
  std::vector<Case> out;
  for (const Case& c : all_cases())
    if (c.op->copy || c.op->renames) out.push_back(c);
  return out;
}

INSTANTIATE_TEST_SUITE_P(derived, Copies, ::testing::ValuesIn(copy_cases()), name_of_case);

// ---- gradients -----------------------------------------------------------------------------

double loss_at(const Loss& l, const std::string& name, const std::vector<double>& x) {
  RefInputs inputs = l.inputs;
  inputs[name].v = x;
  const auto values = evaluate_reference(l.use->graph, inputs);
  return output_of(l.use->graph, values, "loss").v[0];
}

// The derivative along `direction` against a central difference.
void check_direction(const Loss& l, const std::string& name, const RefArray& gradient,
                     const std::vector<double>& direction) {
  const std::vector<double>& x = l.inputs.at(name).v;
  double analytic = 0, size = 0;
  std::vector<double> up = x, down = x;
  for (size_t i = 0; i < x.size(); ++i) {
    analytic += gradient.v[i] * direction[i];
    size += std::fabs(gradient.v[i] * direction[i]);
    up[i] += difference_step * direction[i];
    down[i] -= difference_step * direction[i];
  }
  const double a = loss_at(l, name, up), b = loss_at(l, name, down);
  const double numeric = (a - b) / (2 * difference_step);
  // The loss itself is known to 1e-16 of its size, which the division magnifies.
  const double noise = 1e-15 * (std::fabs(a) + std::fabs(b)) / difference_step;
  EXPECT_NEAR(analytic, numeric, difference_tolerance * (size + 1) + noise) << name;
}

class Gradients : public ::testing::TestWithParam<Case> {};

// Two directions see every element; single ones, evenly chosen, say where it is wrong. Few of them
// where the reference takes long.
TEST_P(Gradients, equals_differences) {
  const Loss l = loss_of(GetParam());
  const size_t singles = cost_of(GetParam().signature()).flops > 1e6 ? 2 : 8;
  const auto values = evaluate_reference(l.backward, l.inputs);
  for (const std::string& name : l.wrt) {
    const RefArray& gradient = output_of(l.backward, values, "grad." + name);
    const size_t n = gradient.v.size();
    ASSERT_EQ(gradient.shape, l.inputs.at(name).shape);
    if (n == 0) continue;
    for (const char* key : {"first", "second"})
      check_direction(l, name, gradient, test::noise(n, key));
    for (size_t e = 0; e < n; e += (n + singles - 1) / singles) {
      std::vector<double> one(n, 0.0);
      one[e] = 1;
      check_direction(l, name, gradient, one);
    }
  }
}

// With narrow floats as well, a gradient has its input's shape, and its dtype or f32.
TEST_P(Gradients, have_the_types_of_the_inputs) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Case c = GetParam();
    c.dtype = dtype;
    const Loss l = loss_of(c);
    for (size_t i = 0; i < l.wrt.size(); ++i) {
      const Type& got = l.backward.type(l.backward.outputs()[i + 1].value);
      const Type& want = l.backward.type(l.backward.find_source(l.wrt[i])->value);
      EXPECT_EQ(got.shape, want.shape);
      EXPECT_TRUE(got.dtype == want.dtype || got.dtype == DType::f32) << got << " for " << want;
    }
  }
}

std::vector<Case> gradient_cases() {
  std::vector<Case> out;
  for (const Case& c : all_cases())
    if (has_gradient(c)) out.push_back(c);
  return out;
}

INSTANTIATE_TEST_SUITE_P(derived, Gradients, ::testing::ValuesIn(gradient_cases()), name_of_case);

// ---- kernels -------------------------------------------------------------------------------

struct Pair {
  size_t out, in;
};

struct RunOptions {
  int threads = 1;
  std::optional<Pair> shared;  // these have one memory
  bool recorded = false;       // twice in a row, in a captured graph
};

void run_program(const Program& program, const Call& call, const RunOptions& options,
                 Device& device) {
  if (!program.run) return;
  if (!options.recorded) return program.run(call);
  const auto captured = device.capture([&] {
    program.run(call);
    program.run(call);
  });
  ASSERT_TRUE(captured);
  captured->run();
  device.synchronize();  // before it is destroyed
}

void expect_untouched(const GuardedArrays& memory, size_t i, std::string_view what) {
  EXPECT_TRUE(memory.intact(i)) << "wrote outside of " << what;
}

// Results of one run on guarded, poisoned memory.
std::vector<Bytes> run_kernel(const Case& c, const Tune& tune, const RunOptions& options,
                              Device& device) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(options.threads);
  const Signature s = c.signature();
  const Program program = c.kernel->prepare(s, tune, device);
  const auto values = inputs_of(c);
  GuardedArrays memory(device);
  std::vector<size_t> in, out;
  const auto offset = [&](DType t) { return s.aligned ? 0 : size_of(t); };
  for (size_t i = 0; i < values.size(); ++i)
    in.push_back(memory.add(stored(values[i], s.in[i].dtype), offset(s.in[i].dtype)));
  for (const Type& t : s.out) out.push_back(memory.add_poisoned(t.bytes(), offset(t.dtype)));
  const size_t workspace = memory.add_poisoned(program.workspace, 0);
  memory.upload();
  Call call;
  for (const size_t i : in) call.in.push_back(memory.address(i));
  for (const size_t i : out) call.out.push_back(memory.address(i));
  call.workspace = memory.address(workspace);
  if (options.shared) call.out[options.shared->out] = call.in[options.shared->in];
  run_program(program, call, options, device);
  memory.download();
  omp_set_num_threads(before);
  for (size_t i = 0; i < in.size(); ++i) {
    expect_untouched(memory, in[i], str("input ", i));
    const bool shared = options.shared && options.shared->in == i;
    EXPECT_TRUE(shared || !memory.changed(in[i])) << "changed input " << i;
  }
  for (size_t i = 0; i < out.size(); ++i) expect_untouched(memory, out[i], str("output ", i));
  expect_untouched(memory, workspace, "the workspace");
  std::vector<Bytes> results;
  for (const size_t i : out) results.push_back(memory.content(i));
  if (options.shared) results[options.shared->out] = memory.content(in[options.shared->in]);
  return results;
}

// The expected results of a case, and how far a kernel may be from them.
struct Expected {
  std::vector<RefArray> exact;
  std::vector<double> conditions;
  double terms = 0;
  double inner = 0;  // unit of intermediate roundings, if it is not f32's
};

// Ops whose kernels on tensor cores, or on a processor's matrix tiles, round intermediate values
// between their two matmuls to the inputs' dtype, since those take no other operands; or the result
// of a matmul before its activation or factor, on its way to memory.
bool rounds_inside(const Case& c) {
  if (c.kernel && c.kernel->name == "attention_amx") return true;
  const bool expression = c.op->contraction && !c.op->contraction(c.signature()).epilogue.is_sum();
  return c.backend != "cpu" &&
         (c.op->name == "attention" || c.op->name == "attention_grad" || expression);
}

Expected expected_of(const Case& c) {
  const Signature s = c.signature();
  const auto in = inputs_of(c);
  std::vector<bool> moves;
  for (const Type& t : s.in) moves.push_back(is_float(t.dtype));
  const double elements =
      static_cast<double>(std::max<int64_t>(1, s.out.empty() ? 1 : s.out[0].shape.numel()));
  return {.exact = evaluate_reference(s, in),
          .conditions = conditions_of(
              in, moves, [&](const auto& x, auto) { return evaluate_reference(s, x); }),
          .terms = cost_of(s).flops / elements,
          .inner = rounds_inside(c) ? rounding_unit(c.dtype) : 0};
}

void expect_close(const Case& c, const Expected& expected, const std::vector<Bytes>& results,
                  const std::string& what) {
  const Signature s = c.signature();
  for (size_t k = 0; k < s.out.size(); ++k) {
    const RefArray y = loaded(results[k], s.out[k]);
    for (size_t e = 0; e < y.v.size(); ++e) {
      const double want = expected.exact[k].v[e];
      if (!std::isfinite(want)) {
        ASSERT_TRUE(y.v[e] == want || (std::isnan(want) && std::isnan(y.v[e])))
            << what << ": output " << k << '[' << e << "] is " << y.v[e] << ", not " << want;
        continue;
      }
      const double allowed =
          tolerance(s.out[k].dtype, want, expected.terms, expected.conditions[k]) +
          inner_tolerance(expected.inner, want, expected.conditions[k]);
      ASSERT_NEAR(y.v[e], want, allowed)
          << what << ": output " << k << '[' << e << "] of " << s.text();
    }
  }
}

// Kernels whose last bits depend on the number of threads, with the reason. For a given number they
// do not change from run to run.
bool bits_depend_on_threads(const Kernel& k) {
  if (k.op == "conv2d_dw") return true;  // oneDNN sums the images of each thread, then the threads
  // oneDNN's f32 products for processors without AVX-512 are cut as the threads are
  const bool f32 = k.name == "matmul_onednn" || k.name == "matmul_widened";
  return f32 && !__builtin_cpu_supports("avx512f");
}

// Outputs that may lie where an input lies.
std::vector<Pair> sharing_pairs(const Case& c) {
  const Signature s = c.signature();
  std::vector<Pair> pairs;
  for (size_t out = 0; out < s.out.size(); ++out)
    for (size_t in = 0; in < s.in.size(); ++in) {
      if (!c.kernel->in_place || s.in[in] != s.out[out]) continue;
      if (!c.kernel->may_alias || c.kernel->may_alias(s, out, in)) pairs.push_back({out, in});
    }
  return pairs;
}

std::string text_of(const Tune& tune) {
  std::string out = "tune:";
  for (const auto& [name, value] : tune.values) out += str(' ', name, '=', value);
  return out;
}

class Kernels : public OnBackend, public ::testing::WithParamInterface<Case> {
 protected:
  void SetUp() override {
    if (GetParam().backend == "cpu") return;
    open(GetParam().backend);
    if (context_.device && !GetParam().kernel->supports(GetParam().signature(), device()))
      GTEST_SKIP() << "the kernel does not support this";
  }
  Device& device() { return context_.device ? *context_.device : test_device(); }

  std::vector<Bytes> run(const Tune& tune, const RunOptions& options) {
    return run_kernel(GetParam(), tune, options, device());
  }
  std::vector<Tune> tunes_of(const Case& c) {
    return c.kernel->space ? c.kernel->space(c.signature(), device()) : std::vector{Tune{}};
  }
  void check(const Expected& expected, const Tune& tune);
  void check_unaligned(const Expected& expected);
  void check_threads(const Expected& expected, const Tune& tune, const std::vector<Bytes>& first);
};

void Kernels::check_threads(const Expected& expected, const Tune& tune,
                            const std::vector<Bytes>& first) {
  const auto two = run(tune, {.threads = 2});
  if (bits_depend_on_threads(*GetParam().kernel))
    expect_close(GetParam(), expected, two, "two threads");
  else
    EXPECT_TRUE(two == first) << "two threads give other bits";
}

void Kernels::check(const Expected& expected, const Tune& tune) {
  const Case& c = GetParam();
  const auto first = run(tune, {});
  expect_close(c, expected, first, "aligned");
  EXPECT_TRUE(run(tune, {}) == first) << "two runs differ";
  if (c.backend == "cpu")
    check_threads(expected, tune, first);
  else
    EXPECT_TRUE(run(tune, {.recorded = true}) == first) << "a captured graph gives other bits";
  for (const Pair& p : sharing_pairs(c))
    EXPECT_TRUE(run(tune, {.shared = p}) == first)
        << "other result where output " << p.out << " is in place of input " << p.in;
}

// A kernel that needs alignment leaves such a use to another.
void Kernels::check_unaligned(const Expected& expected) {
  Case c = GetParam();
  c.aligned = false;
  if (!c.kernel->supports(c.signature(), device())) return;
  for (const Tune& tune : tunes_of(c)) {
    SCOPED_TRACE(text_of(tune));
    expect_close(c, expected, run_kernel(c, tune, {.threads = 2}, device()), "unaligned");
    if (HasFatalFailure()) return;
  }
}

TEST_P(Kernels, equals_its_reference) {
  const Case& c = GetParam();
  if (c.kernel->alias) {
    const auto in = inputs_of(c);
    EXPECT_EQ(evaluate_reference(c.signature(), in)[0].v, in[0].v);
    return;
  }
  const std::vector<Tune> tunes = tunes_of(c);
  ASSERT_FALSE(tunes.empty());
  const Expected expected = expected_of(c);
  for (const Tune& tune : tunes) {
    SCOPED_TRACE(text_of(tune));
    check(expected, tune);
    if (HasFatalFailure()) return;
  }
  check_unaligned(expected);
}

// The op, and what it has besides a sum of one product.
std::string kind_of(const Signature& s) {
  std::string name(s.op->name);
  if (!s.op->contraction) return name;
  if (s.op->contraction(s).products > 1) name += "_sum";
  constexpr const char* kinds[] = {"", "_scaled", "_activated", "_activation_grad", "_gated"};
  const auto form = ops::epilogue_form(s);
  return form ? name + kinds[static_cast<size_t>(form->kind)] : "none";
}

// Some examples are such that sm_90a's GEMMs support them, in both dtypes of its tensor cores.
class Sm90Examples : public OnBackend, public ::testing::WithParamInterface<std::string> {
  void SetUp() override { open("cuda"); }

 protected:
  std::set<DType> reached(std::string_view kind) const {
    std::set<DType> out;
    for (const Case& c : kernel_cases("cuda")) {
      if (!kind.starts_with(c.op->name) || !c.kernel->name.ends_with("_sm90")) continue;
      const Signature s = c.signature();
      if (kind_of(s) == kind && s.out[0].shape.numel() > 0 &&
          c.kernel->supports(s, *context_.device))
        out.insert(c.dtype);
    }
    return out;
  }
};

TEST_P(Sm90Examples, reach_the_kernels) {
  if (reached("matmul").empty()) GTEST_SKIP() << "no kernel for this device";
  EXPECT_EQ(reached(GetParam()), (std::set{DType::bf16, DType::f16}));
}

INSTANTIATE_TEST_SUITE_P(cuda, Sm90Examples,
                         ::testing::Values("matmul", "matmul_activated", "matmul_activation_grad",
                                           "matmul_gated", "matmul_scaled", "matmul_sum",
                                           "matmul_sum_gated", "matmul_sum_activation_grad",
                                           "conv2d", "conv2d_sum", "conv2d_dx", "conv2d_dw"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(derived, Kernels, ::testing::ValuesIn(kernel_cases("cpu")), name_of_case);
INSTANTIATE_TEST_SUITE_P(cuda, Kernels, ::testing::ValuesIn(kernel_cases("cuda")), name_of_case);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Kernels);

}  // namespace
}  // namespace ebb::test::derived_test
