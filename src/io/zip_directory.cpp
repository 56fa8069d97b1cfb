#include "io/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"
#include "io/json_cursor.h"

namespace ebb::io {
namespace {

constexpr int64_t end_size = 22, end64_size = 56, locator_size = 20, header_size = 46,
                  local_size = 30, comment_limit = 65535;
constexpr int64_t directory_limit = int64_t{64} << 20;
constexpr uint32_t end_magic = 0x06054b50, end64_magic = 0x06064b50, locator_magic = 0x07064b50,
                   header_magic = 0x02014b50, local_magic = 0x04034b50;
constexpr uint64_t in_zip64 = 0xffffffff;  // a field of 32 bits whose value stands elsewhere
constexpr uint16_t zip64_extra = 1, encrypted = 1;

using Bytes = std::span<const uint8_t>;

uint64_t field(Bytes b, int64_t at, int size) {
  uint64_t out = 0;
  std::memcpy(&out, b.subspan(static_cast<size_t>(at), static_cast<size_t>(size)).data(),
              static_cast<size_t>(size));
  return out;
}

struct Directory {
  uint64_t entries = 0, begin = 0, size = 0;
};

class DirectoryReader {
 public:
  explicit DirectoryReader(const ReadFile& file) : file_(file) {}

  std::vector<ZipEntry> read() {
    const Directory d = directory();
    const auto all = static_cast<uint64_t>(file_.size());
    check(d.begin <= all && d.size <= all - d.begin, "directory must lie within the file (", d.size,
          " bytes at ", d.begin, " of ", all, ")");
    check(d.size <= static_cast<uint64_t>(directory_limit), "directory must have at most ",
          directory_limit, " bytes (", d.size, ")");
    const std::vector<uint8_t> bytes =
        read_at(static_cast<int64_t>(d.begin), static_cast<int64_t>(d.size));
    std::vector<ZipEntry> out;
    Bytes rest = bytes;
    while (!rest.empty()) out.push_back(entry(rest));
    check(out.size() == d.entries, "directory must have as many files as it says (", out.size(),
          " of ", d.entries, ")");
    return out;
  }

 private:
  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    require(ok, "zip: ", parts..., "  ", file_.name());
  }

  std::vector<uint8_t> read_at(int64_t at, int64_t size) const {
    std::vector<uint8_t> out(static_cast<size_t>(size));
    file_.read(at, out);
    return out;
  }

  // The last record of the file, behind which only a comment may stand.
  Directory directory() const {
    const int64_t size = std::min(file_.size(), end_size + comment_limit);
    const int64_t start = file_.size() - size;
    const std::vector<uint8_t> tail = read_at(start, size);
    for (int64_t at = size - end_size; at >= 0; --at) {
      if (field(tail, at, 4) != end_magic) continue;
      const auto comment = static_cast<int64_t>(field(tail, at + 20, 2));
      if (at + end_size + comment != size) continue;
      if (const auto wide = directory64(start + at)) return *wide;
      return {.entries = field(tail, at + 10, 2),
              .begin = field(tail, at + 16, 4),
              .size = field(tail, at + 12, 4)};
    }
    check(false, "must end with a directory: is the file whole?");
    return {};
  }

  std::optional<Directory> directory64(int64_t end) const {
    if (end < locator_size) return {};
    const std::vector<uint8_t> locator = read_at(end - locator_size, locator_size);
    if (field(locator, 0, 4) != locator_magic) return {};
    const uint64_t at = field(locator, 8, 8);
    check(at <= static_cast<uint64_t>(end - locator_size) &&
              static_cast<uint64_t>(end - locator_size) - at >= uint64_t{end64_size},
          "end of the directory must lie within the file (", at, ")");
    const std::vector<uint8_t> b = read_at(static_cast<int64_t>(at), end64_size);
    check(field(b, 0, 4) == end64_magic, "must have the record that its end names");
    return Directory{.entries = field(b, 32, 8), .begin = field(b, 48, 8), .size = field(b, 40, 8)};
  }

  // The first entry of what is left of the directory, which it leaves.
  ZipEntry entry(Bytes& rest) {
    const auto left = static_cast<int64_t>(rest.size());
    check(left >= header_size && field(rest, 0, 4) == header_magic, "directory is damaged");
    const auto name_size = static_cast<int64_t>(field(rest, 28, 2)),
               extra_size = static_cast<int64_t>(field(rest, 30, 2)),
               comment_size = static_cast<int64_t>(field(rest, 32, 2));
    const int64_t size = header_size + name_size + extra_size + comment_size;
    check(left >= size, "directory must not end within a name");
    ZipEntry out;
    out.name.assign(reinterpret_cast<const char*>(rest.data()) + header_size,
                    static_cast<size_t>(name_size));
    check(valid_utf8(out.name) && names_.insert(out.name).second,
          "names of files must be UTF-8 and differ  ", shown(out.name));
    const Bytes extra =
        rest.subspan(static_cast<size_t>(header_size + name_size), static_cast<size_t>(extra_size));
    place(rest, extra, out);
    rest = rest.subspan(static_cast<size_t>(size));
    return out;
  }

  void place(Bytes header, Bytes extra, ZipEntry& e) const {
    const uint64_t method = field(header, 10, 2), flags = field(header, 8, 2);
    check(method == 0, shown(e.name), " must be stored and not compressed (method ", method, ")");
    check((flags & encrypted) == 0, shown(e.name), " must not be encrypted");
    uint64_t size = field(header, 24, 4), packed = field(header, 20, 4),
             begin = field(header, 42, 4);
    read_zip64(extra, e, {&size, &packed, &begin});
    check(size == packed, shown(e.name), " must be stored (", packed, " bytes for ", size, ")");
    const auto all = static_cast<uint64_t>(file_.size());
    const auto within = [&](uint64_t at, uint64_t bytes) {
      check(at <= all && bytes <= all - at, shown(e.name), " must lie within the file (", bytes,
            " bytes at ", at, " of ", all, ")");
    };
    within(begin, local_size + e.name.size());
    const std::vector<uint8_t> local =
        read_at(static_cast<int64_t>(begin), local_size + static_cast<int64_t>(e.name.size()));
    const uint64_t name_size = field(local, 26, 2);
    check(field(local, 0, 4) == local_magic && name_size == e.name.size() &&
              std::equal(e.name.begin(), e.name.end(), local.begin() + local_size,
                         [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; }),
          shown(e.name), " must stand where the directory says");
    begin += local_size + name_size + field(local, 28, 2);
    within(begin, size);
    e.begin = static_cast<int64_t>(begin);
    e.end = static_cast<int64_t>(begin + size);
  }

  // Of these fields, in this order, those that say so stand in an extra field.
  void read_zip64(Bytes extra, const ZipEntry& e, std::initializer_list<uint64_t*> fields) const {
    if (std::ranges::none_of(fields, [](const uint64_t* f) { return *f == in_zip64; })) return;
    while (extra.size() >= 4) {
      const uint64_t id = field(extra, 0, 2), size = field(extra, 2, 2);
      if (size > extra.size() - 4) break;
      Bytes body = extra.subspan(4, size);
      if (id == zip64_extra) {
        for (uint64_t* f : fields) {
          if (*f != in_zip64) continue;
          check(body.size() >= 8, shown(e.name), " lacks sizes of 64 bits");
          *f = field(body, 0, 8);
          body = body.subspan(8);
        }
        return;
      }
      extra = extra.subspan(4 + size);
    }
    check(false, shown(e.name), " lacks sizes of 64 bits");
  }

  const ReadFile& file_;
  std::set<std::string> names_;
};

}  // namespace

std::vector<ZipEntry> read_zip_directory(const ReadFile& file) {
  return DirectoryReader(file).read();
}

}  // namespace ebb::io
