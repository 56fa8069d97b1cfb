// A server with a few files, and what clients of ComfyUI's API ask of it.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "io/image.h"
#include "support/comfy_graph.h"
#include "support/generate_program.h"
#include "support/test_server.h"

namespace ebb::testing {

// Of a model "small.safetensors", a LoRA and an autoencoder, whose pictures the fake engine makes.
class ComfyServer : public GenerateProgram {
 protected:
  void SetUp() override {
    GenerateProgram::SetUp();
    if (IsSkipped()) return;
    for (const char* f : {"models", "loras", "vae"})
      std::filesystem::create_directories(folder_ / f);
    checkpoint({unet(), text(), autoencoder()}, "models/small");
    checkpoint({autoencoder()}, "vae/other");
    const std::vector<io::NamedTensor> lora = {
        {"lora_unet_a.lora_up.weight", Tensor(DType::f32, {1, 1})}};
    io::write_safetensors(folder_ / "loras/fine.safetensors", lora, {});
    server_ = std::make_unique<TestServer>(folder_.path(), 5, [&](server::ServiceOptions& o) {
      o.folders = {{folder_ / "models", {}},
                   {folder_ / "loras", server::FileKind::lora},
                   {folder_ / "vae", server::FileKind::vae}};
    });
    server_->service().catalogue().wait_for_scan();
  }
  using json = nlohmann::json;
  HttpAnswer prompt(const json& graph, const json& more = json::object()) const {
    json body = {{"prompt", graph}, {"client_id", "me"}};
    body.update(more);
    return server_->post("/prompt", body);
  }
  // The entry of the history, once it is there.
  json finished(const std::string& id) const {
    for (int i = 0; i < 2000; ++i) {
      json all = server_->get("/history/" + id).json();
      if (all.contains(id)) return all[id];
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "the prompt does not end";
    return {};
  }
  // The settings that a graph means.
  cli::GenerateFlags settings(const json& graph) const {
    const auto a = prompt(graph);
    EXPECT_EQ(a.status, 200) << a.body;
    if (a.status != 200) return {};
    return server_->service()
        .queue()
        .find(a.json()["prompt_id"].get<std::string>())
        ->job->spec.flags;
  }
  HttpAnswer upload(const std::string& name, const std::vector<uint8_t>& png,
                    const std::string& path = "/upload/image", bool overwrite = false) const {
    const std::string body =
        str("--xyz\r\nContent-Disposition: form-data; name=\"image\"; filename=\"", name,
            "\"\r\nContent-Type: image/png\r\n\r\n", std::string(png.begin(), png.end()),
            "\r\n--xyz\r\nContent-Disposition: form-data; name=\"type\"\r\n\r\ninput\r\n--xyz\r\n"
            "Content-Disposition: form-data; name=\"overwrite\"\r\n\r\n",
            overwrite ? "true" : "false", "\r\n--xyz--\r\n");
    return ask(server_->port(), "POST", path, body,
               "Content-Type: multipart/form-data; boundary=xyz\r\n");
  }
  Tensor viewed(const json& image) const {
    const auto a = server_->get(str("/view?filename=", image["filename"].get<std::string>(),
                                    "&subfolder=&type=", image["type"].get<std::string>()));
    EXPECT_EQ(a.status, 200) << a.body;
    EXPECT_EQ(a.header("content-type"), "image/png");
    EXPECT_EQ(a.header("x-content-type-options"), "nosniff");
    return io::decode_image({reinterpret_cast<const uint8_t*>(a.body.data()), a.body.size()}, "x",
                            3);
  }
  // The first fault of an input of that node.
  json fault(const json& graph, const std::string& node) const {
    const auto a = prompt(graph);
    EXPECT_EQ(a.status, 400) << a.body;
    const json errors = a.json()["node_errors"];
    if (!errors.contains(node)) {
      ADD_FAILURE() << a.body;
      return {};
    }
    return errors[node]["errors"][0];
  }

  const json graph_ = comfy_graph("small.safetensors");
  std::unique_ptr<TestServer> server_;
};

}  // namespace ebb::testing
