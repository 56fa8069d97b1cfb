// Files of torch.save: those of torch itself (tools/golden/torch_golden.py), hostile ones made by
// hand, and damaged ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "io/pickle.h"
#include "io/safetensors.h"
#include "support/files.h"
#include "support/source_folder.h"
#include "support/torch_file.h"

namespace ebb::io {
namespace {

using namespace ebb::testing;

std::string golden(const std::string& name) {
  return source_folder() + "/tests/golden/torch/" + name;
}

TensorFile file_of(const std::string& bytes) {
  return TensorFile::from_bytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                "m.pt");
}

bool same(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

// As floats; not-a-numbers are alike.
bool equal(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::f32), y = b.to(DType::f32);
  return a.type() == b.type() &&
         std::ranges::equal(x.span<float>(), y.span<float>(), [](float p, float q) {
           return p == q || (std::isnan(p) && std::isnan(q));
         });
}

void expect_same(const std::string& file, const std::string& expected) {
  SCOPED_TRACE(file);
  const auto a = TensorFile::open(golden(file)), b = TensorFile::open(golden(expected));
  ASSERT_EQ(a.entries().size(), b.entries().size());
  for (const TensorEntry& e : b.entries()) {
    const Tensor mine = a.load(e.name), theirs = b.load(e.name);
    EXPECT_TRUE(theirs.dtype() == DType::bf16 ? equal(mine, theirs) : same(mine, theirs)) << e.name;
  }
}

std::string text_of(std::string_view pickle) { return torch_zip(str("\x80\x02", pickle, '.')); }

// {"a": a tensor of these storage elements, offset, sizes and strides}.
std::string with_tensor(int64_t offset, const std::string& sizes, const std::string& strides,
                        const std::string& storage = "FloatStorage") {
  const std::string pickle =
      "}" + pickled("a") + pickled_global("torch._utils", "_rebuild_tensor") + "((" +
      pickled("storage") + pickled_global("torch", storage) + pickled("0") + pickled("cpu") +
      pickled(int64_t{6}) + "tQ" + pickled(offset) + sizes + strides + "tRs";
  return torch_zip("\x80\x02" + pickle + ".", {std::string(24, '\0')});
}

std::string tuple(std::initializer_list<int64_t> numbers) {
  std::string out = "(";
  for (const int64_t n : numbers) {
    out += "\x8a\x08";
    for (int i = 0; i < 8; ++i)
      out += static_cast<char>(static_cast<uint64_t>(n) >> (8 * i) & 0xff);
  }
  return out + "t";
}

}  // namespace

TEST(torch_file, tensors_of_every_kind__are_those_that_torch_has_written) {
  for (const char* name : {"kinds_zip.pt", "kinds_zip3.pt", "kinds_zip4.pt", "kinds_zip5.pt",
                           "kinds_legacy.pt", "kinds_legacy4.pt"})
    expect_same(name, "kinds.safetensors");
  for (const char* name : {"fp8_zip.pt", "fp8_legacy.pt"}) expect_same(name, "fp8.safetensors");
}

TEST(torch_file, stored_tensors__are_mapped_and_not_copied) {
  const auto file = TensorFile::open(golden("kinds_zip.pt"));
  const Tensor whole = file.map(file.find("f32")), part = file.map(file.find("f32.shared"));
  ASSERT_TRUE(whole.defined() && part.defined());
  // one storage: the second begins within the first
  EXPECT_EQ(static_cast<const float*>(part.raw()) - static_cast<const float*>(whole.raw()), 6);
  EXPECT_FALSE(file.map(file.find("f32.transposed")).defined());
}

TEST(torch_file, checkpoint_of_lightning__gives_its_weights_and_says_what_it_left) {
  for (const char* name : {"few_lightning.ckpt", "few_lightning_legacy.ckpt"}) {
    expect_same(name, "few.safetensors");
    const auto metadata = TensorFile::open(golden(name)).metadata();
    EXPECT_EQ(metadata.at("global_step"), "840000");
    EXPECT_NE(metadata.at("torch.not_read").find("optimizer_states"), std::string::npos);
  }
}

TEST(torch_file, callables__are_refused_by_name_and_never_called) {
  const Folder folder;
  const std::string mark = folder / "was_here";
  const std::string harm = "touch " + mark;
  const std::vector<std::pair<std::string, std::string>> files{
      {pickled_call("posix", "system", harm), "calls 'posix.system': refused"},
      {pickled_call("os", "system", harm), "calls 'os.system': refused"},
      {pickled_call("builtins", "eval", harm), "calls 'builtins.eval': refused"},
      {pickled_call("__builtin__", "exec", harm), "calls '__builtin__.exec': refused"},
      {pickled_call("builtins", "getattr", harm), "calls 'builtins.getattr': refused"},
      {pickled_call("subprocess", "Popen", harm), "calls 'subprocess.Popen': refused"},
      {pickled_call("torch.hub", "load", harm), "calls 'torch.hub.load': refused"},
      {pickled_call("torch", "load", harm), "calls 'torch.load': refused"},
      {pickled_call("nt", "system", harm), "calls 'nt.system': refused"},
      // by text on the stack, by the class, by an attribute's attribute, and only named
      {"\x8c\x05posix\x8c\x06system\x93(" + pickled(harm) + "tR", "calls 'posix.system': refused"},
      {pickled_global("runpy", "X") + "(" + pickled(harm) + "t\x81", "calls 'runpy.X': refused"},
      {"\x8c\x08torch.nn\x8c\x0bos.a.system\x93(" + pickled(harm) + "tR",
       "calls 'torch.nn.os.a.system': refused"},
      {pickled_global("posix", "system"), "names 'posix.system': refused"},
      {pickled_global("torch", "Size") + ")R(" + pickled(harm) + "tR",
       "calls what is no named callable: refused"},
      // hidden: taken off the stack again, in the state of a harmless object
      {pickled_call("posix", "system", harm) + "0}", "calls 'posix.system': refused"},
      {pickled_global("argparse", "Namespace") + ")\x81" + pickled_call("posix", "system", harm) +
           "b",
       "calls 'posix.system': refused"}};
  for (const auto& [code, reason] : files) {
    const std::string& pickle = code;  // clang 14 captures no structured bindings
    expect_error([&] { file_of(text_of(pickle)); }, "torch: " + reason);
    expect_error([&] { file_of(torch_legacy("\x80\x02" + pickle + ".")); }, "torch: " + reason);
    expect_error([&] { file_of("\x80\x04" + pickle + "."); }, "torch: " + reason);
  }
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST(torch_file, opcodes_of_extensions_and_old_classes__are_refused) {
  for (const char* pickle : {"(ios\nsystem\n", "(cos\nsystem\no", "\x82\x01", "\x97"})
    EXPECT_NE(error_of([&] { file_of(text_of(pickle)); }), "") << pickle;
  expect_error([&] { file_of(text_of("(ios\nsystem\n")); }, "pickle: opcode 105 is not read");
}

TEST(torch_file, places_of_tensors__are_checked) {
  EXPECT_EQ(file_of(with_tensor(0, tuple({2, 3}), tuple({3, 1}))).load("a").shape(), (Shape{2, 3}));
  EXPECT_EQ(file_of(with_tensor(6, tuple({0}), tuple({1}))).load("a").shape(), (Shape{0}));
  const int64_t large = int64_t{1} << 62;
  const std::string within = "a tensor must lie within its storage of 6 elements  'a'";
  for (const auto& [offset, sizes, strides] :
       std::vector<std::tuple<int64_t, std::string, std::string>>{
           {1, tuple({2, 3}), tuple({3, 1})},
           {7, tuple({0}), tuple({1})},
           {0, tuple({7}), tuple({1})},
           {0, tuple({2}), tuple({6})},
           {0, tuple({large, 4}), tuple({1, 1})},
           {0, tuple({2}), tuple({large})},
           {0, tuple({3, 3}), tuple({large, large})}})
    expect_error([&, &offset = offset, &sizes = sizes,
                  &strides = strides] { file_of(with_tensor(offset, sizes, strides)); },
                 within);
  expect_error([&] { file_of(with_tensor(0, tuple({large}), tuple({0}))); },
               "a tensor must not repeat elements (4611686018427387904 of 6)");
  expect_error([&] { file_of(with_tensor(0, tuple({-1}), tuple({1}))); },
               "sizes of a tensor must be numbers from 0 on");
  expect_error(
      [&] {
        file_of(with_tensor(0, tuple({2}), tuple({1, 1})));
      },
      "as many strides as sizes (2 for 1)");
  expect_error([&] { file_of(with_tensor(0, tuple({2}), tuple({1}), "Size")); },
               "has a storage of an unknown dtype");
}

TEST(torch_file, circles_and_doubling__end) {
  // a list that holds itself, and lists that hold the one before twice
  expect_error([&] { file_of(text_of("}" + pickled("a") + "]q\1h\1as")); },
               "nested at most 16 deep");
  std::string doubling = "}" + pickled("a") + "]q\1";
  for (int i = 0; i < 100; ++i)
    doubling += str("](h", static_cast<char>(1 + i % 2), "h", static_cast<char>(1 + i % 2), "eq",
                    static_cast<char>(2 - i % 2));
  expect_error([&] { file_of(text_of(doubling + "s")); }, "");
  std::string deep = "}" + pickled("a");
  for (int i = 0; i < 100'000; ++i) deep += "]";
  for (int i = 0; i < 100'000; ++i) deep += "a";
  EXPECT_NE(error_of([&] { file_of(text_of(deep + "s")); }), "");
}

// A container of parameters whose state is itself, and 300 000 whose state is the one before.
TEST(torch_file, containers_as_states_of_containers__are_an_error) {
  const std::string empty = pickled_global("torch.nn.modules.container", "ParameterDict") + ")R";
  expect_error([&] { file_of(text_of(empty + "q\1h\1b")); },
               "torch: the state of a container of parameters must be a dict");
  std::string deep = empty + "q\1";
  const std::string again = pickled_global("torch.nn.modules.container", "ParameterDict") + ")R";
  for (int i = 0; i < 300'000; ++i) deep += again;
  deep += std::string(300'000, 'b');
  expect_error([&] { file_of(text_of(deep)); }, "");
  expect_error([&] { file_of(text_of(empty + "}" + pickled("_parameters") + "]sb")); },
               "the parameters of a container must be a dict");
}

TEST(torch_file, other_archives_and_pickles__say_what_they_are) {
  expect_error(
      [&] {
        file_of(zip_text({{"a.txt", "x"}}));
      },
      "is a zip archive without the data.pkl of torch.save");
  expect_error(
      [&] {
        file_of(zip_text({{"a/data.pkl", "}."}, {"b/data.pkl", "}."}}));
      },
      "must have one data.pkl");
  expect_error(
      [&] {
        file_of(zip_text({{"a/data.pkl", "}."}, {"a/byteorder", "big"}}));
      },
      "little-endian");
  expect_error([&] { file_of("\x80\x04}.12345"); },
               "is a pickle of Python that torch.save has not written");
  expect_error([&] { file_of(text_of(pickled_global("__torch__.net", "Net") + ")\x81")); },
               "a program of TorchScript");
  expect_error([&] { file_of(text_of("}")); }, "the file has no tensors");
}

// What the weights are under, and what wins.
TEST(torch_file, wrapped_weights__are_found_and_averages_are_a_choice) {
  const auto one = [](float v) {
    Tensor t(DType::f32, {1});
    t.span<float>()[0] = v;
    return t;
  };
  const std::vector<NamedTensor> plain{{"x", one(1)}};
  for (const char* wrap : {"", "state_dict", "params", "params_ema", "module", "model"})
    EXPECT_EQ(file_of(torch_text(plain, wrap)).entries()[0].name, "x") << wrap;
  const Folder folder;
  const std::vector<NamedTensor> all{{"model.diffusion_model.a.b", one(1)},
                                     {"model_ema.diffusion_modelab", one(2)},
                                     {"model_ema.decay", one(0)},
                                     {"first_stage_model.c", one(3)}};
  put_file(folder / "m.ckpt", torch_text(all, "state_dict"));
  write_safetensors(folder / "m.safetensors", all);
  for (const char* name : {"m.ckpt", "m.safetensors"}) {
    const std::string path = folder / name;
    const auto value = [&](bool averaged, const char* tensor) {
      return TensorFile::open(path, {.averaged = averaged}).load(tensor).span<float>()[0];
    };
    EXPECT_EQ(value(false, "model.diffusion_model.a.b"), 1);
    EXPECT_EQ(value(true, "model.diffusion_model.a.b"), 2);
    EXPECT_EQ(value(true, "first_stage_model.c"), 3);
    EXPECT_TRUE(TensorFile::open(path).has_averages());
  }
  put_file(folder / "plain.pt", torch_text(plain));
  expect_error([&] { TensorFile::open(folder / "plain.pt", {.averaged = true}); },
               "averages: the file has none");
}

TEST(torch_file, cut_files__are_an_error_at_every_length) {
  for (const char* name : {"few_lightning.ckpt", "few_lightning_legacy.ckpt"}) {
    const std::string bytes = file_bytes(golden(name));
    for (size_t size = 0; size < bytes.size(); ++size)
      EXPECT_NE(error_of([&] { file_of(bytes.substr(0, size)); }), "") << name << ' ' << size;
  }
}

TEST(torch_file, changed_bytes__are_read_or_an_error) {
  std::mt19937 random(1);
  for (const char* name :
       {"kinds_zip.pt", "kinds_legacy4.pt", "few_lightning.ckpt", "fp8_zip.pt"}) {
    const std::string bytes = file_bytes(golden(name));
    for (int i = 0; i < 500; ++i) {
      std::string changed = bytes;
      for (int k = 0; k < 1 + i % 4; ++k)
        changed[random() % bytes.size()] = static_cast<char>(random());
      error_of([&] {
        const auto file = file_of(changed);
        for (const TensorEntry& e : file.entries())
          if (e.dtype) {
            EXPECT_EQ(file.load(e).shape(), e.shape);
          }
      });
    }
  }
}

// ---- fp8 -----------------------------------------------------------------------------------

namespace {

std::string fp8_file(const std::string& names, size_t bytes, const std::string& data) {
  std::string out(8, '\0');
  out[0] = static_cast<char>(names.size() & 0xff);
  out[1] = static_cast<char>(names.size() >> 8);
  EXPECT_EQ(data.size(), bytes);
  return out + names + data;
}

std::string text_of_float(float v) { return {reinterpret_cast<const char*>(&v), sizeof v}; }

}  // namespace

TEST(fp8, scale_beside_a_weight__multiplies_it) {
  for (const char* name : {"scale_weight", "weight_scale"}) {
    const std::string json =
        str(R"({"l.weight":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]},"l.)", name,
            R"(":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
            R"("scaled_fp8":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[12,12]}})");
    const std::string bytes =
        fp8_file(json, 12, "\x38\x40\xb8\x01" + text_of_float(2) + text_of_float(0.5f));
    const auto file = file_of(bytes);
    ASSERT_EQ(file.entries().size(), 1u);
    const Tensor t = file.load("l.weight");
    EXPECT_EQ(t.dtype(), DType::f32);
    EXPECT_EQ(std::vector<float>(t.span<float>().begin(), t.span<float>().end()),
              (std::vector<float>{2, 4, -0.5f, 0.5f * 0x1p-9f}));
  }
  const std::string wrong =
      fp8_file(R"({"l.weight":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]},)"
               R"("l.scale_weight":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})",
               16, std::string(16, '\1'));
  expect_error([&] { file_of(wrong); }, "F8_E4M3: a scale must be one f32 number or one a row");
}

}  // namespace ebb::io
