// Files of tensors and images, damaged in every way that a header, a place or a program can be: a
// clear error each. What is damaged and where is drawn from a seed.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "io/image.h"
#include "io/safetensors.h"
#include "support/files.h"
#include "support/jpeg.h"
#include "support/torch_file.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;

using Random = std::mt19937;

size_t below(Random& random, size_t n) { return random() % n; }

std::vector<NamedTensor> some_tensors() {
  return {{"a.weight", Tensor(DType::f32, {2, 3})},
          {"b", Tensor(DType::f16, {5})},
          {"c", Tensor(DType::i64, {1})}};
}

// `text` with the k-th of its occurrences of `from` replaced.
std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string with_length(std::string bytes, uint64_t length) {
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return bytes;
}

// Of the same header length: blanks stand at its end.
std::string with_json(const std::string& bytes, const std::string& from, const std::string& to) {
  std::string out = replaced(bytes, from, to);
  return with_length(out, out.size() - (bytes.size() - static_cast<uint8_t>(bytes[0])));
}

std::string damaged_safetensors(const std::string& good, Random& random) {
  const auto header = static_cast<size_t>(static_cast<uint8_t>(good[0]));
  const std::string number = std::to_string(1 + below(random, 1'000'000'000));
  switch (below(random, 10)) {
    case 0: return good.substr(0, below(random, good.size()));
    case 1: return good + std::string(1 + below(random, 99), 'x');
    case 2: return with_length(good, header + 1 + below(random, 1 << 20));
    case 3: return with_length(good, below(random, header - 8));
    case 4: return with_json(good, "\"F32\"", "\"F" + number + "\"");
    case 5: return with_json(good, "[2,3]", "[2," + number + "7]");
    case 6: return with_json(good, "[0,24]", "[0," + number + "9]");
    case 7: return with_json(good, "\"b\"", "\"a.weight\"");
    case 8: return with_json(good, "\"shape\"", "\"shape\":[[[[[[[[[[[[1]]]]]]]]]]]],\"s\"");
    default: {
      std::string out = good;
      out[8 + below(random, header - 8)] = static_cast<char>(1 + below(random, 8));
      return out;
    }
  }
}

std::string number_of(Random& random) {
  std::string out = "\x8a\x08";
  for (int i = 0; i < 7; ++i) out += static_cast<char>(random() | 1);
  return out + static_cast<char>(0x7f);
}

std::string harmful(Random& random) {
  constexpr const char* modules[] = {"os",   "posix",  "nt",        "subprocess", "builtins",
                                     "sys",  "shutil", "socket",    "importlib",  "runpy",
                                     "code", "pty",    "webbrowser"};
  constexpr const char* names[] = {"system",        "eval",       "exec",    "popen",
                                   "Popen",         "__import__", "getattr", "rmtree",
                                   "import_module", "run_path",   "spawn"};
  return pickled_call(modules[below(random, std::size(modules))],
                      names[below(random, std::size(names))], "true");
}

// A pickle of torch with one damage in what it says.
std::string damaged_pickle(Random& random) {
  const std::string start = "\x80\x02", open = "}" + pickled("a");
  const auto tensor = [&](const std::string& offset, const std::string& size,
                          const std::string& stride, const char* type = "FloatStorage",
                          const char* key = "0") {
    return open + pickled_global("torch._utils", "_rebuild_tensor") + "((" + pickled("storage") +
           pickled_global("torch", type) + pickled(key) + pickled("cpu") + pickled(int64_t{4}) +
           "tQ" + offset + "(" + size + "t(" + stride + "ttRs.";
  };
  const std::string zero = pickled(int64_t{0}), one = pickled(int64_t{1}),
                    large = number_of(random);
  switch (below(random, 12)) {
    case 0: return start + tensor(large, one, one);
    case 1: return start + tensor(zero, large, one);
    case 2: return start + tensor(zero, large + large, one + one);
    case 3: return start + tensor(zero, pickled(int64_t{2}), large);
    case 4: return start + tensor(zero, one + one, one);
    case 5: return start + tensor(zero, one, one, "Size");
    case 6: return start + tensor(zero, one, one, "FloatStorage", "7");
    case 7: return start + tensor(pickled("x"), one, one);
    case 8: return start + open + harmful(random) + "s.";
    case 9: return start + harmful(random) + "0" + tensor(zero, one, one);
    case 10: return start + open + "]q\1h\1as.";
    default:
      return start + std::string(1 + below(random, 9), static_cast<char>(0xa0 + below(random, 90)));
  }
}

std::string damaged_torch(const std::string& good, bool legacy, Random& random) {
  switch (below(random, legacy ? 3 : 6)) {
    case 0: return good.substr(0, below(random, good.size()));
    case 1:
    case 2: {
      const std::string pickle = damaged_pickle(random), data(16, '\0');
      return legacy ? torch_legacy(pickle, {{4, data}}) : torch_zip(pickle, {data});
    }
    case 3: {  // compressed
      std::string out = good;
      out[out.find("PK\1\2") + 10] = static_cast<char>(8 + below(random, 20));
      return out;
    }
    case 4: {  // another place of a file
      std::string out = good;
      out[out.find("PK\1\2") + 42 + below(random, 4)] = static_cast<char>(1 + below(random, 255));
      return out;
    }
    default:
      return replaced(good, "data.pkl",
                      "data.pk" + std::string(1, static_cast<char>('a' + below(random, 11))));
  }
}

void expect_errors(int count, const std::function<std::string(Random&)>& make,
                   const std::function<void(const std::string&)>& read) {
  Random random(20);
  for (int i = 0; i < count; ++i) {
    const std::string bytes = make(random);
    const std::string error = error_of([&] { read(bytes); });
    EXPECT_NE(error.find("m.file"), std::string::npos) << "file " << i << ": " << error;
  }
}

void load_all(const std::string& bytes) {
  const auto file = TensorFile::from_bytes(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "m.file");
  for (const TensorEntry& e : file.entries()) file.load(e);
}

}  // namespace

TEST(damaged_files, safetensors__are_an_error_each) {
  const Folder folder;
  write_safetensors(folder / "m", some_tensors());
  const std::string good = file_bytes(folder / "m");
  load_all(replaced(good, "a.weight", "a.weighs"));
  expect_errors(
      100, [&](Random& r) { return damaged_safetensors(good, r); }, load_all);
}

TEST(damaged_files, files_of_torch__are_an_error_each) {
  for (const bool legacy : {false, true}) {
    const std::string good = torch_text(some_tensors(), "state_dict", legacy);
    load_all(good);
    expect_errors(
        80, [&](Random& r) { return damaged_torch(good, legacy, r); }, load_all);
  }
}

// Within a chunk every changed byte breaks its checksum; a cut file ends too early.
TEST(damaged_files, images__are_an_error_each) {
  const Folder folder;
  Tensor image(DType::u8, {17, 19, 3});
  for (size_t i = 0; i < image.span<uint8_t>().size(); ++i)
    image.span<uint8_t>()[i] = static_cast<uint8_t>(i * i / 7);
  write_png(folder / "m.png", image);
  const std::string png = file_bytes(folder / "m.png");
  const std::vector<uint8_t> jpeg = jpeg_of(image, {});
  const std::string jpg(jpeg.begin(), jpeg.end());
  const auto read = [&](const std::string& bytes) {
    put_file(folder / "m.file", bytes);
    read_image(folder / "m.file");
  };
  read(png);
  read(jpg);
  expect_errors(
      100,
      [&](Random& random) {
        const std::string& good = below(random, 2) ? png : jpg;
        if (below(random, 2)) return good.substr(0, below(random, good.size() - 12));
        std::string out = png;
        out[below(random, 2) ? below(random, 8) : 16 + below(random, 13)] ^=
            static_cast<char>(1 + below(random, 255));
        return out;
      },
      read);
}

}  // namespace ebb::io
