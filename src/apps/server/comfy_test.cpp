// ComfyUI's API: what known clients send and read, written from their behaviour; the queue,
// uploads.
#include <gtest/gtest.h>

#include "support/comfy_server.h"
#include "support/pictures.h"
#include "support/web_socket.h"

namespace ebb::testing {
namespace {

using nlohmann::json;
using Comfy = ComfyServer;

}  // namespace

// ---- clients

// It waits on its WebSocket for the message that no node is worked on.
TEST_F(Comfy, open_webui__waits_for_no_node_and_reads_the_history) {
  WebSocketClient socket(server_->port(), "/ws?clientId=me",
                         "Authorization: Bearer \r\nUser-Agent: Mozilla/5.0\r\n");
  ASSERT_EQ(socket.status(), 101) << socket.answer().head;
  EXPECT_EQ(socket.answer().header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  const json status = socket.next()->json();
  EXPECT_EQ(status["type"], "status");
  EXPECT_EQ(status["data"]["sid"], "me");
  EXPECT_EQ(status["data"]["status"]["exec_info"]["queue_remaining"], 0);
  json graph = graph_;
  graph["5"]["inputs"]["batch_size"] = 2;
  const std::string id = prompt(graph).json()["prompt_id"];
  EXPECT_EQ(socket.next("execution_start")["prompt_id"], id);
  EXPECT_EQ(socket.next("executing")["node"], "3");
  EXPECT_EQ(socket.next("executed")["output"]["images"].size(), 2u);
  json executing;
  do {
    executing = socket.next("executing");
  } while (!executing.is_null() && !executing["node"].is_null());
  EXPECT_EQ(executing["prompt_id"], id);
  const json done = server_->get("/history/" + id).json()[id];
  EXPECT_EQ(done["status"]["status_str"], "success");
  ASSERT_EQ(done["outputs"]["9"]["images"].size(), 2u);
  for (const json& image : done["outputs"]["9"]["images"])
    EXPECT_EQ(viewed(image).shape(), (Shape{48, 64, 3}));
}

TEST_F(Comfy, open_webui__edits_a_picture_that_it_uploads) {
  const auto a = upload("b.png", io::encode_png(gradient(50, 67, 3)), "/api/upload/image");
  ASSERT_EQ(a.status, 200) << a.body;
  const json expected = {{"name", "b.png"}, {"subfolder", ""}, {"type", "input"}};
  EXPECT_EQ(a.json(), expected);
  const json done =
      finished(prompt(comfy_edit_graph("small.safetensors", "b.png")).json()["prompt_id"]);
  EXPECT_EQ(viewed(done["outputs"]["9"]["images"][0]).shape(), (Shape{48, 64, 3}));
}

// It reads the lists of four nodes, sends words in place of numbers, and polls all of the history.
TEST_F(Comfy, sillytavern__lists_and_its_default_workflow) {
  EXPECT_EQ(server_->get("/system_stats").json()["devices"].size(), 1u);
  const json info = server_->get("/object_info").json();
  const auto names = [&](const char* node, const char* input) {
    return info[node]["input"]["required"][input][0];
  };
  EXPECT_EQ(names("CheckpointLoaderSimple", "ckpt_name"), json{"small.safetensors"});
  EXPECT_EQ(names("UNETLoader", "unet_name"), json{"small.safetensors"});
  EXPECT_EQ(names("VAELoader", "vae_name"), json{"other.safetensors"});
  for (const char* name : {"euler", "dpmpp_2m", "euler_ancestral"})
    EXPECT_NE(names("KSampler", "sampler_name").dump().find(str('"', name, '"')),
              std::string::npos);
  for (const char* name : {"normal", "karras", "sgm_uniform"})
    EXPECT_NE(names("KSampler", "scheduler").dump().find(str('"', name, '"')), std::string::npos);
  json graph = graph_;
  graph["3"]["inputs"].update({{"steps", "2"}, {"cfg", "7.5"}, {"seed", 1234567890123456}});
  const std::string id = prompt(graph).json()["prompt_id"];
  json all;
  for (int i = 0; i < 400 && !all.contains(id); ++i) {
    all = server_->get("/history").json();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(all[id]["outputs"]["9"]["images"][0]["type"], "output");
  EXPECT_EQ(all[id]["prompt"][2], graph);
}

TEST_F(Comfy, sillytavern__is_told_the_node_of_an_error) {
  json graph = graph_;
  graph["6"]["inputs"]["text"] = "fail";
  const json done = finished(prompt(graph).json()["prompt_id"]);
  EXPECT_EQ(done["status"]["status_str"], "error");
  const json last = done["status"]["messages"].back();
  EXPECT_EQ(last[0], "execution_error");
  EXPECT_EQ(last[1]["node_type"], "KSampler");
  EXPECT_EQ(last[1]["node_id"], "3");
  EXPECT_NE(last[1]["exception_message"].get<std::string>().find("failure"), std::string::npos);
}

// It lists folders, uploads, polls one prompt and reads node 9.
TEST_F(Comfy, kobold_lite__folders_upload_and_node_9) {
  EXPECT_EQ(server_->get("/models/checkpoints").json(), json{"small.safetensors"});
  EXPECT_EQ(server_->get("/models/loras").json(), json{"fine.safetensors"});
  EXPECT_EQ(server_->get("/models/nothing").status, 404);
  EXPECT_EQ(upload("a.png", io::encode_png(gradient(16, 16, 3))).status, 200);
  const std::string id =
      prompt(comfy_edit_graph("small.safetensors", "a.png"), {{"client_id", nullptr}})
          .json()["prompt_id"];
  const json done = finished(id);
  EXPECT_EQ(viewed(done["outputs"]["9"]["images"][0]).shape(), (Shape{16, 16, 3}));
}

TEST_F(Comfy, prompt_id__is_the_clients_and_results_are_bound_to_it) {
  EXPECT_EQ(server_->get("/history/mine").json(), json::object());
  for (const char* id : {"mine", "other"}) {
    json graph = graph_;
    graph["6"]["inputs"]["text"] = id;
    const json a = prompt(graph, {{"prompt_id", id}}).json();
    EXPECT_EQ(a["prompt_id"], id);
    EXPECT_EQ(a["node_errors"], json::object());
  }
  const Tensor a = viewed(finished("mine")["outputs"]["9"]["images"][0]);
  const Tensor b = viewed(finished("other")["outputs"]["9"]["images"][0]);
  EXPECT_GT(largest_difference(a, b), 0);
  EXPECT_EQ(prompt(graph_, {{"prompt_id", std::string(200, 'x')}}).status, 400);
}

// ---- the queue
TEST_F(Comfy, interrupt_and_queue__end_the_prompts_that_are_meant) {
  WebSocketClient socket(server_->port(), "/api/ws?clientId=me");
  json slow = graph_;
  slow["3"]["inputs"]["steps"] = 1000;
  for (const char* id : {"a", "b", "c"}) EXPECT_EQ(prompt(slow, {{"prompt_id", id}}).status, 200);
  EXPECT_EQ(socket.next("progress")["prompt_id"], "a");
  const json queue = server_->get("/queue").json();
  EXPECT_EQ(queue["queue_running"][0][1], "a");
  EXPECT_EQ(queue["queue_pending"].size(), 2u);
  EXPECT_EQ(server_->get("/prompt").json()["exec_info"]["queue_remaining"], 3);
  EXPECT_EQ(server_->post("/queue", {{"delete", {"a", "b"}}}).status, 200);
  EXPECT_EQ(finished("b")["status"]["status_str"], "error");
  EXPECT_EQ(server_->service().queue().running()->job->id, "a") << "it runs, and is not deleted";
  EXPECT_EQ(server_->post("/interrupt", {{"prompt_id", "c"}}).status, 200);
  EXPECT_EQ(server_->service().queue().running()->job->id, "a");
  EXPECT_EQ(server_->post("/queue", {{"clear", true}}).status, 200);
  const auto a = ask(server_->port(), "POST", "/api/interrupt");
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.body, "");
  json interrupted;
  do {
    interrupted = socket.next("execution_interrupted");
  } while (!interrupted.is_null() && interrupted["prompt_id"] != "a");
  EXPECT_EQ(interrupted["node_id"], "3");
  EXPECT_EQ(finished("a")["status"]["completed"], false);
}

// A prompt may begin or end in the moment in which a socket of its client is opened.
TEST_F(Comfy, sockets_that_open_while_prompts_run__are_told_of_them) {
  json short_one = graph_;
  short_one["3"]["inputs"]["steps"] = 1;
  std::vector<std::jthread> others;
  for (int i = 0; i < 2; ++i)
    others.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) prompt(short_one);
    });
  const auto open = [&] {
    for (int i = 0; i < 400; ++i) {
      WebSocketClient socket(server_->port(), "/ws?clientId=me");
      EXPECT_TRUE(socket.status() == 101 && socket.next()) << i;
    }
  };
  for (int i = 0; i < 3; ++i) others.emplace_back(open);
  open();
}

// As ComfyUI's own server has it: before a prompt begins, and between its last message and the one
// that no node is worked on.
TEST_F(Comfy, number_that_is_left__is_told_in_order_with_the_execution) {
  WebSocketClient socket(server_->port(), "/ws?clientId=me");
  json other = graph_;
  other["3"]["inputs"]["steps"] = 1000;
  ASSERT_EQ(prompt(graph_, {{"prompt_id", "a"}}).status, 200);
  ASSERT_EQ(prompt(other, {{"prompt_id", "b"}, {"client_id", "another"}}).status, 200);
  std::vector<std::string> all;
  while (all.empty() || all.back() != "no node") {
    const auto m = socket.next();
    ASSERT_TRUE(m) << json(all).dump();
    if (m->kind != WebSocketClient::text) continue;
    const json event = m->json(), data = event["data"];
    const std::string type = event["type"];
    if (type == "status")
      all.push_back(data["status"]["exec_info"]["queue_remaining"].dump());
    else if (type == "executing" && data["node"].is_null())
      all.emplace_back("no node");
    else if (type == "execution_start" || type == "execution_success")
      all.push_back(type);
  }
  server_->post("/interrupt", json::object());
  std::erase(all, "2");  // of the other one, whenever it was queued
  EXPECT_EQ(all, (std::vector<std::string>{"0", "1", "1", "execution_start", "execution_success",
                                           "1", "no node"}))
      << "first, queued, begun, ..., ended (one is left)";
}

// ---- uploads
TEST_F(Comfy, uploads__keep_their_names_unless_another_picture_has_it) {
  const auto a = io::encode_png(gradient(16, 16, 3)), b = io::encode_png(gradient(24, 16, 3));
  const auto name = [&](const auto& png, bool overwrite = false) {
    return upload("../x/a.png", png, "/upload/image", overwrite).json()["name"];
  };
  EXPECT_EQ(name(a), "a.png");
  EXPECT_EQ(name(a), "a.png");
  EXPECT_EQ(name(b), "a (1).png");
  EXPECT_EQ(name(b, true), "a.png");
  const auto view = server_->get("/view?filename=a.png&type=input");
  EXPECT_EQ(view.header("content-type"), "image/png");
  EXPECT_EQ(std::vector<uint8_t>(view.body.begin(), view.body.end()), b);
  EXPECT_EQ(server_->get("/view?filename=none.png&type=input").status, 404);
}

}  // namespace ebb::testing
