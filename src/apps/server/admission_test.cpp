// What is decided by the header of a request, before its body is read.
#include <gtest/gtest.h>

#include "support/test_server.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

// A header that announces a body, which is not sent.
std::string announced(const std::string& target, size_t bytes) {
  return str("POST ", target, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n",
             "Content-Length: ", bytes, "\r\n\r\n");
}

HttpAnswer answer_to(const TestServer& s, const std::string& bytes) {
  Wire wire(s.port());
  wire.send(bytes);
  return wire.answer();
}

}  // namespace

TEST(server_admission, queue_is_full__429_before_the_body) {
  Folder folder;
  TestServer s(folder.path(), 50, [](auto& o) { o.queue.jobs = 1; });
  const json job = {{"prompt", "a fox"}, {"size", "64x64"}, {"steps", 1000}};
  const std::string runs = s.post("/ebb/v1/jobs", job).json()["id"];
  while (s.get("/ebb/v1/jobs/" + runs).json()["status"] == "queued") {
  }
  ASSERT_EQ(s.post("/ebb/v1/jobs", job).status, 202);
  for (const char* target :
       {"/ebb/v1/jobs", "/sdapi/v1/txt2img", "/sdapi/v1/img2img", "/sdapi/v1/extra-single-image",
        "/sdapi/v1/extra-batch-images", "/v1/images/generations", "/sdcpp/v1/img_gen", "/prompt"}) {
    const HttpAnswer full = answer_to(s, announced(target, 900'000));
    EXPECT_EQ(full.status, 429) << target;
    EXPECT_EQ(full.header("retry-after"), "5") << target;
    EXPECT_NE(full.body.find("the queue is full"), std::string::npos) << full.body;
  }
  // What makes no job is answered.
  EXPECT_EQ(s.post("/sdapi/v1/png-info", {{"image", "x"}}).status, 400);
}

// A client reads the errors of its protocol alone.
TEST(server_admission, body_too_large__is_told_in_the_form_of_the_protocol) {
  Folder folder;
  TestServer s(folder.path(), 1);
  const auto error = [&](const char* target, int status) {
    const HttpAnswer a = answer_to(s, announced(target, size_t{100} << 20));
    EXPECT_EQ(a.status, status) << target;
    return a.json();
  };
  const json openai = error("/v1/images/generations", 413);
  EXPECT_EQ(openai["error"]["type"], "invalid_request_error") << openai.dump();
  EXPECT_TRUE(openai["error"]["param"].is_null());
  EXPECT_EQ(error("/sdapi/v1/txt2img", 413)["error"], "HTTPException");
  EXPECT_NE(error("/v1/sdapi/v1/txt2img", 500)["message"].get<std::string>().find("bytes"),
            std::string::npos);
  EXPECT_TRUE(error("/sdcpp/v1/img_gen", 413)["error"].is_string());
  EXPECT_EQ(error("/ebb/v1/jobs", 413)["error"]["code"], "bad_request");
}

// Pages of a proxy that has a certificate ask from https.
TEST(server_admission, trusted_proxy__says_the_origin_of_the_page) {
  Folder folder;
  const std::string page = "Origin: https://pictures.example\r\n",
                    forwarded =
                        "X-Forwarded-Proto: https\r\nX-Forwarded-Host: pictures.example\r\n";
  const auto status = [&](const TestServer& s, const std::string& headers) {
    return s.post("/sdapi/v1/interrupt", json::object(), headers).status;
  };
  {
    TestServer plain(folder.path(), 1);
    EXPECT_EQ(status(plain, page + forwarded), 403);  // anybody could say so
  }
  {  // a name that another page may have got for itself
    TestServer any(folder.path(), 1, [](auto& o) { o.guard.proxies = {"127.0.0.1"}; });
    EXPECT_EQ(status(any, page + forwarded), 403);
    EXPECT_EQ(any.get("/sdapi/v1/options", forwarded).status, 403);
    EXPECT_EQ(any.get("/sdapi/v1/options").status, 200);
  }
  TestServer s(folder.path(), 1, [](auto& o) {
    o.guard.proxies = {"127.0.0.1"}, o.guard.hosts = {"pictures.example"};
  });
  EXPECT_EQ(status(s, page + forwarded), 200);
  EXPECT_EQ(status(s, page), 403);
  EXPECT_EQ(status(s, "Origin: https://other.example\r\n" + forwarded), 403);
  EXPECT_EQ(status(s, "Origin: http://pictures.example\r\n" + forwarded), 403);
  // What a client itself says stands before what the proxy does.
  EXPECT_EQ(status(s,
                   "Origin: https://evil.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: "
                   "evil.example, pictures.example\r\n"),
            403);
  EXPECT_EQ(status(s, page + "X-Forwarded-Host: evil.example\r\n" + forwarded), 200);
  EXPECT_EQ(status(s, ""), 200);
}

}  // namespace ebb::testing
