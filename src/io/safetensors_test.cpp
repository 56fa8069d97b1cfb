#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/files.h"

namespace ebb::io {
namespace {

namespace fs = std::filesystem;
using namespace ebb::testing;

std::string file_text(std::string_view json, size_t data_bytes, uint64_t length) {
  std::string s(8, '\0');
  std::memcpy(s.data(), &length, 8);
  s += json;
  for (size_t i = 0; i < data_bytes; ++i) s += static_cast<char>(i + 1);
  return s;
}
std::string file_text(std::string_view json, size_t data_bytes) {
  return file_text(json, data_bytes, json.size());
}

std::span<const uint8_t> as_bytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

// The error for a malformed file; "" if it is accepted.
std::string error_of_text(const std::string& text) {
  return ebb::testing::error_of([&] { TensorFile::from_bytes(as_bytes(text), "bad.safetensors"); });
}

std::string entry(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return str("{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":", offsets, "}");
}
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return str("{\"a\":", entry(dtype, shape, offsets), "}");
}

// ---- what is accepted ----

TEST(safetensors, every_dtype__round_trips_bit_for_bit) {
  const Folder folder;
  std::vector<NamedTensor> tensors;
  for (const DType d : {DType::f32, DType::u8, DType::bf16, DType::i64, DType::f16, DType::i32}) {
    Tensor t(d, {3, 5});
    auto* p = static_cast<uint8_t*>(t.raw());
    for (int64_t i = 0; i < t.bytes(); ++i) p[i] = static_cast<uint8_t>(i * 37 + 11);
    tensors.push_back({str("t.", d), t});
  }
  tensors.push_back({"empty \"q\" \\ \n\u00e9", Tensor(DType::f32, {0, 7})});
  tensors.push_back({"scalar", scalar_tensor(2.5f)});
  const std::string path = folder / "a.safetensors";
  const std::map<std::string, std::string> metadata{{"format", "pt"}, {"k\t", "v\"\u4e2d"}};
  write_safetensors(path, tensors, metadata);
  EXPECT_EQ(folder.files(), 1u);

  const auto file = TensorFile::open(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    const Tensor back = file.load(name);
    ASSERT_EQ(back.type(), t.type()) << name;
    EXPECT_EQ(std::memcmp(back.raw(), t.raw(), static_cast<size_t>(t.bytes())), 0) << name;
  }
  EXPECT_EQ(file.entries()[0].name, "t.f32");
  EXPECT_EQ(file.find("scalar").shape, Shape{});
  const std::string text = file_bytes(path);
  EXPECT_EQ(*reinterpret_cast<const uint64_t*>(text.data()) % 8, 0u);  // data start aligned
}

TEST(safetensors, entries__come_in_file_order_not_header_order) {
  const std::string json =
      str("{\"b\":", entry("U8", "[3]", "[2,5]"), ",\"a\":", entry("U8", "[2]", "[0,2]"),
          ",\"e\":", entry("U8", "[0]", "[2,2]"), "}  ");
  const std::string text = file_text(json, 5);
  const auto file = TensorFile::from_bytes(as_bytes(text), "m");
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_EQ(file.entries()[1].name, "e");
  EXPECT_EQ(file.entries()[2].name, "b");
  EXPECT_EQ(file.load("b").span<uint8_t>()[0], 3);
}

TEST(safetensors, f64__loads_rounded_to_f32) {
  const double values[2] = {0.1, -1e300};
  std::string text = file_text(one("F64", "[2]", "[0,16]"), 16);
  std::memcpy(text.data() + text.size() - 16, values, 16);
  const Tensor t = TensorFile::from_bytes(as_bytes(text), "m").load("a");
  EXPECT_EQ(t.span<float>()[0], 0.1f);
  EXPECT_EQ(t.span<float>()[1], -std::numeric_limits<float>::infinity());
}

TEST(safetensors, bool__loads_as_zero_and_one) {
  std::string text = file_text(one("BOOL", "[3]", "[0,3]"), 3);
  text[text.size() - 1] = 0;
  const Tensor t = TensorFile::from_bytes(as_bytes(text), "m").load("a");
  EXPECT_EQ(std::vector<uint8_t>(t.span<uint8_t>().begin(), t.span<uint8_t>().end()),
            (std::vector<uint8_t>{1, 1, 0}));
}

TEST(safetensors, foreign_dtypes__are_listed_and_refused_on_load) {
  for (const auto& [dtype, bytes] : std::map<std::string, int>{{"I8", 2},
                                                               {"U16", 4},
                                                               {"U32", 8},
                                                               {"U64", 16},
                                                               {"I16", 4},
                                                               {"C64", 16},
                                                               {"F4", 1},
                                                               {"F8_E8M0", 2}}) {
    const std::string text =
        file_text(one(dtype, "[2]", str("[0,", bytes, "]")), static_cast<size_t>(bytes));
    const auto file = TensorFile::from_bytes(as_bytes(text), "m.safetensors");
    EXPECT_EQ(file.entries()[0].file_dtype, dtype);
    EXPECT_FALSE(file.entries()[0].dtype.has_value());
    expect_error([&] { file.load("a"); }, str("cannot be loaded (", dtype, ")  m.safetensors"));
  }
}

TEST(safetensors, unaligned_data__loads) {
  std::string json = one("F32", "[1]", "[0,4]") + "  ";
  while (json.size() % 2 == 0) json += ' ';
  std::string text = file_text(json, 4);
  const float v = 1.5f;
  std::memcpy(text.data() + text.size() - 4, &v, 4);
  EXPECT_EQ(TensorFile::from_bytes(as_bytes(text), "m").load("a").span<float>()[0], 1.5f);
}

TEST(safetensors, missing_name__suggests_the_nearest) {
  const std::string text =
      file_text("{\"unet.conv_in.weight\":" + entry("U8", "[1]", "[0,1]") + "}", 1);
  const auto file = TensorFile::from_bytes(as_bytes(text), "m");
  expect_error([&] { file.find("unet.conv_in.wieght"); }, "did you mean 'unet.conv_in.weight'?");
}

TEST(safetensors, no_tensors__is_legal) {
  EXPECT_EQ(error_of_text(file_text("{}", 0)), "");
  EXPECT_EQ(error_of_text(file_text("{\"__metadata__\":{}}", 0)), "");
}

TEST(safetensors, escaped_names__are_decoded) {
  const std::string text =
      file_text("{\"\\u00e9\\ud83d\\ude00\\/\":" + entry("U8", "[1]", "[0,1]") + "}", 1);
  EXPECT_TRUE(TensorFile::from_bytes(as_bytes(text), "m").contains("\u00e9\U0001F600/"));
}

// ---- what is refused ----

struct Bad {
  std::string name;   // of the case
  std::string text;   // the file
  std::string error;  // part of the message
};

std::string deep(size_t n) { return std::string(n, '['); }

std::vector<Bad> bad_files() {
  const std::string ok = entry("U8", "[1]", "[0,1]");
  const auto json = [](std::string name, const std::string& text, std::string error) {
    return Bad{std::move(name), file_text(text, 1), std::move(error)};
  };
  std::vector<Bad> all{
      {"short_file", "1234567", "at least 8 bytes (7)"},
      {"empty_file", "", "at least 8 bytes (0)"},
      {"header_over_limit", file_text("{}", 0, 100'000'001), "at most 100000000 bytes (100000001)"},
      {"header_length_max", file_text("{}", 0, ~uint64_t{0}), "(18446744073709551615)"},
      {"header_beyond_file", file_text("{}", 3, 6), "must end within the file (6 of 5 bytes)"},
      {"header_empty", file_text("", 4), "must start with '{'"},
      {"first_byte", file_text(" {}", 0), "must start with '{'"},
      {"trailing_text", file_text("{}x", 0), "only padding may follow"},
      {"trailing_newline", file_text("{}\n", 0), "only padding may follow"},
      {"trailing_nul", file_text(std::string("{}\0", 3), 0), "only padding may follow"},
      {"two_objects", file_text("{}{}", 0), "only padding may follow"},
      {"no_closing_brace", file_text("{\"__metadata__\":{}", 0), "must go on with ',' or '}'"},
      {"utf8_stray", file_text("{\"\x80\":1}", 0), "must be valid UTF-8 (byte 2)"},
      {"utf8_overlong", file_text("{\"\xC0\x80\":1}", 0), "must be valid UTF-8"},
      {"utf8_surrogate", file_text("{\"\xED\xA0\x80\":1}", 0), "must be valid UTF-8"},
      {"utf8_beyond", file_text("{\"\xF4\x90\x80\x80\":1}", 0), "must be valid UTF-8"},
      {"utf8_cut", file_text("{\"a\":\"\xE2\x82", 0), "must be valid UTF-8"},
      {"hole", file_text(one("U8", "[2]", "[1,3]"), 3), "hole from 0 to 1"},
      {"trailing_data", file_text(one("U8", "[2]", "[0,2]"), 3), "(2 of 3 bytes used)"},
      {"data_without_tensors", file_text("{}", 3), "(0 of 3 bytes used)"},
      {"overlap",
       file_text(
           "{\"a\":" + entry("U8", "[2]", "[0,2]") + ",\"b\":" + entry("U8", "[2]", "[1,3]") + "}",
           3),
       "must not overlap the one before (starts at 1, the other ends at 2)"},
      {"beyond_data", file_text(one("U8", "[3]", "[0,3]"), 2),
       "within the data: is the file whole? (3 of 2 bytes)"},
      {"unknown_dtype_case", file_text(one("f32", "[1]", "[0,4]"), 4), "unknown dtype 'f32'"},
      {"sub_byte", file_text(one("F4", "[3]", "[0,1]"), 1), "must fill whole bytes (12 bits)"},
  };
  const std::vector<Bad> entries{
      json("nesting", "{\"a\":" + deep(100000), "must be an object, found an array"),
      json("nesting_in_shape", one("U8", deep(100000), "[0,1]"),
           "shape must be an integer, found an array"),
      json("nesting_in_metadata", "{\"__metadata__\":{\"a\":" + deep(100000), "must be a string"),
      json("duplicate_tensor", "{\"a\":" + ok + ",\"a\":" + ok + "}", "a key twice: 'a'"),
      json("duplicate_escaped", "{\"a\":" + ok + ",\"\\u0061\":" + ok + "}", "a key twice: 'a'"),
      json("duplicate_field",
           "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],"
           "\"data_offsets\":[0,1]}}",
           "a key twice: 'dtype'"),
      json("duplicate_metadata", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}",
           "a key twice: 'k'"),
      json("duplicate_metadata_object", "{\"__metadata__\":{},\"__metadata__\":{}}", "a key twice"),
      json("entry_number", "{\"a\":3}", "tensor 'a' must be an object, found a number"),
      json("entry_null", "{\"a\":null}", "must be an object, found null"),
      json("dtype_missing", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "must have a dtype"),
      json("shape_missing", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}",
           "must have a shape"),
      json("offsets_missing", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "two data_offsets"),
      json("offsets_one", one("U8", "[1]", "[1]"), "two data_offsets"),
      json("offsets_three", one("U8", "[1]", "[0,1,1]"), "data_offsets must have at most 2"),
      json("unknown_field",
           "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}",
           "unknown field 'x'"),
      json("dtype_number", "{\"a\":{\"dtype\":1}}", "dtype must be a string, found a number"),
      json("dtype_unknown", one("F128", "[1]", "[0,1]"), "unknown dtype 'F128'"),
      json("shape_string", one("U8", "\"1\"", "[0,1]"), "shape must be an array, found a string"),
      json("number_negative", one("U8", "[-1]", "[0,1]"), "must not be negative"),
      json("number_minus_zero", one("U8", "[1]", "[-0,1]"), "must not be negative"),
      json("number_fraction", one("U8", "[1.0]", "[0,1]"), "without fraction or exponent"),
      json("number_exponent", one("U8", "[1]", "[0,1e0]"), "without fraction or exponent"),
      json("number_leading_zero", one("U8", "[01]", "[0,1]"), "must not start with 0"),
      json("number_over_2_63", one("U8", "[9223372036854775808]", "[0,1]"), "below 2^63"),
      json("number_over_2_64", one("U8", "[99999999999999999999999]", "[0,1]"), "below 2^63"),
      json("number_bool", one("U8", "[true]", "[0,1]"), "must be an integer, found a bool"),
      json("nine_dims", one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), "at most 8 numbers"),
      json("product_overflow", one("U8", "[4294967296,4294967296]", "[0,1]"), "too large to count"),
      json("product_overflow_zero", one("F32", "[4611686018427387904,8,0]", "[0,0]"), "too large"),
      json("end_before_begin", one("U8", "[1]", "[1,0]"), "not end before it begins (1 to 0)"),
      json("size_mismatch", one("F32", "[1]", "[0,1]"), "must have 4 bytes for F32[1], its"),
      json("name_empty", "{\"\":" + ok + "}", "name must not be empty"),
      json("name_long", "{\"" + std::string(4097, 'n') + "\":" + ok + "}", "at most 4096 bytes"),
      json("name_nul", "{\"a\\u0000\":" + ok + "}", "must not contain NUL"),
      json("metadata_array", "{\"__metadata__\":[]}", "__metadata__ must be an object"),
      json("metadata_number", "{\"__metadata__\":{\"k\":1}}", "must be a string, found a number"),
      json("string_control", "{\"a\n\":" + ok + "}", "control character"),
      json("string_open", "{\"abc", "string has no end"),
      json("escape_unknown", "{\"\\x\":1}", "unknown escape"),
      json("escape_hex", "{\"\\u12g4\":1}", "four hexadecimal digits"),
      json("escape_lone_high", "{\"\\ud800\":1}", "lone surrogate"),
      json("escape_lone_low", "{\"\\udc00\":1}", "lone surrogate"),
      json("comma_missing", "{\"a\":" + ok + "\"b\":" + ok + "}", "must go on with ',' or '}'"),
      json("comma_trailing", "{\"a\":" + ok + ",}", "a key must be a string"),
      json("colon_missing", "{\"a\" " + ok + "}", "followed by ':'"),
      json("nul_byte", std::string("{\0}", 3), "a key must be a string"),
  };
  all.insert(all.end(), entries.begin(), entries.end());
  return all;
}

// For the runner's reports.
void PrintTo(const Bad& bad, std::ostream* out) { *out << bad.name; }

class safetensors_refuses : public ::testing::TestWithParam<Bad> {};

TEST_P(safetensors_refuses, malformed_file__names_rule_and_file) {
  const std::string error = error_of_text(GetParam().text);
  EXPECT_NE(error.find(GetParam().error), std::string::npos) << "'" << error << "'";
  EXPECT_TRUE(error.starts_with("safetensors: ")) << error;
  EXPECT_NE(error.find("bad.safetensors"), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(all, safetensors_refuses, ::testing::ValuesIn(bad_files()),
                         [](const auto& info) { return info.param.name; });

TEST(safetensors, header_cut_anywhere__is_an_error) {
  const std::string json =
      "{\"__metadata__\":{\"k\":\"v\\u00e9\"},\"a\":" + entry("U8", "[2,1]", "[0,2]") + "}";
  for (size_t n = 0; n < json.size(); ++n)
    EXPECT_NE(error_of_text(file_text(json.substr(0, n), 2)), "") << n;
  EXPECT_EQ(error_of_text(file_text(json, 2)), "");
}

TEST(safetensors, other_formats__are_called_by_their_name) {
  const Folder folder;
  const std::string path = folder / "x";
  for (const auto& [begin, name] :
       {std::pair{"\x89PNG\r\n\x1a\n", "must be a safetensors file (this is a PNG image)"},
        {"PK\x03\x04", "zip: must end with a directory: is the file whole?"},
        {"GGUF", "is a GGUF file"},
        {"{\"a\": 1}", "is JSON text"},
        {"# notes\n", "is text"},
        {"\xfe\xfe\xfe\xfe", "is this a safetensors file?"}}) {
    put_file(path, str(begin, "12345678"));
    expect_error([&] { TensorFile::open(path); }, name);
  }
}

TEST(safetensors, million_tensors_and_one__is_an_error) {
  std::string json = "{";
  for (int i = 0; i <= 1'000'000; ++i)
    json += (i ? ",\"" : "\"") + std::to_string(i) +
            R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const std::string error = error_of_text(file_text(json + "}", 0));
  EXPECT_NE(error.find("an object of the header must have at most 1000000 members (1000001)"),
            std::string::npos)
      << error;
}

TEST(safetensors, file_that_cannot_be_read__is_an_error) {
  const Folder folder;
  expect_error([&] { TensorFile::open(folder / "none"); }, "cannot open (No such file");
  expect_error([&] { TensorFile::open(folder / "."); }, "must be a regular file");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  expect_error([&] { TensorFile::open(folder / "fifo"); }, "must be a regular file");
}

TEST(safetensors, file_cut_short_after_open__is_an_error) {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"a", Tensor(DType::f32, {1000})}});
  const auto file = TensorFile::open(path);
  fs::resize_file(path, 2000);
  expect_error([&] { file.load("a"); }, "cut short");
}

TEST(safetensors, file_written_to_after_open__is_an_error) {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"a", Tensor(DType::f32, {1000})}});
  const auto file = TensorFile::open(path);
  EXPECT_EQ(file.load("a").shape(), (Shape{1000}));
  const std::string bytes = testing::file_bytes(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << bytes;
  expect_error([&] { file.load("a"); }, str("safetensors: file was written to while it was read (",
                                            bytes.size(), " bytes when it was opened)  ", path));
}

// ---- shards ----

void put_shards(const Folder& folder, const std::string& index) {
  put_file(folder / "m1.safetensors", file_text(one("U8", "[2]", "[0,2]"), 2));
  put_file(
      folder / "m2.safetensors",
      file_text("{\"b\":" + entry("U8", "[1]", "[0,1]") + ",\"__metadata__\":{\"k\":\"v\"}}", 1));
  put_file(folder / "m.safetensors.index.json", index);
}

TEST(safetensors_index, shards__open_as_one) {
  const Folder folder;
  put_shards(folder,
             "{\"metadata\":{\"total_size\":3.0e0,\"x\":[null,true,{\"y\":-1}]},\n"
             "\"weight_map\":{\"b\":\"m2.safetensors\",\"a\":\"m1.safetensors\"}}\n");
  const auto file = TensorFile::open(folder / "m.safetensors.index.json");
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_EQ(file.load("b").span<uint8_t>()[0], 1);
  EXPECT_EQ(file.load("a").span<uint8_t>()[1], 2);
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.files().size(), 2u);
}

// The index names scales as it does weights; a scale may be in another shard.
TEST(safetensors_index, scales_of_fp8__are_taken_from_any_shard) {
  const Folder folder;
  put_file(folder / "m1.safetensors",
           file_text("{\"l.weight\":" + entry("F8_E4M3", "[2]", "[0,2]") +
                         ",\"k.weight\":" + entry("F8_E4M3", "[2]", "[2,4]") +
                         ",\"k.scale_weight\":" + entry("F32", "[1]", "[4,8]") + "}",
                     8));
  put_file(folder / "m2.safetensors",
           file_text("{\"l.scale_weight\":" + entry("F32", "[1]", "[0,4]") + "}", 4));
  put_file(folder / "m.safetensors.index.json",
           R"({"weight_map":{"l.weight":"m1.safetensors","k.weight":"m1.safetensors",)"
           R"("k.scale_weight":"m1.safetensors","l.scale_weight":"m2.safetensors"}})");
  const auto file = TensorFile::open(folder / "m.safetensors.index.json");
  ASSERT_EQ(file.entries().size(), 2u);
  for (const char* name : {"l.weight", "k.weight"}) {
    ASSERT_TRUE(file.find(name).scale) << name;
    EXPECT_EQ(file.load(name).dtype(), DType::f32) << name;
  }
  EXPECT_EQ(file.find("l.weight").scale->shard, 1u);
}

TEST(safetensors_index, malformed_index__is_an_error) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {R"({"weight_map":{"a":"m1.safetensors","b":"../m2.safetensors"}})", "bare file name"},
      {R"({"weight_map":{"a":"/m1.safetensors"}})", "bare file name"},
      {R"({"weight_map":{"a":"x\\m1.safetensors"}})", "bare file name"},
      {R"({"weight_map":{"a":"c:m1.safetensors"}})", "bare file name"},
      {R"({"weight_map":{"a":"m1.safetensors\u0000"}})", "bare file name"},
      {R"({"weight_map":{"a":".."}})", "bare file name"},
      {R"({"weight_map":{"a":""}})", "bare file name"},
      {R"({"weight_map":{"a":"m1.safetensors","a":"m2.safetensors"}})", "a key twice"},
      {R"({"weight_map":{"a":1}})", "file name must be a string"},
      {R"({"metadata":{}})", "must have a weight_map"},
      {R"({"metadata":[[[[[[[[[[1]]]]]]]]]],"weight_map":{}})", "nested too deeply"},
      {R"({"metadata":{"a":1,"a":2},"weight_map":{}})", "a key twice"},
      {R"({"metadata":01,"weight_map":{}})", "malformed number"},
      {R"({"weight_map":{}} x)", "only padding"},
      {R"({"weight_map":{"a":"m3.safetensors"}})", "cannot open"},
      {R"({"weight_map":{"a":"m1.safetensors","c":"m2.safetensors"}})", "mapped to none"},
      {R"({"weight_map":{"a":"m1.safetensors","b":"m1.safetensors"}})", "'b' is not in"},
      {R"({"weight_map":{"a":"m1.safetensors","b":"m2.safetensors","c":"m2.safetensors"}})",
       "'c' is not in m2.safetensors"},
      {R"({"weight_map":{"a":"m.safetensors.index.json"}})", "safetensors: "},
  };
  for (const auto& [index, error] : cases) {
    const Folder folder;
    put_shards(folder, index);
    expect_error([&] { TensorFile::open(folder / "m.safetensors.index.json"); }, error);
  }
}

TEST(safetensors_index, tensor_in_two_shards__is_an_error) {
  const Folder folder;
  put_shards(folder, R"({"weight_map":{"a":"m1.safetensors","b":"m2.safetensors"}})");
  put_file(folder / "m2.safetensors", file_text(one("U8", "[2]", "[0,2]"), 2));
  expect_error([&] { TensorFile::open(folder / "m.safetensors.index.json"); },
               "'a' is in m2.safetensors but mapped to m1.safetensors");
}

// ---- writing ----

TEST(write_safetensors, bad_names__are_errors_and_write_nothing) {
  const Folder folder;
  const Tensor t(DType::f32, {1});
  const std::string path = folder / "a";
  using List = std::vector<NamedTensor>;
  expect_error([&] { write_safetensors(path, List{{"x", t}, {"x", t}}); }, "a key twice: 'x'");
  expect_error([&] { write_safetensors(path, List{{"", t}}); }, "must not be empty");
  expect_error(
      [&] {
        write_safetensors(path, List{{"__metadata__", t}});
      },
      "other than __metadata__");
  expect_error([&] { write_safetensors(path, List{{"\xff", t}}); }, "UTF-8");
  expect_error([&] { write_safetensors(path, List{{"x", Tensor()}}); }, "on the host");
  expect_error([&] { write_safetensors(path, List{}, {{"k", "\xff"}}); }, "UTF-8");
  EXPECT_EQ(folder.files(), 0u);
}

TEST(write_safetensors, no_such_folder__is_an_error) {
  const Folder folder;
  expect_error([&] { write_safetensors(folder / "none/a", std::vector<NamedTensor>{}); },
               "cannot create");
  fs::create_directory(folder / "taken");
  expect_error([&] { write_safetensors(folder / "taken", std::vector<NamedTensor>{}); },
               "cannot write");
  EXPECT_EQ(folder.files(), 1u);
}

// A file-size limit stands for the full disk: write() fails in the middle in the same way.
TEST(write_safetensors, disk_full__leaves_the_old_file_whole) {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"a", scalar_tensor(3.0f)}});
  const std::string before = file_bytes(path);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = old;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = ebb::testing::error_of([&] {
    write_safetensors(path, std::vector<NamedTensor>{{"b", Tensor(DType::f32, {100000})}});
  });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(
      error,
      "safetensors: cannot write (File too large; room for 4096 of its 400072 bytes)  " + path);
  EXPECT_EQ(file_bytes(path), before);
  EXPECT_EQ(folder.files(), 1u);
}

}  // namespace
}  // namespace ebb::io
