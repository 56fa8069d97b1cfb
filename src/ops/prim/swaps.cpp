#include "ops/prim/swaps.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {

std::string text_of(const Swap& s) { return str(s.operand, ":", s.run); }

void parse_text(Swap& s, std::string_view text) {
  const size_t colon = text.find(':');
  require(colon != text.npos, "swaps: expected operand:run (got '", text, "')");
  s = {parse_integer(text.substr(0, colon), "swaps"),
       parse_integer(text.substr(colon + 1), "swaps")};
}

int64_t Swaps::run_of(size_t operand) const {
  for (const Swap& s : all_)
    if (s.operand == static_cast<int64_t>(operand)) return s.run;
  return 0;
}

void Swaps::add(size_t operand, int64_t run) {
  const auto of = static_cast<int64_t>(operand);
  const auto at = std::ranges::lower_bound(all_.items, of, {}, &Swap::operand);
  all_.items.insert(at, {of, run});
}

void check_swaps(const Swaps& s, std::span<const Type> operands, std::string_view subject) {
  int64_t last = -1;
  for (const auto& [k, run] : s) {
    require(k > last && k < static_cast<int64_t>(operands.size()), subject,
            ": swapped operands must rise within the ", operands.size(), " there are (got ", k,
            ")");
    const Type& t = operands[static_cast<size_t>(k)];
    require(t.shape.rank() > 0 && run > 0 && t.shape[-1] % (2 * run) == 0, subject,
            ": pairs of runs of ", run, " must fill the last dim of operand ", k, " (got ", t, ")");
    last = k;
  }
}

Value swap_runs(Value x, int64_t run) {
  const Shape& own = x.shape();
  std::vector<int64_t> sizes(own.sizes().begin(), own.sizes().end() - 1);
  sizes.insert(sizes.end(), {own[-1] / (2 * run), 2, run});
  const Value pairs = reshape(x, Shape(sizes));
  return reshape(concat({slice(pairs, -2, 1, 2), slice(pairs, -2, 0, 1)}, -2), own);
}

std::vector<Value> swap_values(const Swaps& s, std::vector<Value> operands) {
  for (const auto& [k, run] : s) {
    Value& v = operands[static_cast<size_t>(k)];
    v = swap_runs(v, run);
  }
  return operands;
}

}  // namespace ebb::ops
