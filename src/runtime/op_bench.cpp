#include "runtime/op_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/random.h"
#include "ops/prim/matmul/op.h"
#include "ops/table.h"
#include "runtime/graph_bench.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(const std::function<void()>& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Random, never zero: zeros run faster than real data.
Tensor random_tensor(const Type& type, const Example& example, uint64_t seed) {
  Tensor t(is_float(type.dtype) ? Type{DType::f32, type.shape} : type);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const uint32_t word = random_block({.seed = seed}, static_cast<uint64_t>(i))[0];
    if (is_float(type.dtype)) {
      const double u = static_cast<double>(uniform_from(word));
      t.span<float>()[static_cast<size_t>(i)] =
          static_cast<float>(example.low + (example.high - example.low) * u);
    } else {
      const int64_t v = example.integers > 0 ? word % example.integers : 0;
      visit_dtype(type.dtype, [&]<class T>(T) {
        if constexpr (std::is_integral_v<T>)
          t.span<T>()[static_cast<size_t>(i)] = static_cast<T>(v);
      });
    }
  }
  return is_float(type.dtype) ? t.to(type.dtype) : t;
}

// One kernel on one signature, with its memory.
struct Case {
  Signature sig;
  const Kernel* kernel = nullptr;
  Program program;
  std::vector<Tensor> in, out;
  Tensor workspace;
  Call call;
};

Case make_case(const Context& context, const Signature& sig, const Example& example,
               const Kernel& kernel) {
  Case c{sig,
         &kernel,
         kernel.prepare(sig, kernel.space ? kernel.space(sig, *context.device)[0] : Tune{},
                        *context.device),
         {},
         {},
         {},
         {}};
  for (size_t i = 0; i < sig.in.size(); ++i)
    c.in.push_back(random_tensor(sig.in[i], example, i + 1));
  for (const Type& t : sig.out) c.out.emplace_back(t);
  c.workspace = Tensor(DType::u8, Shape{std::max<int64_t>(c.program.workspace, 1)});
  for (const Tensor& t : c.in) c.call.in.push_back(t.raw());
  for (const Tensor& t : c.out) c.call.out.push_back(t.raw());
  c.call.workspace = c.workspace.raw();
  return c;
}

RefArray as_double(const Tensor& t) {
  RefArray a{t.shape(), std::vector<double>(static_cast<size_t>(t.numel()))};
  if (is_float(t.dtype())) {
    const Tensor f = t.to(DType::f32);
    for (size_t i = 0; i < a.v.size(); ++i) a.v[i] = static_cast<double>(f.span<float>()[i]);
    return a;
  }
  visit_dtype(t.dtype(), [&]<class T>(T) {
    if constexpr (std::is_integral_v<T>)
      for (size_t i = 0; i < a.v.size(); ++i) a.v[i] = static_cast<double>(t.span<T>()[i]);
  });
  return a;
}

// The kernel against the op's reference in double, on one of the op's small examples. A guard for
// the bench; the tests are stricter.
void verify_small(const Context& context, const Kernel& kernel, const Signature& s,
                  const Example& e) {
  Case c = make_case(context, s, e, kernel);
  c.program.run(c.call);
  std::vector<RefArray> in, want;
  for (const Tensor& t : c.in) in.push_back(as_double(t));
  for (const Type& t : s.out)
    want.push_back({t.shape, std::vector<double>(static_cast<size_t>(t.shape.numel()))});
  s.op->reference(s, in, want);
  for (size_t k = 0; k < want.size(); ++k) {
    const RefArray have = as_double(c.out[k]);
    double error = 0, norm = 0;
    for (size_t i = 0; i < want[k].v.size(); ++i) {
      error += (have.v[i] - want[k].v[i]) * (have.v[i] - want[k].v[i]);
      norm += want[k].v[i] * want[k].v[i];
    }
    const bool low =
        std::any_of(s.in.begin(), s.in.end(), [](const Type& t) { return t.dtype == DType::bf16; });
    const double tolerance = low ? 3e-2 : 1e-4;
    require(std::sqrt(error) <= tolerance * std::sqrt(norm) + 1e-6, "bench: ", kernel.name,
            " is wrong by ", std::sqrt(error / std::max(norm, 1e-300)), " (at most ", tolerance,
            ")  ", s.text());
  }
}

Signature with_floats(const OpDef& op, const Example& e, DType dtype) {
  Signature s{&op, e.attrs, e.in, {}, ""};
  for (Type& t : s.in)
    if (is_float(t.dtype)) t.dtype = dtype;
  s.out = op.infer(s);
  return s;
}

void verify_kernel(const Context& context, const Kernel& kernel, const OpDef& op, DType dtype) {
  for (const Example& e : op.examples()) {
    const Signature s = with_floats(op, e, dtype);
    if (!e.bench && op.reference && kernel.supports(s, *context.device))
      verify_small(context, kernel, s, e);
  }
}

void check_case(Case& c) {
  std::vector<Tensor> first;
  for (Tensor& t : c.out) std::memset(t.raw(), 0xff, static_cast<size_t>(t.bytes()));  // NaN
  c.program.run(c.call);
  for (const Tensor& t : c.out) first.push_back(t.clone());
  for (Tensor& t : c.out) std::memset(t.raw(), 0xff, static_cast<size_t>(t.bytes()));
  c.program.run(c.call);
  for (size_t i = 0; i < c.out.size(); ++i) {
    require(std::memcmp(first[i].raw(), c.out[i].raw(), static_cast<size_t>(first[i].bytes())) == 0,
            "bench: ", c.kernel->name, " gives different bits in two runs  ", c.sig.text());
    if (!is_float(first[i].dtype())) continue;
    const Tensor values = first[i].to(DType::f32);
    for (const float v : values.span<float>())
      require(std::isfinite(v), "bench: ", c.kernel->name,
              " leaves an element unwritten or not finite  ", c.sig.text());
  }
}

// Rounds with other memory read in between, so that the inputs are not in the caches.
BenchResult time_case(Case& c, Ceilings& ceilings) {
  static constexpr int64_t flush_bytes = 64 << 20;
  std::vector<uint8_t> flush(flush_bytes, 1);
  std::vector<double> times;
  double spent = 0;
  while (times.size() < 5 || (spent < 0.3 && times.size() < 50)) {
    for (size_t i = 0; i < flush.size(); i += 64) ++flush[i];
    times.push_back(seconds([&] { c.program.run(c.call); }));
    spent += times.back();
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double q) {
    return times[static_cast<size_t>(q * static_cast<double>(times.size() - 1))];
  };
  const Cost cost = cost_of(c.sig);
  BenchResult r{.op = std::string(c.sig.op->name), .kernel = std::string(c.kernel->name)};
  const double t = at(0.5);
  r.us = t * 1e6;
  r.spread = (at(0.9) - at(0.1)) / t;
  r.gb_per_s = cost.bytes / t * 1e-9;
  r.tflop_per_s = cost.flops / t * 1e-12;
  const bool low = !c.sig.in.empty() && c.sig.in[0].dtype == DType::bf16;
  const bool matrix = c.sig.op->matrix_work;
  r.peak_percent = ceilings.percent(
      cost, t, matrix ? std::optional(low ? DType::bf16 : DType::f32) : std::nullopt);
  return r;
}

// The best of several sizes and all kernels.
double matmul_flops(const Context& context, DType dtype) {
  double most = 0;
  for (const int64_t n : {768, 1024, 2048}) {
    Signature s{&ops::def::matmul(),
                ops::def::matmul().attrs(),
                {{dtype, {n, n}}, {dtype, {n, n}}},
                {},
                ""};
    s.out = s.op->infer(s);
    for (const Kernel* k : kernels_of("matmul", context.device->backend())) {
      if (!k->supports(s, *context.device)) continue;
      Case c = make_case(context, s, {}, *k);
      for (int i = 0; i < 7; ++i)
        most = std::max(most, cost_of(s).flops / seconds([&] { c.program.run(c.call); }));
    }
  }
  return most;
}

void bench_example(const Context& context, const OpDef& op, const Example& e, DType dtype,
                   Ceilings& ceilings, const std::function<void(const BenchResult&)>& report) {
  const Signature s = with_floats(op, e, dtype);
  for (const Kernel* k : kernels_of(op.name, context.device->backend())) {
    if (!k->supports(s, *context.device) || k->alias) continue;
    verify_kernel(context, *k, op, dtype);
    Case c = make_case(context, s, e, *k);
    check_case(c);
    BenchResult r = time_case(c, ceilings);
    r.example = e.label;
    r.dtype = str(dtype);
    r.device = std::string(context.device->backend());
    report(r);
  }
}

}  // namespace

double Ceilings::percent(const Cost& work, double seconds, std::optional<DType> matrix) {
  double share = 0;
  const auto against = [&](double& ceiling, double amount) {
    ceiling = std::max(ceiling, amount / seconds);
    share = std::max(share, amount / ceiling / seconds);
  };
  if (work.bytes > 0) against(bytes_per_second, work.bytes);
  if (matrix && work.flops > 0) against(*matrix == DType::f32 ? flops_f32 : flops_bf16, work.flops);
  return 100 * share;
}

Ceilings measure_ceilings(const Context& context) {
  if (!context.device->on_host()) return measure_device_ceilings(context);
  Ceilings c;
  constexpr int64_t n = 1 << 26;  // bytes, past the caches of most processors
  std::vector<float> a(n / 4, 1.0f), b(n / 4);
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    best = std::min(best, seconds([&] {
#pragma omp parallel for schedule(static)
                      for (int64_t k = 0; k < n / 4; ++k)
                        b[static_cast<size_t>(k)] = a[static_cast<size_t>(k)];
                    }));
  }
  c.bytes_per_second = 2.0 * n / best;
  c.flops_f32 = matmul_flops(context, DType::f32);
  c.flops_bf16 =
      context.device->fast_in(DType::bf16) ? matmul_flops(context, DType::bf16) : c.flops_f32;
  return c;
}

namespace {

void bench_on_device(const Context& context, const std::string& filter, Ceilings& ceilings,
                     const std::function<void(const BenchResult&)>& report) {
  const auto run = [&](const GraphCase& c) {
    if (str(c.op, '/', c.example).find(filter) != std::string::npos)
      report(bench_graph(context, c, ceilings));
  };
  for (const OpDef* op : all_ops()) {
    if (!op->examples) continue;
    for (const Example& e : op->examples())
      for (const DType d : {DType::f32, DType::bf16})
        if (e.bench && context.device->fast_in(d)) run(one_op_case(*op, e, d));
  }
  for (const GraphCase& c : graph_cases()) run(c);
}

}  // namespace

std::vector<std::string> op_bench_names(const Device& device) {
  std::vector<std::string> out;
  for (const OpDef* op : all_ops()) {
    if (!op->examples) continue;
    // on the host the kernels are timed themselves, and an op of expressions has none
    if (device.on_host() && kernels_of(op->name, device.backend()).empty()) continue;
    for (const Example& e : op->examples())
      if (e.bench) out.push_back(str(op->name, '/', e.label));
  }
  if (!device.on_host())
    for (const GraphCase& c : graph_cases()) out.push_back(str(c.op, '/', c.example));
  return out;
}

void bench_ops(const Context& context, const std::string& filter, Ceilings& ceilings,
               const std::function<void(const BenchResult&)>& report) {
  if (!context.device->on_host()) return bench_on_device(context, filter, ceilings, report);
  for (const OpDef* op : all_ops()) {
    if (!op->examples) continue;
    for (const Example& e : op->examples()) {
      if (!e.bench || str(op->name, '/', e.label).find(filter) == std::string::npos) continue;
      for (const DType d : {DType::f32, DType::bf16}) {
        const bool floats =
            std::any_of(e.in.begin(), e.in.end(), [](const Type& t) { return is_float(t.dtype); });
        if (d == DType::f32 || (floats && context.device->fast_in(d)))
          bench_example(context, *op, e, d, ceilings, report);
      }
    }
  }
}

}  // namespace ebb
