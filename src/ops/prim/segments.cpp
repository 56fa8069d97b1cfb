#include "ops/prim/segments.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {
namespace {

bool contains(const std::vector<int64_t>& all, size_t index) {
  return std::find(all.begin(), all.end(), static_cast<int64_t>(index)) != all.end();
}

void check_indices(const std::vector<int64_t>& all, size_t count, std::string_view what) {
  for (size_t i = 0; i < all.size(); ++i)
    require(all[i] >= 0 && all[i] < static_cast<int64_t>(count) && (i == 0 || all[i - 1] < all[i]),
            what, " must rise within the ", count, " there are (got ", all[i], ")");
}

}  // namespace

bool Segments::has_in(size_t operand) const { return contains(segmented_in, operand); }
bool Segments::has_out(size_t result) const { return contains(segmented_out, result); }
int64_t Segments::width() const {
  return std::accumulate(widths.begin(), widths.end(), int64_t{0});
}

void check_segments(const Segments& p, size_t operands, size_t results, std::string_view subject) {
  require(p.widths.size() != 1, subject, ": one segment is none");
  for (const int64_t w : p.widths)
    require(w > 0, subject, ": segments need positive widths (got ", w, ")");
  require(!p.widths.empty() || (p.segmented_in.empty() && p.segmented_out.empty()), subject,
          ": segments need widths");
  check_indices(p.segmented_in, operands, str(subject, ": operands in segments"));
  check_indices(p.segmented_out, results, str(subject, ": results in segments"));
}

namespace {

// The operand (or result) that a tensor belongs to, and its segment; -1: not segmented. Those of
// `which` are segmented.
struct Location {
  size_t of = 0;
  int64_t segment = -1;
};
Location locate(const Segments& p, const std::vector<int64_t>& which, size_t tensor) {
  for (size_t of = 0;; ++of) {
    const size_t count = contains(which, of) ? p.widths.size() : 1;
    if (tensor < count) return {of, count == 1 ? -1 : static_cast<int64_t>(tensor)};
    tensor -= count;
  }
}

}  // namespace

size_t operand_of(const Segments& p, size_t in) { return locate(p, p.segmented_in, in).of; }

bool same_segment(const Segments& p, size_t out, size_t in) {
  return locate(p, p.segmented_out, out).segment == locate(p, p.segmented_in, in).segment;
}

std::vector<Type> concat_types(const Segments& p, std::span<const Type> in,
                               std::string_view subject) {
  std::vector<Type> out;
  for (size_t i = 0; i < in.size();) {
    Type full = in[i++];
    if (p.has_in(out.size())) {
      require(full.shape.rank() > 0 && full.shape[-1] == p.widths[0], subject, ": segment 0 of ",
              out.size(), " must be ", p.widths[0], " wide (got ", full, ")");
      for (size_t k = 1; k < p.widths.size(); ++k, ++i) {
        Type next = full;
        next.shape[-1] = p.widths[k];
        require(i < in.size() && in[i] == next, subject, ": segment ", k, " of ", out.size(),
                " must be ", next, i < in.size() ? str(" (got ", in[i], ")") : "");
      }
      full.shape[-1] = p.width();
    }
    out.push_back(full);
  }
  return out;
}

std::vector<Value> concat_values(const Segments& p, std::span<const Value> in) {
  std::vector<Value> out;
  for (size_t i = 0; i < in.size();) {
    const size_t count = p.has_in(out.size()) ? p.widths.size() : 1;
    const auto segments = in.subspan(i, count);
    out.push_back(concat({segments.begin(), segments.end()}, -1));
    i += count;
  }
  return out;
}

std::vector<Type> split_types(const Segments& p, std::span<const Type> full) {
  std::vector<Type> out;
  for (size_t k = 0; k < full.size(); ++k) {
    out.push_back(full[k]);
    if (!p.has_out(k)) continue;
    out.pop_back();
    for (const int64_t w : p.widths) {
      out.push_back(full[k]);
      out.back().shape[-1] = w;
    }
  }
  return out;
}

std::vector<Value> split_values(const Segments& p, std::span<const Value> full) {
  std::vector<Value> out;
  for (size_t k = 0; k < full.size(); ++k) {
    if (!p.has_out(k)) {
      out.push_back(full[k]);
      continue;
    }
    int64_t at = 0;
    for (const int64_t w : p.widths) {
      out.push_back(slice(full[k], -1, at, at + w));
      at += w;
    }
  }
  return out;
}

}  // namespace ebb::ops
