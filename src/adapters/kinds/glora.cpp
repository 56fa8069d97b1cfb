// GLoRA (Chavan et al. 2023, arXiv:2306.07967) as LyCORIS has it: W a1 a2 + b1 b2. Older files have
// the factors the other way round, W a2 a1 + b2 b1; the shapes tell.
#include "adapters/kind.h"
#include "base/error.h"
#include "nn/ops.h"

namespace ebb::adapters::kinds {
namespace {

// Of a tensor with `rows` rows, for a weight of so many outputs: whether b1 comes first.
bool is_new(const Shape& a1, const Shape& b1, const WeightSize& w) {
  return a1.rank() > 0 && b1.rank() > 0 && a1[0] == w.in && b1[0] == w.out;
}

int64_t rank(const Module& m, const WeightSize& w) {
  const bool fresh = is_new(m.shape("a1"), m.shape("b1"), w);
  const std::string_view a_in = fresh ? "a1" : "a2", a_out = fresh ? "a2" : "a1",
                         b_out = fresh ? "b1" : "b2", b_in = fresh ? "b2" : "b1";
  const int64_t ra = m.size(a_out, 0), rb = m.size(b_in, 0);
  m.expect(a_in, w.in, ra, w);
  m.expect(a_out, ra, w.in, w);
  if (m.has("bm")) {
    const int64_t outer = m.size("bm", 0);
    m.expect("bm", outer, rb * w.taps, w);
    m.expect(b_out, w.out, outer, w);
    m.expect(b_in, rb, w.in, w);
  } else {
    m.expect(b_out, w.out, rb, w);
    m.expect(b_in, rb, w.in * w.taps, w);
  }
  return ra;
}

Value delta(const DeltaInputs& in) {
  const WeightSize& w = in.size;
  Value a1 = in.tensor("a1"), a2 = in.tensor("a2"), b1 = in.tensor("b1"), b2 = in.tensor("b2");
  if (!is_new(a1.shape(), b1.shape(), w)) std::swap(a1, a2), std::swap(b1, b2);
  const int64_t ra = a1.shape().numel() / w.in, rb = b1.shape().numel() / w.out;
  const Value rows = ops::permute(in.weight, {0, 2, 1});  // [out, taps, in]
  const Value small = product(rows, a1, w.out * w.taps, w.in, ra);
  const Value a = product(small * in.scale, a2, w.out * w.taps, ra, w.in);
  const Value b = in.has("bm") ? tucker(ops::reshape(b1, {w.out, rb}), in.tensor("bm"), b2, w)
                               : product(b1, b2, w.out, rb, w.in * w.taps);
  return ops::permute(ops::reshape(a, {w.out, w.taps, w.in}), {0, 2, 1}) +
         ops::reshape(b, {w.out, w.in, w.taps}) * in.scale;
}

}  // namespace

const AdapterKind& glora() {
  static const AdapterKind k{.name = "GLoRA",
                             .help = "W @ a1 @ a2 + b1 @ b2",
                             .roles = {{".a1.weight", "a1"},
                                       {".a2.weight", "a2"},
                                       {".b1.weight", "b1"},
                                       {".b2.weight", "b2"},
                                       {".bm.weight", "bm"}},
                             .main = "a1",
                             .reads_weight = true,
                             .rank = rank,
                             .delta = delta};
  return k;
}

}  // namespace ebb::adapters::kinds
