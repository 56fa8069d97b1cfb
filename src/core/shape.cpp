#include "core/shape.h"

#include <algorithm>

#include "base/error.h"
#include "base/fields.h"

namespace ebb {

int64_t Shape::numel() const {
  int64_t n = 1;
  for (const int64_t s : sizes_) n *= s;
  return n;
}

std::vector<int64_t> Shape::strides() const {
  std::vector<int64_t> out(sizes_.size());
  int64_t n = 1;
  for (size_t i = sizes_.size(); i-- > 0;) {
    out[i] = n;
    n *= sizes_[i];
  }
  return out;
}

Shape Shape::slice(int64_t first, int64_t last) const {
  return Shape(std::vector<int64_t>(sizes_.begin() + first, sizes_.begin() + last));
}

namespace {

std::string shape_text(const Shape& s) {
  std::string out = "[";
  for (int64_t i = 0; i < s.rank(); ++i) out.append(i ? "," : "").append(std::to_string(s[i]));
  out += ']';
  return out;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << shape_text(s); }

Shape broadcast(const Shape& a, const Shape& b, std::string_view op) {
  const int64_t rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> out(static_cast<size_t>(rank));
  for (int64_t i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[-i] : 1, y = i <= b.rank() ? b[-i] : 1;
    require(x == y || x == 1 || y == 1, op, ": shapes must broadcast (", x, " against ", y,
            " in dim ", rank - i, ")  ", a, ", ", b);
    out[static_cast<size_t>(rank - i)] = x == 1 ? y : x;
  }
  return Shape(std::move(out));
}

bool broadcastable(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int64_t i = 1; i <= from.rank(); ++i)
    if (from[-i] != to[-i] && from[-i] != 1) return false;
  return true;
}

std::vector<int64_t> broadcast_strides(const Shape& from, const Shape& to) {
  const std::vector<int64_t> own = from.strides();
  std::vector<int64_t> out(static_cast<size_t>(to.rank()), 0);
  for (int64_t i = 1; i <= from.rank(); ++i)
    if (from[-i] != 1)
      out[out.size() - static_cast<size_t>(i)] = own[own.size() - static_cast<size_t>(i)];
  return out;
}

std::string type_text(const Type& t) { return std::string(name_of(t.dtype)) + shape_text(t.shape); }

std::ostream& operator<<(std::ostream& out, const Type& t) { return out << type_text(t); }

Type parse_type(std::string_view text) {
  const size_t open = text.find('[');
  require(open != std::string_view::npos && text.back() == ']',
          "type: expected dtype[sizes] (got '", text, "')");
  std::vector<int64_t> sizes;
  set_field({"type", &sizes, ""}, text.substr(open));
  return {parse_dtype(text.substr(0, open)), Shape(std::move(sizes))};
}

}  // namespace ebb
