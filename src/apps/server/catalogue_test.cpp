// What the catalogue tells of files that it finds.
#include <gtest/gtest.h>

#include "support/generate_program.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

class CatalogueOfFiles : public GenerateProgram {
 protected:
  // The entry of a model in `models/`.
  json model(const std::string& name) const {
    TestServer server(folder_.path(), 1,
                      [&](auto& o) { o.folders = {{.path = folder_ / "models", .kind = {}}}; });
    server.service().catalogue().wait_for_scan();
    const json all = server.get("/ebb/v1/catalogue").json();
    for (const json& m : all["models"])
      if (m["name"] == name) return m;
    ADD_FAILURE() << all.dump(1);
    return {};
  }
};

}  // namespace

TEST_F(CatalogueOfFiles, model__has_the_defaults_of_generate) {
  std::filesystem::create_directories(folder_ / "models");
  checkpoint({unet(), text(), autoencoder()}, "models/small");
  const json small = model("small");
  const json expected = {{"size", "512x512"}, {"steps", 20}, {"guidance", 7.0}};
  EXPECT_EQ(small["defaults"], expected);
  EXPECT_EQ(small["unused"], json::array());
}

TEST_F(CatalogueOfFiles, size__is_what_the_file_says) {
  std::filesystem::create_directories(folder_ / "models");
  io::TensorFile file = io::TensorFile::open(checkpoint({unet(), text(), autoencoder()}, "plain"));
  std::vector<io::NamedTensor> tensors;
  for (const io::TensorEntry& e : file.entries()) tensors.push_back({e.name, file.load(e.name)});
  io::write_safetensors(folder_ / "models/small.safetensors", tensors,
                        {{"modelspec.resolution", "128x128"}});
  EXPECT_EQ(model("small")["defaults"]["size"], "128x128");
}

TEST_F(CatalogueOfFiles, network_that_is_told_guidance__has_no_negative_prompt) {
  std::filesystem::create_directories(folder_ / "models");
  Part told = unet();
  told.fields.insert(told.fields.size() - 1, " guidance_channels=256");
  checkpoint({told, text(), autoencoder()}, "models/told");
  EXPECT_EQ(model("told")["unused"], json::array({"negative"}));
}

}  // namespace ebb::testing
