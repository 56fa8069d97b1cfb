#include "io/idx.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "support/files.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;

std::string idx(std::string_view sizes, std::string_view data, char type = 8) {
  std::string s{'\0', '\0', type, static_cast<char>(sizes.size())};
  for (const char n : sizes) s += {'\0', '\0', '\0', n};
  return s.append(data);
}

std::string gzipped(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

TEST(read_idx, plain_and_gzipped__give_the_same) {
  const Folder folder;
  const std::string text = idx("\x02\x03\x01", "abcdef");
  put_file(folder / "plain", text);
  put_file(folder / "zipped", gzipped(text));
  for (const char* name : {"plain", "zipped"}) {
    const Tensor t = read_idx(folder / name);
    EXPECT_EQ(t.type(), (Type{DType::u8, {2, 3, 1}}));
    EXPECT_EQ(t.span<uint8_t>()[5], 'f');
    EXPECT_TRUE(is_idx(folder / name, 3));
    EXPECT_FALSE(is_idx(folder / name, 1));
  }
}

TEST(read_idx, sizes_above_a_byte__are_big_endian) {
  const Folder folder;
  std::string text{'\0', '\0', '\x08', '\1', '\0', '\1', '\0', '\2'};  // 65538
  put_file(folder / "a", gzipped(text + std::string(65538, 'x')));
  EXPECT_EQ(read_idx(folder / "a").shape(), (Shape{65538}));
}

TEST(read_idx, malformed_files__are_errors) {
  const std::string good = idx("\x02\x02", "abcd"), zipped = gzipped(good);
  std::string corrupt = zipped;
  corrupt[corrupt.size() - 6] ^= 1;  // the CRC
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "header is cut short"},
      {good.substr(0, 3), "header is cut short"},
      {good.substr(0, 11), "header is cut short"},
      {good.substr(0, 15), "must have 4 bytes of data (3)"},
      {good + "x", "must end with the data (4 bytes)"},
      {"\1" + good.substr(1), "two zero bytes (1 0)"},
      {idx("\x01", "abcd", 13), "type 8 (13)"},
      {idx("", ""), "1 to 4 dims (0)"},
      {idx("\1\1\1\1\1", "a"), "1 to 4 dims (5)"},
      {idx(std::string_view("\0\2", 2), ""), "sizes must be positive (0)"},
      {std::string("\0\0\10\3", 4) + std::string(12, '\xff'), "must have at most"},
      {zipped.substr(0, zipped.size() - 9), "cut short"},
      {gzipped(good + "x"), "must end with the data"},
      {gzipped(good.substr(0, 15)), "must have 4 bytes of data (3)"},
      {corrupt, "broken gzip data (incorrect data check)"},
      {zipped.substr(0, 10) + "\xff\xff\xff\xff", "broken gzip data (invalid"},
  };
  const Folder folder;
  for (const auto& [text, error] : cases) {
    put_file(folder / "a", text);
    expect_error([&] { read_idx(folder / "a"); }, error);
  }
  expect_error([&] { read_idx(folder / "none"); }, "idx: cannot open");
}

}  // namespace
}  // namespace ebb::io
