#include "ops/prim/segments.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
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

bool repeat_segments(const Segments& p, std::span<const Type> segments) {
  bool own = true, ones = true;
  for (size_t k = 0; k < segments.size(); ++k) {
    own &= segments[k].shape[p.dim] == p.widths[k];
    ones &= segments[k].shape[p.dim] == 1;
  }
  return p.dim != -1 && ones && !own;
}

std::vector<Type> concat_types(const Segments& p, std::span<const Type> in,
                               std::string_view subject) {
  const size_t count = p.widths.size();
  std::vector<Type> out;
  for (size_t i = 0; i < in.size();) {
    if (!p.has_in(out.size())) {
      out.push_back(in[i++]);
      continue;
    }
    const size_t there = std::min(count, in.size() - i);
    Type full = in[i];
    const auto segments = in.subspan(i, there);
    for (const Type& t : segments)
      require(-p.dim <= t.shape.rank(), subject, ": segments of ", out.size(), " have no dim ",
              p.dim.value(), " (got ", t, ")");
    const bool repeat = there == count && repeat_segments(p, segments);
    for (size_t k = 0; k < count; ++k) {
      Type next = full;
      next.shape[p.dim] = repeat ? 1 : p.widths[k];
      require(k < there && segments[k] == next, subject, ": segment ", k, " of ", out.size(),
              " must be ", next, k < there ? str(" (got ", segments[k], ")") : "");
    }
    full.shape[p.dim] = p.width();
    out.push_back(full);
    i += count;
  }
  return out;
}

std::vector<Value> concat_values(const Segments& p, std::span<const Value> in) {
  std::vector<Value> out;
  for (size_t i = 0; i < in.size();) {
    const size_t count = p.has_in(out.size()) ? p.widths.size() : 1;
    std::vector<Value> segments(in.begin() + static_cast<int64_t>(i),
                                in.begin() + static_cast<int64_t>(i + count));
    for (size_t k = 0; k < count && count > 1; ++k) {
      Shape s = segments[k].shape();
      s[p.dim] = p.widths[k];
      segments[k] = broadcast_to(segments[k], s);
    }
    out.push_back(concat(segments, p.dim));
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
      out.back().shape[p.dim] = w;
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
      out.push_back(slice(full[k], p.dim, at, at + w));
      at += w;
    }
  }
  return out;
}

}  // namespace ebb::ops
