// Writes the first inputs of the fuzz targets: seeds FOLDER -> FOLDER/safetensors, FOLDER/torch,
// FOLDER/image, FOLDER/prompt, FOLDER/request.
#include <webp/encode.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "io/image.h"
#include "io/picture_file.h"
#include "io/safetensors.h"
#include "support/jpeg.h"
#include "support/torch_file.h"

namespace {

using ebb::DType;
using ebb::Tensor;
namespace fs = std::filesystem;

Tensor picture(int64_t channels) {
  Tensor t(DType::u8, {17, 19, channels});
  for (size_t i = 0; i < t.span<uint8_t>().size(); ++i)
    t.span<uint8_t>()[i] = static_cast<uint8_t>(i * i / 7);
  return t;
}

void put(const fs::path& path, const void* bytes, size_t size) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
}

// EXIF data with an orientation, and the head of a colour profile with one tag.
std::vector<std::pair<int, std::vector<uint8_t>>> metadata() {
  const std::string exif("Exif\0\0MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\6\0\0\0\0\0\0", 32);
  std::string icc("ICC_PROFILE\0\1\1", 14);
  icc += std::string(12, '\0') + "mntrRGB XYZ " + std::string(12, '\0') + "acsp";
  icc += std::string(88, '\0') + std::string("\0\0\0\1rTRC\0\0\0\220\0\0\0\16", 16);
  icc += std::string("curv\0\0\0\0\0\0\0\1\2\0", 14);
  return {{1, {exif.begin(), exif.end()}}, {2, {icc.begin(), icc.end()}}};
}

void put_jpeg(const fs::path& path, const Tensor& image, J_COLOR_SPACE space, bool progressive) {
  ebb::testing::Jpeg how{.space = space, .quality = 75, .progressive = progressive};
  if (progressive) how.markers = metadata();
  const std::vector<uint8_t> file = ebb::testing::jpeg_of(image, how);
  put(path, file.data(), file.size());
}

void put_webp(const fs::path& path, bool lossless) {
  const Tensor t = picture(4);
  const uint8_t* in = t.span<uint8_t>().data();
  uint8_t* memory = nullptr;
  const size_t size = lossless ? WebPEncodeLosslessRGBA(in, 19, 17, 19 * 4, &memory)
                               : WebPEncodeRGBA(in, 19, 17, 19 * 4, 50, &memory);
  put(path, memory, size);
  WebPFree(memory);
}

void put_images(const fs::path& folder) {
  fs::create_directories(folder);
  ebb::io::write_png(folder / "grey.png", picture(1));
  ebb::io::write_png(folder / "rgb.png", picture(3), {{"k", "v"}, {"u", "\u4e2d"}});
  put_jpeg(folder / "rgb.jpg", picture(3), JCS_RGB, false);
  put_jpeg(folder / "progressive.jpg", picture(3), JCS_RGB, true);
  put_jpeg(folder / "grey.jpg", picture(1), JCS_GRAYSCALE, false);
  put_jpeg(folder / "cmyk.jpg", picture(4), JCS_CMYK, false);
  for (const char* name : {"text.jpg", "text.webp"})
    ebb::io::write_picture(folder / name, picture(3),
                           {{"parameters", "a fox"}, {"Software", "s"}, {"k", "{\"x\": [[1]]}"}});
  put_webp(folder / "lossless.webp", true);
  put_webp(folder / "lossy.webp", false);
}

void put_safetensors(const fs::path& folder) {
  fs::create_directories(folder);
  const std::vector<ebb::io::NamedTensor> tensors{{"a", Tensor(DType::f32, {2, 3})},
                                                  {"b\n\"\u00e9", Tensor(DType::bf16, {0, 4})},
                                                  {"c", Tensor(DType::u8, {3})},
                                                  {"d", Tensor(DType::i64, {})}};
  ebb::io::write_safetensors(folder / "some", tensors, {{"format", "pt"}, {"\\", "\t"}});
  ebb::io::write_safetensors(folder / "none", {});
  const std::string json = R"( {"x":{"shape":[2],"dtype":"F64","data_offsets":[0,16]},)"
                           R"("\ud83d\ude00":{"dtype":"BOOL","shape":[],"data_offsets":[16,17]},)"
                           R"("f":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[17,18]}})";
  std::string text(8, '\0');
  text[0] = static_cast<char>(json.size() - 1);
  text += json.substr(1) + std::string(18, '\1');
  put(folder / "dtypes", text.data(), text.size());
}

void put_torch(const fs::path& folder) {
  using namespace ebb::testing;
  fs::create_directories(folder);
  const std::vector<ebb::io::NamedTensor> tensors{{"a", Tensor(DType::f32, {2, 3})},
                                                  {"b", Tensor(DType::f16, {4})}};
  const auto write = [&](const char* name, const std::string& bytes) {
    put(folder / name, bytes.data(), bytes.size());
  };
  write("zip", torch_text(tensors, "state_dict"));
  write("legacy", torch_text(tensors, "", true));
  write("call", "\x80\x02" + pickled_call("posix", "system", "true") + ".");
  // a ParameterDict of none; its state, set by BUILD, is a dict, or itself
  const std::string container =
      "\x80\x02" + pickled_global("torch.nn.modules.container", "ParameterDict") + ")R";
  write("state", container + "}" + pickled("_parameters") + "}sb.");
  write("own_state", container + "q\1h\1b.");
  // of the zip's pickle alone: {"a": a view of storage "0"}
  write("pickle", "\x80\x02}" + pickled("a") + pickled_global("torch._utils", "_rebuild_tensor") +
                      "((" + pickled("storage") + pickled_global("torch", "FloatStorage") +
                      pickled("0") + pickled("cpu") + pickled(int64_t{16}) +
                      "tQK\1K\2K\3\x86K\3K\1" + "\x86tRs.");
}

void put_prompts(const fs::path& folder) {
  fs::create_directories(folder);
  const std::string_view texts[] = {
      "a (cat:1.2) [dog], ((big)) \\(x\\) BREAK sky # note",
      "[a:b:0.5] [a:3] [b::2] [a|b|] AND c :0.5 AND (d",
      "embedding:a, embedding:wide <lora:x:1:0.5> <lora:y:te=1>",
      "\xff\xe2\x82 e\xcc\x81 \xe3\x81\x82 <|endoftext|> ab c",
  };
  for (const std::string_view text : texts)
    put(folder / std::to_string(&text - texts), text.data(), text.size());
}

// The first byte says what it is.
void put_requests(const fs::path& folder) {
  fs::create_directories(folder);
  const std::string_view texts[] = {
      "0/ebb/v1/images/%41?before=a%20b&q=x+y",
      "1--x\r\nContent-Disposition: form-data; name=\"image\"; filename=a\r\n\r\nabc\r\n--x--",
      "2 aGVs bG8=",
      R"(3{"steps":"20.0","seed":-1,"tiling":0,"a":[{"b":null}]})",
      "4a fox\nNegative prompt: dog\nSteps: 20, Sampler: \"a,b\", Size: 512x512",
      "5Basic eDp5",
  };
  for (const std::string_view text : texts)
    put(folder / std::to_string(&text - texts), text.data(), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 2;
  }
  put_images(fs::path(argv[1]) / "image");
  put_safetensors(fs::path(argv[1]) / "safetensors");
  put_torch(fs::path(argv[1]) / "torch");
  put_prompts(fs::path(argv[1]) / "prompt");
  put_requests(fs::path(argv[1]) / "request");
}
