// LoHa (Hyeon-Woo et al. 2021, arXiv:2108.06098; LyCORIS): the elementwise product of two low-rank
// matrices, (w1_a @ w1_b) * (w2_a @ w2_b), or of two filters in Tucker form.
#include "adapters/kind.h"
#include "base/error.h"
#include "nn/ops.h"

namespace ebb::adapters::kinds {
namespace {

// One of both: "1" or "2".
void check_half(const Module& m, const std::string& n, const WeightSize& w) {
  const std::string a = "w" + n + "_a", b = "w" + n + "_b", t = "t" + n;
  const int64_t r = m.size(b, 0);
  if (!m.has(t)) {
    m.expect(a, w.out, r, w);
    m.expect(b, r, w.in * w.taps, w);
    return;
  }
  const int64_t outer = m.size(t, 0);
  m.expect(t, outer, r * w.taps, w);
  m.expect(a, outer, w.out, w);
  m.expect(b, r, w.in, w);
}

int64_t rank(const Module& m, const WeightSize& w) {
  check_half(m, "1", w);
  check_half(m, "2", w);
  return m.size("w1_b", 0);
}

Value half(const DeltaInputs& in, const std::string& n) {
  const WeightSize& w = in.size;
  const Value a = in.tensor("w" + n + "_a"), b = in.tensor("w" + n + "_b");
  const int64_t r = a.shape().numel() / w.out;
  if (in.has("t" + n)) return tucker(transposed(a, r, w.out), in.tensor("t" + n), b, w);
  return ops::reshape(product(a, b, w.out, r, w.in * w.taps), {w.out, w.in, w.taps});
}

Value delta(const DeltaInputs& in) { return half(in, "1") * half(in, "2") * in.scale; }

// Drawn as LyCORIS draws them.
std::vector<Factor> factors(const FactorSizes& sizes, const Shape& weight) {
  const int64_t rows = weight[0], columns = weight.numel() / rows, r = sizes.rank;
  return {{"w1_a", {rows, r}, "normal", 0.1},
          {"w1_b", {r, columns}, "normal", 1},
          {"w2_a", {rows, r}},
          {"w2_b", {r, columns}, "normal", 1}};
}

}  // namespace

const AdapterKind& loha() {
  static const AdapterKind k{.name = "LoHa",
                             .help = "(w1_a @ w1_b) * (w2_a @ w2_b)",
                             .roles = {{".hada_w1_a", "w1_a", FileNames::kohya},
                                       {".hada_w1_b", "w1_b", FileNames::kohya},
                                       {".hada_w2_a", "w2_a", FileNames::kohya},
                                       {".hada_w2_b", "w2_b", FileNames::kohya},
                                       {".hada_t1", "t1"},
                                       {".hada_t2", "t2"}},
                             .main = "w1_a",
                             .rank = rank,
                             .delta = delta,
                             .factors = factors};
  return k;
}

}  // namespace ebb::adapters::kinds
