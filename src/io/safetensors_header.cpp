#include "io/safetensors_header.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json_size.h"
#include "io/json_cursor.h"

namespace ebb::io {
namespace {

constexpr int64_t max_rank = 8;

constexpr std::array<FileDType, 21> file_dtypes{{
    {"F32", 32, DType::f32, true},       {"BF16", 16, DType::bf16, true},
    {"F16", 16, DType::f16, true},       {"I32", 32, DType::i32, true},
    {"I64", 64, DType::i64, true},       {"U8", 8, DType::u8, true},
    {"BOOL", 8, DType::u8, false},       {"F64", 64, DType::f32, false},
    {"I8", 8, std::nullopt, false},      {"I16", 16, std::nullopt, false},
    {"U16", 16, std::nullopt, false},    {"U32", 32, std::nullopt, false},
    {"U64", 64, std::nullopt, false},    {"C64", 64, std::nullopt, false},
    {"F8_E4M3", 8, DType::bf16, false},  {"F8_E5M2", 8, DType::bf16, false},
    {"F8_E8M0", 8, std::nullopt, false}, {"F6_E2M3", 6, std::nullopt, false},
    {"F6_E3M2", 6, std::nullopt, false}, {"F4", 4, std::nullopt, false},
    {"C128", 128, std::nullopt, false},
}};

class HeaderReader {
 public:
  HeaderReader(std::string_view json, int64_t data_bytes, const std::string& file)
      : cursor_(json, "safetensors", file), data_bytes_(data_bytes), file_(file) {}

  TensorHeader read() {
    cursor_.object("header", [&](const std::string& key) {
      if (key == "__metadata__") {
        read_metadata();
      } else {
        read_entry(key);
      }
    });
    cursor_.end(" ");
    check_layout();
    return std::move(header_);
  }

 private:
  void read_metadata() {
    cursor_.object("__metadata__", [&](const std::string& key) {
      header_.metadata[key] = cursor_.string("__metadata__ value");
    });
  }

  void read_entry(const std::string& name) {
    if (name.empty()) cursor_.failed("tensor name must not be empty");
    if (static_cast<int64_t>(name.size()) > safetensors_name_limit)
      cursor_.failed(
          str("tensor name must be at most ", safetensors_name_limit, " bytes, has ", name.size()));
    if (name.find('\0') != std::string::npos) cursor_.failed("tensor name must not contain NUL");
    TensorEntry e;
    e.name = name;
    std::vector<int64_t> offsets;
    bool has_dtype = false, has_shape = false;
    cursor_.object("tensor " + shown(name), [&](const std::string& key) {
      if (key == "dtype") {
        e.file_dtype = cursor_.string("dtype");
        has_dtype = true;
      } else if (key == "shape") {
        e.shape = Shape(integers("shape", max_rank));
        has_shape = true;
      } else if (key == "data_offsets") {
        offsets = integers("data_offsets", 2);
      } else {
        cursor_.failed("tensor " + shown(name) + " has an unknown field " + shown(key));
      }
    });
    if (!has_dtype) cursor_.failed("tensor " + shown(name) + " must have a dtype");
    if (!has_shape) cursor_.failed("tensor " + shown(name) + " must have a shape");
    if (offsets.size() != 2)
      cursor_.failed("tensor " + shown(name) + " must have two data_offsets");
    e.begin = offsets[0];
    e.end = offsets[1];
    check_entry(e);
    header_.entries.push_back(std::move(e));
  }

  std::vector<int64_t> integers(std::string_view what, int64_t limit) {
    std::vector<int64_t> out;
    cursor_.array(what, [&](int64_t i) {
      if (i >= limit) cursor_.failed(str(what, " must have at most ", limit, " numbers"));
      out.push_back(cursor_.integer(what));
    });
    return out;
  }

  template <class... Parts>
  void check(bool ok, const TensorEntry& e, const Parts&... parts) const {
    require(ok, "safetensors: tensor ", ok ? "" : shown(e.name), " ", parts..., "  ", file_);
  }

  void check_entry(TensorEntry& e) const {
    const FileDType* dtype = find_file_dtype(e.file_dtype);
    if (!dtype) check(false, e, "has an unknown dtype ", shown(e.file_dtype));
    e.dtype = dtype->loads_as;
    // Zero sizes are left out, so that no order of the product can overflow.
    int64_t bits = dtype->bits;
    bool empty = false, fits = true;
    for (const int64_t size : e.shape) {
      empty = empty || size == 0;
      if (size > 0) fits = fits && !__builtin_mul_overflow(bits, size, &bits);
    }
    check(fits, e, "is too large to count  ", e.shape);
    if (empty) bits = 0;
    check(bits % 8 == 0, e, "must fill whole bytes (", bits, " bits)");
    check(e.begin <= e.end, e, "must not end before it begins (", e.begin, " to ", e.end, ")");
    check(e.end - e.begin == bits / 8, e, "must have ", bits / 8, " bytes for ", e.file_dtype,
          e.shape, ", its data_offsets say ", e.end - e.begin, " (", e.begin, " to ", e.end, ")");
    check(e.end <= data_bytes_, e, "must end within the data: is the file whole? (", e.end, " of ",
          data_bytes_, " bytes)");
  }

  // The tensors must tile the data: no hole, no overlap, nothing behind the last.
  void check_layout() {
    auto& entries = header_.entries;
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    int64_t at = 0;
    for (const TensorEntry& e : entries) {
      check(e.begin >= at, e, "must not overlap the one before (starts at ", e.begin,
            ", the other ends at ", at, ")");
      check(e.begin == at, e, "must follow the one before (hole from ", at, " to ", e.begin, ")");
      at = e.end;
    }
    require(at == data_bytes_, "safetensors: data must end with the last tensor (", at, " of ",
            data_bytes_, " bytes used)  ", file_);
  }

  JsonCursor cursor_;
  int64_t data_bytes_;
  const std::string& file_;
  TensorHeader header_;
};

}  // namespace

const FileDType* find_file_dtype(std::string_view name) {
  for (const FileDType& d : file_dtypes)
    if (d.name == name) return &d;
  return nullptr;
}

TensorHeader parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                      const std::string& file) {
  require(!json.empty() && json.front() == '{', "safetensors: header must start with '{'  ", file);
  const size_t members = json_size(json).names;  // told before any is kept
  require(members <= json_member_limit, "safetensors: an object of the header must have at most ",
          json_member_limit, " members (", members, ")  ", file);
  return HeaderReader(json, data_bytes, file).read();
}

std::string_view safetensors_dtype(DType dtype) {
  for (const FileDType& d : file_dtypes)
    if (d.loads_as == dtype && d.same_bytes) return d.name;
  fail("safetensors: no name for dtype ", dtype);
}

}  // namespace ebb::io
