#include "text/textual_inversion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/files.h"
#include "support/source_folder.h"

namespace ebb::text {
namespace {

using namespace ebb::testing;

Tensor ramp(Shape shape, DType dtype = DType::f32) {
  Tensor t(DType::f32, std::move(shape));
  float v = 0;
  for (float& x : t.span<float>()) x = v += 0.25f;
  return t.to(dtype);
}

TEST(TextualInversion, files__of_every_form_are_read) {
  const Folder folder;
  const std::string path = folder / "My Style.safetensors";
  for (const char* key : {"emb_params", "<token>", "string_to_param.*", "*"})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      io::write_safetensors(path, std::vector<io::NamedTensor>{{key, ramp({3, 768}, dtype)}});
      const TextualInversion e = read_textual_inversion(path);
      EXPECT_EQ(e.name, "My Style");
      ASSERT_EQ(e.vectors.size(), 1u);
      EXPECT_EQ(e.vectors[0].type(), (Type{DType::f32, {3, 768}}));
      EXPECT_EQ(e.vectors[0].span<float>()[1], 0.5f);
    }
  io::write_safetensors(path, std::vector<io::NamedTensor>{{"<x>", ramp({1024})}});
  EXPECT_EQ(read_textual_inversion(path).vectors[0].shape(), (Shape{1, 1024}));
}

TEST(TextualInversion, sdxl__has_vectors_for_both_encoders) {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  io::write_safetensors(
      path, std::vector<io::NamedTensor>{{"clip_g", ramp({2, 1280})}, {"clip_l", ramp({2, 768})}});
  const TextualInversion e = read_textual_inversion(path);
  EXPECT_EQ(e.of_width(768)->shape(), (Shape{2, 768}));
  EXPECT_EQ(e.of_width(1280)->shape(), (Shape{2, 1280}));
  EXPECT_EQ(e.of_width(1024), nullptr);
}

TEST(TextualInversion, wrong_files__say_what_is_wrong) {
  const auto error = [](std::vector<io::NamedTensor> tensors) {
    return error_of([&] { textual_inversion(tensors, "a/b.pt"); });
  };
  EXPECT_EQ(error({{"x", ramp({2, 700})}}),
            "embedding: the width must be a text encoder's, which is a multiple of 64 (700)  x in"
            " a/b.pt");
  EXPECT_EQ(error({{"clip_g", ramp({2, 768})}}),
            "embedding: clip_g must have width 1280 (768)  a/b.pt");
  EXPECT_EQ(error({{"clip_l", ramp({2, 768})}, {"clip_g", ramp({3, 1280})}}),
            "embedding: must have as many vectors for each encoder (2, 3)  a/b.pt");
  EXPECT_EQ(error({{"a", ramp({2, 768})}, {"b", ramp({2, 768})}}),
            "embedding: must be one tensor, or clip_l and clip_g (2: a, b)  a/b.pt");
  EXPECT_NE(error({}), "");
  EXPECT_NE(error({{"x", ramp({0, 768})}}).find("1 to 255 vectors (0)"), std::string::npos);
  EXPECT_NE(error({{"x", ramp({256, 768})}}).find("1 to 255 vectors (256)"), std::string::npos);
  EXPECT_NE(error({{"x", ramp({1, 1, 768})}}).find("must be [vectors, width]"), std::string::npos);
  EXPECT_NE(error({{"x", ramp({})}}).find("must be [vectors, width]"), std::string::npos);
  EXPECT_NE(error({{"x", Tensor(DType::i64, {1, 768})}}).find("must be floats"), std::string::npos);
  Tensor nan = ramp({1, 768});
  nan.span<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(error({{"x", nan}}).find("must be finite (nan)"), std::string::npos);
}

// tools/golden/torch_golden.py
TEST(TextualInversion, files_of_torch__are_those_of_safetensors) {
  const std::string golden = source_folder() + "/tests/golden/torch/";
  const Tensor same = read_textual_inversion(golden + "embedding.safetensors").vectors.at(0);
  for (const char* name : {"embedding_a1111.pt", "embedding_original.pt", "embedding_diffusers.bin",
                           "embedding_tensor.bin"}) {
    const TextualInversion e = read_textual_inversion(golden + name);
    ASSERT_EQ(e.vectors.size(), 1u) << name;
    ASSERT_EQ(e.vectors[0].shape(), (Shape{2, 768})) << name;
    EXPECT_TRUE(std::ranges::equal(e.vectors[0].span<float>(), same.span<float>())) << name;
  }
}

TEST(TextualInversion, folder__gives_names_and_warns_of_what_cannot_be_used) {
  const Folder folder;
  std::filesystem::create_directories(folder / "sub");
  io::write_safetensors(folder / "a.safetensors",
                        std::vector<io::NamedTensor>{{"emb_params", ramp({3, 768})}});
  io::write_safetensors(folder / "sub/big.safetensors",
                        std::vector<io::NamedTensor>{{"emb_params", ramp({2, 1280})}});
  put_file(folder / "broken.safetensors", "x");
  put_file(folder / "old.pt", "x");
  put_file(folder / "notes.txt", "x");
  io::write_safetensors(folder / "thin.safetensors",
                        std::vector<io::NamedTensor>{{"w", ramp({3, 5})}});
  std::filesystem::create_symlink("loop.pt", folder / "loop.pt");  // to itself
  const EmbeddingFolder all = read_embedding_folder(folder.path(), PromptSyntax::a1111);
  EXPECT_EQ(all.embeddings.size(), 2u);
  const auto left_out = [&](std::string_view text) {
    return left_out_of(all, parse_prompt(text, PromptSyntax::a1111));
  };
  // only where it may matter
  EXPECT_TRUE(left_out("a cat, unbroken, older").empty());
  const std::vector<std::string> named = left_out("an Old man, (broken:1.2) and thin");
  ASSERT_EQ(named.size(), 3u);
  for (const std::string& warning : named)
    EXPECT_EQ(warning.find("embedding: a file is left out: "), 0u) << warning;
  EXPECT_TRUE(named[0].ends_with("  " + (folder / "broken.safetensors"))) << named[0];
  EXPECT_EQ(
      named[1],
      "embedding: a file is left out: torch: not a file of torch.save; safetensors: file must "
      "have at least 8 bytes (1)  " +
          (folder / "old.pt"));
  EXPECT_TRUE(named[2].ends_with("w in " + (folder / "thin.safetensors"))) << named[2];
  EXPECT_TRUE(
      read_embedding_folder(folder.path(), PromptSyntax::comfyui).embeddings.contains("sub/big"));

  std::vector<std::string> warnings;
  const auto counts = [&](std::string_view text) {
    return vector_counts(all, 768, parse_prompt(text, PromptSyntax::a1111), warnings);
  };
  EXPECT_EQ(counts("a cat"), (std::map<std::string, int64_t>{{"a", 3}}));
  EXPECT_TRUE(warnings.empty());
  counts("a BIG cat");
  EXPECT_EQ(
      warnings,
      (std::vector<std::string>{"embedding: has no vectors of width 768 (1280): left out  big"}));
  expect_error([&] { read_embedding_folder(folder / "none", PromptSyntax::a1111); },
               "embedding: --embedding-dir must name a folder of embeddings, which does not exist");
  expect_error([&] { read_embedding_folder(folder / "a.safetensors", PromptSyntax::a1111); },
               "embedding: --embedding-dir must name a folder of embeddings, and this is a file  ");
}

}  // namespace
}  // namespace ebb::text
