#include "io/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "base/error.h"

namespace ebb::io {
namespace {

constexpr int64_t block = 512;
constexpr int64_t longest_name = 1 << 16;

using Block = std::array<uint8_t, block>;

// Fields of a header.
struct Range {
  size_t at, size;
};
constexpr Range name_field{0, 100}, size_field{124, 12}, sum_field{148, 8}, type_field{156, 1},
    magic_field{257, 5}, prefix_field{345, 155};

std::string text_of(const Block& b, Range r) {
  const char* from = reinterpret_cast<const char*>(b.data()) + r.at;
  return {from, std::find(from, from + r.size, '\0')};
}

class TarReader {
 public:
  explicit TarReader(const ReadFile& archive) : archive_(archive) {}

  std::vector<TarMember> members() {
    while (next()) {
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void failed(std::string_view rule) const {
    fail("tar: ", rule, " (byte ", at_, ")  ", archive_.name());
  }

  // Digits in base 8, or, with the first bit set, all other bits (GNU).
  int64_t number(const Block& b, Range r, const char* what) const {
    if (b[r.at] & 0x80) {
      int64_t v = b[r.at] & 0x7f;
      for (size_t i = 1; i < r.size; ++i) {
        if (v >> 54) failed(str("the ", what, " of a member is too large"));
        v = v << 8 | b[r.at + i];
      }
      return v;
    }
    std::string digits = text_of(b, r);
    const size_t first = digits.find_first_not_of(' '), last = digits.find_last_not_of(' ');
    digits = first == std::string::npos ? "" : digits.substr(first, last - first + 1);
    int64_t v = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), v, 8);
    if (ec != std::errc() || end != digits.data() + digits.size() || v < 0)
      failed(str("the ", what, " of a member is no number ('", digits, "')"));
    return v;
  }

  void check_sum(const Block& b) const {
    int64_t sum = 0;
    for (size_t i = 0; i < b.size(); ++i)
      sum += i >= sum_field.at && i < sum_field.at + sum_field.size ? ' ' : b[i];
    if (const int64_t said = number(b, sum_field, "checksum"); sum != said)
      failed(str("the checksum of a member is wrong (", sum, ", ", said, " expected)"));
  }

  std::string bytes(int64_t size) const {
    if (size > longest_name) failed(str("the name of a member is too long (", size, " bytes)"));
    std::string out(static_cast<size_t>(size), '\0');
    archive_.read(at_ + block, {reinterpret_cast<uint8_t*>(out.data()), out.size()});
    return out;
  }

  // Records "<length> <key>=<value>\n".
  void read_pax(const std::string& records) {
    for (size_t at = 0; at < records.size();) {
      size_t length = 0;
      const char *from = records.data() + at, *end = records.data() + records.size();
      const auto [digits, ec] = std::from_chars(from, end, length);
      if (ec != std::errc() || digits == end || *digits != ' ' || length > records.size() - at ||
          length < static_cast<size_t>(digits - from) + 2)
        failed("an extended header is damaged");
      const std::string_view record(digits + 1, from + length - 1);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) failed("an extended header is damaged");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") long_name_ = value;
      if (key == "size") {
        const auto [to, wrong] =
            std::from_chars(value.data(), value.data() + value.size(), long_size_);
        if (wrong != std::errc() || to != value.data() + value.size() || long_size_ < 0)
          failed("the size in an extended header is no number");
      }
      at += length;
    }
  }

  void take(const Block& b, int64_t size) {
    const char type = static_cast<char>(b[type_field.at]);
    if (type == 'L') {
      long_name_ = bytes(size);
      long_name_ = long_name_.substr(0, long_name_.find('\0'));
      return;
    }
    if (type == 'x') return read_pax(bytes(size));
    std::string name = text_of(b, name_field);
    const std::string prefix = text_of(b, magic_field) == "ustar" ? text_of(b, prefix_field) : "";
    if (!prefix.empty() && b[magic_field.at + 5] == '\0') name = str(prefix, '/', name);
    if (!long_name_.empty()) name = long_name_;
    long_name_.clear(), long_size_ = -1;
    if (type == '0' || type == '\0' || type == '7') out_.push_back({name, at_ + block, size});
  }

  // False behind the last member.
  bool next() {
    if (at_ == archive_.size() && at_ > 0) return false;
    if (archive_.size() - at_ < block) failed("the archive is cut short, or is none");
    Block b;
    archive_.read(at_, b);
    if (std::ranges::all_of(b, [](uint8_t v) { return v == 0; })) return false;
    if (at_ == 0 && b[0] == 0x1f && b[1] == 0x8b) failed("the archive is compressed by gzip");
    check_sum(b);
    const char type = static_cast<char>(b[type_field.at]);
    const bool extends = type == 'L' || type == 'x' || type == 'g' || type == 'K';
    const int64_t own = number(b, size_field, "size");
    const int64_t size = !extends && long_size_ >= 0 ? long_size_ : own;
    if (size > archive_.size() - at_ - block)
      failed(str("the archive ends within '", text_of(b, name_field), "'"));
    if (type != 'g' && type != 'K') take(b, size);
    at_ += block + (size + block - 1) / block * block;
    at_ = std::min(at_, archive_.size());
    return true;
  }

  const ReadFile& archive_;
  int64_t at_ = 0;
  std::string long_name_;  // of the next member; "": in its header
  int64_t long_size_ = -1;
  std::vector<TarMember> out_;
};

}  // namespace

std::vector<TarMember> tar_members(const ReadFile& archive) { return TarReader(archive).members(); }

}  // namespace ebb::io
