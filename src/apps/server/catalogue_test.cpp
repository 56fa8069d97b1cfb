// What the catalogue tells of files that it finds.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "apps/server/request_limits.h"
#include "support/generate_program.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

class CatalogueOfFiles : public GenerateProgram {
 protected:
  TestServer::Change folders() const {
    return [this](auto& o) { o.folders = {{.path = folder_ / "models", .kind = {}}}; };
  }
  // The small checkpoint with that metadata, in `models/`.
  void saying(const std::map<std::string, std::string>& metadata, const std::string& name) const {
    const auto file = io::TensorFile::open(checkpoint({unet(), text(), autoencoder()}, "plain"));
    std::vector<io::NamedTensor> tensors;
    for (const io::TensorEntry& e : file.entries()) tensors.push_back({e.name, file.load(e.name)});
    io::write_safetensors(folder_ / ("models/" + name + ".safetensors"), tensors, metadata);
  }
  // The entry of a model in `models/`.
  json model(const std::string& name) const {
    TestServer server(folder_.path(), 1, folders());
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

// By which the page bounds its fields.
TEST(server_catalogue, settings__say_the_most_that_a_request_may_ask_for) {
  Folder folder;
  TestServer s(folder.path());
  json most = json::object();
  const json all = s.get("/ebb/v1/catalogue").json();
  for (const json& one : all["settings"])
    if (one.contains("most")) most[one["name"].get<std::string>()] = one["most"];
  EXPECT_EQ(most, json({{"size", server::most_side},
                        {"steps", server::most_steps},
                        {"n", server::most_images},
                        {"batch", server::most_batch},
                        {"clip_skip", server::most_clip_skip}}));
}

TEST_F(CatalogueOfFiles, size_and_guidance__are_what_the_file_says) {
  std::filesystem::create_directories(folder_ / "models");
  saying({{"modelspec.resolution", "128x128"}, {"ebb.guidance", "2.5"}}, "small");
  const json expected = {{"size", "128x128"}, {"steps", 20}, {"guidance", 2.5}};
  EXPECT_EQ(model("small")["defaults"], expected);
}

TEST_F(CatalogueOfFiles, guidance_that_is_no_number__is_a_fault_of_the_file) {
  std::filesystem::create_directories(folder_ / "models");
  saying({{"ebb.guidance", "1000"}}, "small");
  TestServer server(folder_.path(), 1, folders());
  server.service().catalogue().wait_for_scan();
  const json faults = server.get("/ebb/v1/catalogue").json()["faults"];
  ASSERT_EQ(faults.size(), 1u);
  const std::string error = faults[0]["error"];
  EXPECT_TRUE(error.ends_with(
      "ebb.guidance must be a number from 0 to 100 (got '1000')  small.safetensors"))
      << error;
  const auto job = server.post("/ebb/v1/jobs", {{"prompt", "x"}, {"model", "small"}});
  EXPECT_EQ(job.status, 422);
  EXPECT_EQ(job.body.find(folder_.path()), std::string::npos) << job.body;
  // Nor do errors of runs, of any file there.
  EXPECT_EQ(server.service().catalogue().for_clients(
                str("file: is cut short  ", folder_.path(), "/models/small-2.safetensors")),
            "file: is cut short  small-2.safetensors");
  const std::string other = str("file: is cut short  /a", folder_.path(), "/models/a");
  EXPECT_EQ(server.service().catalogue().for_clients(other), other);
}

// The model that comes with ebb is taken where there is no other, and listed behind all.
TEST_F(CatalogueOfFiles, model_of_ebb__is_the_usual_one_if_there_is_no_other) {
  std::filesystem::create_directories(folder_ / "models");
  std::filesystem::create_directories(folder_ / "own");
  checkpoint({unet(), text(), autoencoder()}, "own/box");
  const auto usual = [&] {
    server::Catalogue c({{folder_ / "own", {}, true}, {folder_ / "models", {}}});
    c.wait_for_scan();
    std::string names;
    for (const auto& f : c.all(server::FileKind::model)) names += f.name + " ";
    return std::pair(c.usual_model()->name, names);
  };
  EXPECT_EQ(usual(), std::pair(std::string("box"), std::string("box ")));
  checkpoint({unet(), text(), autoencoder()}, "models/other");
  EXPECT_EQ(usual(), std::pair(std::string("other"), std::string("other box ")));
}

// As a client says it that was told the folder by a link.
TEST_F(CatalogueOfFiles, folder_that_is_a_link__has_its_files_by_both_paths) {
  std::filesystem::create_directories(folder_ / "models");
  const std::string file = checkpoint({unet(), text(), autoencoder()}, "models/a");
  std::filesystem::create_directory_symlink(folder_ / "models", folder_ / "link");
  const server::Catalogue c({{folder_ / "link", {}}});
  c.wait_for_scan();
  const auto path_of = [&](const std::string& name) {
    const auto found = c.lookup(server::FileKind::model, name);
    return found ? found->path : "";
  };
  EXPECT_EQ(path_of(folder_ / "link/a.safetensors"), std::filesystem::canonical(file).string());
  EXPECT_EQ(path_of(std::filesystem::canonical(file).string()),
            std::filesystem::canonical(file).string());
  EXPECT_EQ(path_of(folder_ / "link/../models/a.safetensors"), "");
}

TEST_F(CatalogueOfFiles, link_to_a_folder_in_which_it_lies__is_not_followed) {
  std::filesystem::create_directories(folder_ / "models/more");
  checkpoint({unet(), text(), autoencoder()}, "models/more/a");
  std::filesystem::create_directory_symlink(folder_ / "models", folder_ / "models/more/circle");
  const server::Catalogue c({{folder_ / "models", {}}});
  c.wait_for_scan();
  EXPECT_EQ(c.all().size(), 1U);
}

// Nothing that is named as a model's file, and no folder, is left out without a word.
TEST_F(CatalogueOfFiles, what_cannot_be_read__is_a_fault) {
  namespace fs = std::filesystem;
  const fs::path models = folder_ / "models";
  fs::create_directories(models / "folder.safetensors");
  checkpoint({unet(), text(), autoencoder()}, "models/folder.safetensors/good");
  fs::create_symlink("nowhere", models / "dangling.safetensors");
  fs::create_symlink("loop.ckpt", models / "loop.ckpt");
  ASSERT_EQ(mkfifo((models / "pipe.pt").c_str(), 0600), 0);
  fs::create_symlink("nowhere", models / "notes.txt");
  std::string deep = "models";
  for (int i = 0; i < 18; ++i) deep += "/d";
  fs::create_directories(folder_ / deep);
  fs::create_directories(folder_ / "moved");
  server::Catalogue c({{models, {}}, {folder_ / "moved", server::FileKind::lora}});
  c.wait_for_scan();
  fs::remove(folder_ / "moved");
  c.rescan();
  c.wait_for_scan();
  std::map<std::string, std::string> faults;
  for (const auto& f : c.all()) faults[fs::path(f.path).filename()] = f.fault;
  const std::string in = fs::canonical(models).string() + "/";
  const std::map<std::string, std::string> expected = {
      {"good.safetensors", ""},
      {"dangling.safetensors",
       "catalogue: the link leads to no file  " + in + "dangling.safetensors"},
      {"loop.ckpt", "catalogue: the link leads to no file  " + in + "loop.ckpt"},
      {"pipe.pt", "catalogue: is no file that can be read  " + in + "pipe.pt"},
      {"d", "catalogue: lies more than 16 folders deep  " +
                fs::canonical(models).parent_path().string() + "/" +
                deep.substr(0, deep.size() - 2)},
      {"moved",
       "catalogue: the folder cannot be read (No such file or directory)  " + (folder_ / "moved")},
  };
  EXPECT_EQ(faults, expected);
  EXPECT_EQ(c.all(server::FileKind::lora).size(), 1U) << "as what the folder is for";
}

// Its file is gone: what is told is what requests get that name none.
TEST_F(CatalogueOfFiles, model_that_was_set_and_is_gone__leaves_the_usual_one) {
  std::filesystem::create_directories(folder_ / "models");
  checkpoint({unet(), text(), autoencoder()}, "models/a");
  const std::string gone = checkpoint({unet(), text(), autoencoder()}, "models/b");
  TestServer server(folder_.path(), 1, folders());
  const json small = {{"prompt", "x"}, {"steps", 1}, {"width", 64}, {"height", 64}};
  const auto model_of = [&](const char* route, json body) {
    const auto a = server.post(route, body);
    EXPECT_EQ(a.status, 200) << a.body;
    return json::parse(a.json()["info"].get<std::string>())["sd_model_name"];
  };
  ASSERT_EQ(server.post("/sdapi/v1/options", {{"sd_model_checkpoint", "b"}}).status, 200);
  EXPECT_EQ(model_of("/sdapi/v1/txt2img", small), "b");
  std::filesystem::remove(gone);
  ASSERT_EQ(server.post("/sdapi/v1/refresh-checkpoints", json::object()).status, 200);
  const json options = server.get("/sdapi/v1/options").json();
  EXPECT_TRUE(options["sd_model_checkpoint"].get<std::string>().starts_with("a.safetensors"));
  EXPECT_EQ(model_of("/sdapi/v1/txt2img", small), "a");
  EXPECT_EQ(server.post("/sdapi/v1/options", {{"jpeg_quality", 90}}).status, 200);
  EXPECT_EQ(server.post("/ebb/v1/jobs", {{"prompt", "x"}}).status, 202);
  json named = small;
  named["override_settings"]["sd_model_checkpoint"] = "b";
  EXPECT_EQ(server.post("/sdapi/v1/txt2img", named).status, 400) << "it was asked for";
}

TEST_F(CatalogueOfFiles, network_that_is_told_guidance__has_no_negative_prompt) {
  std::filesystem::create_directories(folder_ / "models");
  Part told = unet();
  told.fields.insert(told.fields.size() - 1, " guidance_channels=256");
  checkpoint({told, text(), autoencoder()}, "models/told");
  EXPECT_EQ(model("told")["unused"], json::array({"negative"}));
}

}  // namespace ebb::testing
