// Kernels for large shapes against the most general kernel of their op (the last of its table),
// which the derived tests compare with the reference: shapes with edges in every direction.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "backends.h"
#include "derived.h"
#include "guarded.h"
#include "ops/gelu/op.h"
#include "ops/gelu_tanh/op.h"
#include "ops/prim/attention/op.h"
#include "ops/prim/attention_grad/op.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dw/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/epilogue_form.h"
#include "ops/prim/matmul/examples.h"
#include "ops/prim/matmul/op.h"
#include "ops/silu/op.h"
#include "ops/table.h"
#include "tolerance.h"

namespace ebb::test::agreement_test {
namespace {

struct Large {
  std::string label;
  const OpDef* op;
  Attrs attrs;
  std::vector<Shape> in;
  DType dtype;
  std::optional<DType> residual = {};   // of the last input, where that is another
  std::map<size_t, DType> others = {};  // of inputs where they are another
  int64_t integers = 0;                 // those of integer type hold values in [0, integers)

  Signature signature() const {
    Signature s{op, attrs, {}, {}, ""};
    for (const Shape& shape : in) s.in.push_back({dtype, shape});
    if (residual) s.in.back().dtype = *residual;
    for (const auto& [i, type] : others) s.in[i].dtype = type;
    s.out = op->infer(s);
    return s;
  }
};

void PrintTo(const Large& c, std::ostream* out) { *out << c.signature().text(); }

struct Product {
  int64_t m, n, k;
};

void add_products(std::vector<Large>& out, DType dtype) {
  for (const Product& p : {Product{1024, 1024, 1024},
                           {1000, 520, 328},
                           {640, 1152, 4608},
                           {4096, 72, 136},
                           {257, 264, 72},
                           {2048, 3456, 1152},
                           {8, 4096, 1024}})
    for (const bool a : {false, true})
      for (const bool b : {false, true})
        for (const bool wide : {false, true}) {
          const std::string label = str("m", p.m, "_n", p.n, "_k", p.k, a ? "_ta" : "",
                                        b ? "_tb" : "", wide ? "_f32" : "");
          ops::Matmul attrs{.trans_a = a, .trans_b = b};
          if (wide) attrs.dtype = DType::f32;
          const Shape x = a ? Shape{p.k, p.m} : Shape{p.m, p.k};
          const Shape y = b ? Shape{p.n, p.k} : Shape{p.k, p.n};
          out.push_back({label, &ops::def::matmul(), attrs, {x, y}, dtype});
          if (b && !a)
            out.push_back({label + "_bias", &ops::def::matmul(), attrs, {x, y, {p.n}}, dtype});
          if (!a)
            out.push_back({label + "_residual",
                           &ops::def::matmul(),
                           attrs,
                           {x, y, {p.n}, {p.m, p.n}},
                           dtype,
                           wide ? DType::f32 : dtype});
        }
  const ops::Matmul batched{.trans_b = true};
  out.push_back({"batch", &ops::def::matmul(), batched, {{6, 200, 136}, {6, 264, 136}}, dtype});
  for (const Shape& residual : {Shape{6, 208, 264}, Shape{6, 1, 264}})
    out.push_back({str("batch_residual_", residual[1]),
                   &ops::def::matmul(),
                   batched,
                   {{6, 208, 136}, {6, 264, 136}, residual},
                   dtype});
}

Expr act_of(const OpDef& op) {
  return expression_of(Signature{&op, {}, {{DType::f32, {}}}, {{DType::f32, {}}}, ""});
}

// The other of two inputs times the expression of one.
Expr gate_by(const Expr& act, size_t of) {
  const Scalar x[] = {Scalar::input(0), Scalar::input(1)};
  const Scalar y[] = {x[1 - of] * act.apply({&x[of], 1})[0]};
  return Expr(2, y);
}

void add_activated(std::vector<Large>& out, DType dtype) {
  const OpDef* op = &ops::def::matmul();
  const Expr silu = act_of(ops::def::silu()), gelu = act_of(ops::def::gelu_tanh());
  const Expr erf = act_of(ops::def::gelu());
  using ops::activation_epilogue, ops::activation_grad_epilogue;
  for (const Product& p : {Product{1000, 520, 328}, {640, 1536, 384}, {257, 264, 1096}})
    for (const bool b : {false, true}) {
      const std::string label = str("activated_m", p.m, "_n", p.n, "_k", p.k, b ? "_tb" : "");
      const Shape x{p.m, p.k}, y = b ? Shape{p.n, p.k} : Shape{p.k, p.n};
      const auto add = [&](const std::string& name, const Epilogue& e, std::vector<Shape> in) {
        out.push_back({label + name, op, ops::Matmul{.trans_b = b, .epilogue = e}, in, dtype});
      };
      add("", activation_epilogue(gelu, true, false), {x, y, {p.n}});
      add("_kept", activation_epilogue(gelu, true, true), {x, y, {p.n}});
      add("_grad", activation_grad_epilogue(silu, false), {x, y, {p.m, p.n}});
      add("_erf_grad", activation_grad_epilogue(erf, false), {x, y, {p.m, p.n}});
      if (!b) continue;
      add("_erf", activation_epilogue(erf, true, true), {x, y, {p.n}});
      const Shape twice{2 * p.n, p.k};
      for (const size_t of : {0u, 1u})
        for (const bool keep : {false, true}) {
          const Expr gate = gate_by(of == 0 ? silu : erf, of);
          const std::string name = str("_gate", of, keep ? "_kept" : "");
          add(name, activation_epilogue(gate, false, keep), {x, twice});
          add(name + "_bias", activation_epilogue(gate, true, keep), {x, twice, {2 * p.n}});
        }
    }
}

struct Conv {
  int64_t n, h, w, in, out, size, stride = 1;
};

void add_convolutions(std::vector<Large>& out, DType dtype) {
  for (const Conv& c : {Conv{4, 32, 32, 64, 128, 3},
                        {3, 17, 23, 72, 136, 3},
                        {2, 64, 64, 192, 64, 3},
                        {32, 8, 8, 256, 256, 3},
                        {2, 19, 21, 64, 192, 3, 2},
                        {4, 16, 16, 320, 320, 1},
                        {1, 40, 130, 128, 64, 3},
                        {5, 9, 7, 384, 384, 3},
                        {2, 32, 32, 64, 64, 5},
                        {8, 64, 64, 64, 128, 3}}) {
    const int64_t p = c.size / 2, oh = (c.h + 2 * p - c.size) / c.stride + 1;
    const int64_t ow = (c.w + 2 * p - c.size) / c.stride + 1;
    const std::vector<int64_t> pad = {p, p, p, p};
    const std::string label =
        str("n", c.n, "_", c.h, "x", c.w, "_c", c.in, "_o", c.out, "_k", c.size, "_s", c.stride);
    const Shape x{c.n, c.h, c.w, c.in}, y{c.n, oh, ow, c.out}, w{c.out, c.size, c.size, c.in};
    out.push_back({label,
                   &ops::def::conv2d(),
                   ops::Conv2d{.stride = c.stride, .pad = pad},
                   {x, w, {c.out}},
                   dtype});
    for (const Shape& residual : {y, Shape{c.n, 1, 1, c.out}})
      for (const DType type : std::set{dtype, DType::f32})
        out.push_back({str(label, residual == y ? "_residual_" : "_rows_", type),
                       &ops::def::conv2d(),
                       ops::Conv2d{c.stride, pad, residual == y ? type : ResultDType()},
                       {x, w, {c.out}, residual},
                       dtype,
                       type});
    const ops::Conv2dDx back{.stride = c.stride, .pad = pad, .size = {c.h, c.w}};
    out.push_back({label, &ops::def::conv2d_dx(), back, {y, w}, dtype});
    out.push_back({label + "_residual", &ops::def::conv2d_dx(), back, {y, w, x}, dtype});
    ops::Conv2dDw weight{.stride = c.stride, .pad = pad, .kernel = {c.size, c.size}};
    out.push_back({label, &ops::def::conv2d_dw(), weight, {x, y}, dtype});
    weight.bias = false;
    out.push_back({label + "_plain", &ops::def::conv2d_dw(), weight, {x, y}, dtype});
  }
}

struct Heads {
  int64_t n, t, s, a, width;
  double scale = 0;
};

// More query tiles than SMs, several key blocks, and scores that are far apart between them.
void add_attention(std::vector<Large>& out, DType dtype) {
  for (const Heads& h : {Heads{12, 333, 301, 5, 64},
                         {5, 200, 77, 40, 40},
                         {40, 256, 256, 4, 72},
                         {8, 140, 640, 12, 128},
                         {3, 129, 200, 48, 24},
                         {2, 515, 1031, 20, 80},
                         {1, 520, 130, 16, 160},
                         {1, 260, 200, 36, 256},
                         {3, 150, 700, 2, 512},
                         {1, 1000, 300, 1, 328},
                         {2, 130, 900, 1, 512, 4},
                         {9, 333, 700, 8, 64, 4},
                         {2, 700, 2100, 9, 40, 4},
                         {1, 900, 3000, 12, 128},
                         {3, 700, 1700, 7, 64, 4},
                         {2, 300, 500, 8, 128, 4}}) {
    const std::string label =
        str("n", h.n, "_t", h.t, "_s", h.s, "_a", h.a, "_k", h.width, h.scale == 0 ? "" : "_peaks");
    const Shape q{h.n, h.t, h.a, h.width}, k{h.n, h.s, h.a, h.width};
    out.push_back({label, &ops::def::attention(), ops::Attention{h.scale}, {q, k, k}, dtype});
  }
}

// q, k and v in one, for which tiles on mma.sync are the general kernel.
void add_packed_attention(std::vector<Large>& out, DType dtype) {
  const ops::Attention packed{.packed = true};
  for (const Heads& h : {Heads{2, 333, 333, 5, 72},
                         {3, 700, 700, 4, 64},
                         {4, 256, 256, 6, 40},
                         {2, 200, 200, 3, 128},
                         {5, 64, 64, 8, 32}}) {
    const std::string label = str("packed_n", h.n, "_t", h.t, "_a", h.a, "_k", h.width);
    const Shape qkv{h.n, h.t, 3, h.a, h.width}, o{h.n, h.t, h.a, h.width}, lse{h.n, h.a, h.t};
    out.push_back({label, &ops::def::attention(), packed, {qkv}, dtype});
    out.push_back({label, &ops::def::attention_grad(), packed, {qkv, o, lse, o}, dtype});
  }
}

// Several key blocks, and more of them than SMs: thread blocks wait for each other; once for a
// single head whose blocks take more than one wave. Many heads: chunks of key blocks, the last of
// which is smaller. Few heads and keys: ranges of queries.
void add_attention_grad(std::vector<Large>& out, DType dtype) {
  for (const Heads& h : {Heads{6, 300, 700, 5, 40},
                         {3, 290, 1100, 9, 64},
                         {5, 333, 520, 6, 80},
                         {2, 200, 900, 11, 128},
                         {1, 1200, 18500, 1, 64},
                         {10, 500, 620, 14, 40},
                         {12, 500, 620, 12, 80},
                         {1, 1500, 77, 3, 64},
                         {1, 700, 333, 2, 72},
                         {1, 300, 200, 1, 256},
                         {2, 400, 333, 1, 512}})
    for (const bool dlse : {false, true}) {
      const std::string label =
          str("n", h.n, "_t", h.t, "_s", h.s, "_a", h.a, "_k", h.width, dlse ? "_dlse" : "");
      const Shape q{h.n, h.t, h.a, h.width}, k{h.n, h.s, h.a, h.width}, lse{h.n, h.a, h.t};
      std::vector<Shape> in{q, k, k, q, lse, q};
      if (dlse) in.push_back(lse);
      out.push_back({label, &ops::def::attention_grad(), ops::Attention{}, in, dtype});
    }
}

struct Masked {
  Heads of;
  bool causal = false, lengths = false;
  Shape bias = {};  // none if of rank 0
};

// Masks and biases, with edges in every direction; their gradients up to the widest that has
// kernels of its own.
void add_masked_attention(std::vector<Large>& out, DType dtype) {
  for (const Masked& m : {Masked{{12, 333, 301, 5, 64}, true},
                          {{3, 700, 1700, 7, 64, 4}, true},
                          {{2, 515, 1031, 6, 80}, true, true},
                          {{3, 700, 300, 4, 72}, false, true},
                          {{2, 1000, 1000, 6, 128}, true},
                          {{1, 2100, 2100, 70, 64}, true},  // more heads than run at once
                          {{2, 1300, 1500, 24, 128}, true},
                          {{1, 260, 200, 6, 256}, true, true},
                          {{3, 1500, 400, 3, 40}, true},
                          {{9, 200, 77, 6, 160}, false, true},
                          {{40, 77, 77, 12, 64}, true},
                          {{40, 256, 256, 4, 64}, true, true},
                          {{50, 60, 250, 8, 32}, false, true},
                          {{2, 333, 301, 5, 64}, false, false, {1, 5, 333, 301}},
                          {{1, 512, 512, 8, 64}, false, false, {1, 8, 512, 512}},
                          {{5, 300, 200, 6, 128}, true, false, {5, 1, 1, 200}},
                          {{3, 257, 129, 6, 80}, true, true, {3, 1, 257, 129}},
                          {{2, 130, 154, 6, 160}, false, false, {1, 6, 1, 154}},
                          {{2, 200, 90, 3, 256}, false, true, {2, 1, 1, 90}}})
    for (const DType bias : std::set{dtype, DType::f32}) {
      const Heads& h = m.of;
      const bool biased = m.bias.rank() > 0;
      if (!biased && bias == DType::f32) continue;
      const ops::Attention attrs{
          .scale = h.scale, .causal = m.causal, .bias = biased, .key_lengths = m.lengths};
      const std::string label =
          str("masked_n", h.n, "_t", h.t, "_s", h.s, "_a", h.a, "_k", h.width,
              m.causal ? "_causal" : "", m.lengths ? "_lengths" : "", h.scale > 1 ? "_peaks" : "",
              !biased         ? ""
              : bias == dtype ? "_bias"
                              : "_bias_f32");
      const Shape q{h.n, h.t, h.a, h.width}, k{h.n, h.s, h.a, h.width}, lse{h.n, h.a, h.t};
      Large c{label, &ops::def::attention(), attrs, {q, k, k}, dtype};
      if (biased) c.others[c.in.size()] = bias, c.in.push_back(m.bias);
      if (m.lengths) c.others[c.in.size()] = DType::i64, c.in.push_back({h.n});
      c.integers = h.s + 1;
      out.push_back(c);
      c.op = &ops::def::attention_grad();
      c.in.insert(c.in.end(), {q, lse, q});
      if (h.width <= 160 && h.scale == 0) out.push_back(c);
    }
}

std::vector<Large> large_cases() {
  std::vector<Large> out;
  if (only("cuda").empty()) return out;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    add_products(out, dtype);
    add_activated(out, dtype);
    add_convolutions(out, dtype);
    if (dtype == DType::f32) continue;
    add_attention(out, dtype);
    add_attention_grad(out, dtype);
    add_packed_attention(out, dtype);
    add_masked_attention(out, dtype);
  }
  return out;
}

class OnLarge : public OnBackend, public testing::WithParamInterface<Large> {
  void SetUp() override { open("cuda"); }

 protected:
  std::vector<Bytes> run(const Kernel& k, const Tune& tune);
};
class Agreement : public OnLarge {};
class Activated : public OnLarge {};

// Results on guarded, poisoned memory.
std::vector<Bytes> OnLarge::run(const Kernel& k, const Tune& tune) {
  const Signature s = GetParam().signature();
  Device& device = *context_.device;
  const Program program = k.prepare(s, tune, device);
  GuardedArrays memory(device);
  std::vector<size_t> in, out;
  for (const Type& t : s.in) {
    const auto count = static_cast<size_t>(t.shape.numel());
    RefArray x{t.shape, noise(count, str(t, in.size()))};
    if (!is_float(t.dtype))
      for (double& v : x.v) v = std::floor((v + 1) / 2 * static_cast<double>(GetParam().integers));
    in.push_back(memory.add(stored(x, t.dtype), 0));
  }
  for (const Type& t : s.out) out.push_back(memory.add_poisoned(t.bytes(), 0));
  const size_t workspace = memory.add_poisoned(program.workspace, 0);
  memory.upload();
  Call call;
  for (const size_t i : in) call.in.push_back(memory.address(i));
  for (const size_t i : out) call.out.push_back(memory.address(i));
  call.workspace = memory.address(workspace);
  program.run(call);
  memory.download();
  std::vector<Bytes> results;
  for (const size_t i : out) {
    EXPECT_TRUE(memory.intact(i)) << "wrote outside of an output";
    results.push_back(memory.content(i));
  }
  for (const size_t i : in) EXPECT_FALSE(memory.changed(i)) << "changed an input";
  return results;
}

struct Agreed {
  DType dtype;
  double terms;
  std::string what;
};

// Both round once at the end, and sum `terms` values in f32 in orders of their own: the table's
// tolerance, of the full tensor, and of each element apart from its own rounding.
void expect_agreement(const RefArray& a, const RefArray& b, const Agreed& as) {
  const double unit = tolerance(as.dtype, 1, as.terms, 0);
  double error = 0, size = 0, worst = 0;
  for (size_t i = 0; i < a.v.size(); ++i) {
    const double d = a.v[i] - b.v[i];
    error += d * d;
    size += b.v[i] * b.v[i];
    const double beside = std::fabs(d) - 2 * unit * std::fabs(b.v[i]);
    if (!(beside <= worst)) worst = beside;  // also takes NaN
  }
  const double rms = std::sqrt(size / static_cast<double>(std::max<size_t>(a.v.size(), 1)));
  EXPECT_LE(std::sqrt(error), 2 * unit * std::sqrt(size)) << as.what;
  EXPECT_LE(worst, 16 * unit * rms) << as.what;
}

TEST_P(Agreement, with_the_general_kernel) {
  const Signature s = GetParam().signature();
  std::vector<const Kernel*> kernels;
  for (const Kernel* k : kernels_of(s.op->name, "cuda"))
    if (k->supports(s, *context_.device)) kernels.push_back(k);
  ASSERT_FALSE(kernels.empty());
  if (kernels.size() == 1) GTEST_SKIP() << "there is one kernel for it";
  const auto want =
      run(*kernels.back(),
          kernels.back()->space ? kernels.back()->space(s, *context_.device)[0] : Tune{});
  kernels.pop_back();
  const double terms = cost_of(s).flops / static_cast<double>(s.out[0].shape.numel());
  for (const Kernel* k : kernels) {
    std::vector<Tune> tunes = {Tune{}};
    if (k->space) tunes = k->space(s, *context_.device);
    for (size_t t = 0; t < tunes.size(); ++t) {
      const std::string what = str(k->name, ", choice ", t);
      const auto have = run(*k, tunes[t]);
      EXPECT_TRUE(run(*k, tunes[t]) == have) << what << ": two runs differ";
      for (size_t i = 0; i < s.out.size(); ++i)
        expect_agreement(loaded(have[i], s.out[i]), loaded(want[i], s.out[i]),
                         {s.out[i].dtype, terms, str(what, ", output ", i)});
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(cuda, Agreement, testing::ValuesIn(large_cases()), [](const auto& info) {
  return str(info.param.op->name, "__", info.param.label, "__", info.param.dtype);
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Agreement);

double activated(const ops::Gate& gate, double x) {
  const Scalar y = ops::activated(gate, Scalar::input(0));
  double out = 0;
  Expr(1, {&y, 1}).evaluate({&x, 1}, {&out, 1});
  return out;
}

// However a matmul is split, its activation is that of the stored result: the kept pre-activation
// determines the activation up to its own rounding.
TEST_P(Activated, kept_pre_activation__determines_the_activation) {
  const Signature s = GetParam().signature();
  const ops::EpilogueForm form = ops::epilogue_form(s).value();
  const ops::Gate gate = form.gate;
  const size_t inputs = form.kind == ops::EpilogueForm::Kind::gated ? 2 : 1;
  const auto columns = static_cast<size_t>(s.out[0].shape[-1]);
  for (const Kernel* k : kernels_of(s.op->name, "cuda")) {
    if (!k->supports(s, *context_.device)) continue;
    std::vector<Tune> tunes = {Tune{}};
    if (k->space) tunes = k->space(s, *context_.device);
    for (size_t t = 0; t < tunes.size(); ++t) {
      const auto have = run(*k, tunes[t]);
      const RefArray a = loaded(have[0], s.out[0]), z = loaded(have[1], s.out[1]);
      for (size_t i = 0; i < a.v.size(); ++i) {
        std::array<double, 2> x{};
        for (size_t half = 0; half < inputs; ++half)
          x[half] = z.v[(i / columns * inputs + half) * columns + i % columns];
        const double want =
            activated(gate, x[inputs == 1 ? 0 : gate.of]) * (inputs == 1 ? 1 : x[1 - gate.of]);
        constexpr double expression = 1e-5;  // in f32, far below the rounding to 16 bits
        // of GELU with an error function, where it is a factor
        const double fitted = gate.erf && inputs == 2 ? 4e-5 * std::fabs(x[1 - gate.of]) : 0;
        const double allowed =
            (rounding_unit(s.out[0].dtype) + expression) * std::fabs(want) + fitted + 1e-6;
        ASSERT_NEAR(a.v[i], want, allowed) << k->name << ", choice " << t << ", of " << x[0];
      }
    }
  }
}

std::vector<Large> kept_products() {
  std::vector<Large> all, kept;
  if (only("cuda").empty()) return kept;
  for (const DType dtype : {DType::bf16, DType::f16}) add_activated(all, dtype);
  for (const Large& c : all)
    if (c.signature().out.size() == 2) kept.push_back(c);
  return kept;
}

INSTANTIATE_TEST_SUITE_P(cuda, Activated, testing::ValuesIn(kept_products()), [](const auto& info) {
  return str(info.param.label, "__", info.param.dtype);
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Activated);

// Kernel options that few shapes choose are among the candidates compared.
class Reached : public OnBackend, public testing::WithParamInterface<std::string> {
  void SetUp() override { open("cuda"); }
};

TEST_P(Reached, by_choices__ping_pong_and_cluster_split_k) {
  std::set<std::string> named;
  bool any = false;
  for (const Large& c : large_cases()) {
    const Signature s = c.signature();
    if (s.op->name != GetParam()) continue;
    for (const Kernel* k : kernels_of(s.op->name, "cuda")) {
      if (!k->name.ends_with("_sm90") || !k->supports(s, *context_.device)) continue;
      any = true;
      for (const Tune& t : k->space(s, *context_.device))
        for (const auto& [name, value] : t.values) named.insert(name);
    }
  }
  if (!any) GTEST_SKIP() << "no kernel for this device";
  EXPECT_TRUE(named.contains("ping_pong"));
  EXPECT_TRUE(named.contains("cluster_split_k"));
}

INSTANTIATE_TEST_SUITE_P(cuda, Reached,
                         testing::Values("matmul", "conv2d", "conv2d_dx", "conv2d_dw"),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Reached);

}  // namespace
}  // namespace ebb::test::agreement_test
