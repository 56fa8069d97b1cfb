// What other servers of this kind got wrong: one test a row of the table in docs/server.md, by its
// number (row_8 in same_picture_test.cpp; 13 and 24 in clients_test.cpp; 21, 22, 27 and 28 in
// program_test.cpp; 26 in memory_test.cpp). After each the server still answers.
#include <gtest/gtest.h>

#include <thread>

#include "apps/server/base64.h"
#include "io/image.h"
#include "support/pictures.h"
#include "support/test_server.h"

namespace ebb::testing {
namespace {

using std::chrono::milliseconds;

const std::string form = "Content-Type: text/plain\r\n";

std::string picture_text(int64_t h = 16, int64_t w = 16, int64_t c = 3) {
  return server::base64(io::encode_png(gradient(h, w, c)));
}

nlohmann::json request_of(const std::string& prompt = "a fox") {
  return {{"prompt", prompt}, {"steps", 2}, {"width", 64}, {"height", 64}};
}

class ServerSecurity : public ::testing::Test {
 protected:
  void TearDown() override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    int status = 0;  // a test may have had all connections of its address, which are just closing
    while (status != 200 && std::chrono::steady_clock::now() < end)
      status = server_.get("/internal/ping").status;
    EXPECT_EQ(status, 200);
  }
  size_t jobs() { return server_.service().queue().all().size(); }
  HttpAnswer raw(const std::string& bytes) const {
    Wire wire(server_.port());
    wire.send(bytes);
    return wire.answer();
  }
  HttpAnswer txt2img(const nlohmann::json& changes) const {
    nlohmann::json body = request_of();
    body.update(changes);
    return server_.post("/sdapi/v1/txt2img", body);
  }
  HttpAnswer img2img(const nlohmann::json& changes) const {
    nlohmann::json body = request_of();
    body["init_images"] = {picture_text()};
    body.update(changes);
    return server_.post("/sdapi/v1/img2img", body);
  }
  Folder folder_;
  TestServer server_{folder_.path()};
};

}  // namespace

TEST_F(ServerSecurity, row_1__another_host__403_without_a_job_and_without_cors) {
  for (const char* path : {"/sdapi/v1/txt2img", "/ebb/v1/jobs", "/v1/images/generations"}) {
    const auto a = ask(server_.port(), "POST", path, request_of().dump(), "", "evil.example:7860");
    EXPECT_EQ(a.status, 403) << path;
    EXPECT_EQ(a.header("access-control-allow-origin"), "");
  }
  EXPECT_EQ(ask(server_.port(), "GET", "/", "", "", "evil.example").status, 403);
  for (const char* host : {"localhost:7860", "[::1]:1", "x.localhost", "host.docker.internal"})
    EXPECT_EQ(ask(server_.port(), "GET", "/healthz", "", "", host).status, 200) << host;
  EXPECT_EQ(raw("GET / HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(raw("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n").status, 400);
  EXPECT_EQ(jobs(), 0u);
}

TEST_F(ServerSecurity, row_2__another_origin__403_and_no_headers_for_it) {
  const std::string origin = "Origin: https://evil.example\r\n";
  const auto a = server_.post("/sdapi/v1/txt2img", request_of(), origin);
  EXPECT_EQ(a.status, 403);
  const auto b = ask(server_.port(), "OPTIONS", "/sdapi/v1/txt2img", "",
                     origin + "Access-Control-Request-Method: POST\r\n");
  EXPECT_EQ(b.status, 403);
  for (const auto& answer : {a, b})
    EXPECT_EQ(answer.header("access-control-allow-origin"), "") << answer.head;
  EXPECT_EQ(server_.get("/sdapi/v1/options", origin).status, 403);
  EXPECT_EQ(server_.get("/sdapi/v1/options", "Origin: http://127.0.0.1\r\n").status, 200);
  EXPECT_EQ(jobs(), 0u);
}

TEST(server_host, name_that_is_allowed__in_any_letters) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.guard.hosts = {"My-Server", "fd00::1"}; });
  for (const auto& [host, status] : {std::pair("my-server:7860", 200),
                                     {"MY-SERVER", 200},
                                     {"my-server.evil", 403},
                                     {"[fd00::1]:7860", 200},
                                     {"[fd00::2]", 403}})
    EXPECT_EQ(ask(s.port(), "GET", "/healthz", "", "", host).status, status) << host;
}

TEST(server_cors, origin_that_is_named__may_ask_and_others_may_not) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.guard.origins = {"https://lite.koboldai.net"}; });
  const std::string origin = "Origin: https://lite.koboldai.net\r\n";
  const auto a = ask(s.port(), "OPTIONS", "/sdapi/v1/txt2img", "", origin);
  EXPECT_EQ(a.status, 204);
  EXPECT_EQ(a.header("access-control-allow-origin"), "https://lite.koboldai.net");
  EXPECT_EQ(a.header("access-control-allow-headers"), "content-type, authorization");
  EXPECT_EQ(s.get("/sdapi/v1/options", origin).header("access-control-allow-origin"),
            "https://lite.koboldai.net");
  EXPECT_EQ(s.get("/sdapi/v1/options", origin).header("access-control-expose-headers"),
            "Retry-After, X-Ebb-Ignored");
  EXPECT_EQ(s.get("/sdapi/v1/options", "Origin: https://lite.koboldai.net.evil\r\n").status, 403);
}

TEST_F(ServerSecurity, row_3__origin_null__is_foreign) {
  for (const char* path : {"/sdapi/v1/interrupt", "/sdapi/v1/options", "/prompt", "/api/interrupt",
                           "/queue", "/upload/image"})
    EXPECT_EQ(ask(server_.port(), "POST", path, "", "Origin: null\r\n").status, 403) << path;
}

TEST_F(ServerSecurity, row_4__form_of_another_site__403) {
  for (const char* site : {"cross-site", "same-site"}) {
    const auto a = ask(server_.port(), "POST", "/sdapi/v1/txt2img", request_of().dump(),
                       form + "Sec-Fetch-Site: " + site + "\r\n");
    EXPECT_EQ(a.status, 403) << site;
  }
  // of the same page: the type must be one that forms cannot have
  EXPECT_EQ(ask(server_.port(), "POST", "/sdapi/v1/txt2img", request_of().dump(),
                form + "Sec-Fetch-Site: same-origin\r\n")
                .status,
            415);
  EXPECT_EQ(jobs(), 0u);
  // no browser: many scripts send JSON as they please
  EXPECT_EQ(ask(server_.port(), "POST", "/sdapi/v1/txt2img", request_of().dump(), form).status,
            200);
}

TEST_F(ServerSecurity, row_5__html_and_svg_as_pictures__400_and_nothing_but_images_is_served) {
  for (const char* text : {"<html><script>1</script></html>",
                           "<svg xmlns='http://www.w3.org/2000/svg' onload='1'/>"}) {
    const std::string bytes = text;
    const std::string coded =
        server::base64({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    EXPECT_EQ(img2img({{"init_images", {coded}}}).status, 400);
    EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"init", coded}}).status, 400);
    EXPECT_EQ(server_.post("/ebb/v1/inspect", {{"image", coded}}).status, 400);
  }
  for (const char* name : {"x.html", "x.svg", "x.xhtml", "x.png"}) {
    const std::string body =
        str("--xyz\r\nContent-Disposition: form-data; name=\"image\"; filename=\"", name,
            "\"\r\nContent-Type: image/png\r\n\r\n<svg onload='1'/>\r\n--xyz--\r\n");
    EXPECT_EQ(ask(server_.port(), "POST", "/upload/image", body,
                  "Content-Type: multipart/form-data; boundary=xyz\r\n")
                  .status,
              400);
    EXPECT_EQ(server_.get(str("/view?type=input&filename=", name)).status, 404);
  }
  const auto job = server_.post("/ebb/v1/jobs", {{"prompt", "x"}, {"size", "64"}, {"steps", 1}});
  const auto done = server_.finished(job.json()["id"]);
  const auto image = server_.get(done["images"][0]["url"].get<std::string>());
  EXPECT_EQ(image.header("content-type"), "image/png");
  EXPECT_EQ(image.header("x-content-type-options"), "nosniff");
}

TEST_F(ServerSecurity, row_6__paths_out_of_the_server__404_or_400) {
  for (const char* path :
       {"/../../etc/passwd", "/%2e%2e%2f%2e%2e%2fetc/passwd", "/..%5c..%5cetc", "//etc/passwd",
        "/ebb/v1/images/../../x", "/ebb/v1/images/..%2f..%2fx", "/ebb/v1/images/%2fetc%2fpasswd"})
    EXPECT_EQ(server_.get(path).status, 404) << path;
  for (const char* name : {"../../etc/passwd", "..%2f..%2fetc%2fpasswd", "/etc/passwd", "x%2f..",
                           "..", ".png", "", "..%5cx.png"})
    for (const char* type : {"input", "output", "temp", "../etc"})
      EXPECT_EQ(server_.get(str("/view?filename=", name, "&subfolder=../..&type=", type)).status,
                404)
          << name;
  for (const char* path : {"/ebb/v1/images/%00", "/%c0%ae%c0%ae/etc", "/%zz", "/%2", "/a%0d%0ab"})
    EXPECT_EQ(server_.get(path).status, 400) << path;
}

TEST_F(ServerSecurity, row_7__names_that_are_paths__are_not_in_the_catalogue) {
  put_file(folder_ / "secret.safetensors", "x");
  for (const std::string& name : {std::string("/etc/passwd"), std::string("../secret"),
                                  std::string("..\\secret"), std::string("\\\\host\\share\\x"),
                                  folder_ / "secret.safetensors", std::string(10240, 'a')}) {
    for (const char* option : {"sd_model_checkpoint", "sd_vae"})
      EXPECT_EQ(txt2img({{"override_settings", {{option, name}}}}).status, 400) << name;
    EXPECT_EQ(txt2img({{"lora_paths", {name}}, {"lora_alphas", {1.0}}}).status, 400) << name;
    EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"model", name}}).status, 400) << name;
    const nlohmann::json unit = {{"model", name}, {"image", picture_text()}};
    EXPECT_EQ(txt2img({{"alwayson_scripts", {{"controlnet", {{"args", {unit}}}}}}}).status, 400);
  }
  for (const char* setting : {"out", "lora_dir", "embedding_dir"})
    EXPECT_EQ(server_.post("/ebb/v1/jobs", {{setting, "/etc"}}).status, 422) << setting;
  EXPECT_EQ(
      server_
          .post("/ebb/v1/jobs", {{"schedule", "custom"}, {"schedule_options", "file=/etc/passwd"}})
          .status,
      422);
}

TEST_F(ServerSecurity, row_9__compressed_body__415_before_it_is_read) {
  EXPECT_EQ(raw("POST /sdapi/v1/txt2img HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
                "Content-Length: 200000\r\n\r\n")
                .status,
            415);  // no byte of the body was sent
}

TEST_F(ServerSecurity, row_10__chunks__are_counted_and_must_be_well_formed) {
  const std::string head =
      "POST /sdapi/v1/options HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string part = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  Wire wire(server_.port());
  wire.send(head);
  for (int i = 0; i < 40 && wire.send(part); ++i) {
  }
  EXPECT_EQ(wire.answer().status, 413);
  for (const std::string size : {"-2", "ffffffffffffffffff", "zz"})
    EXPECT_EQ(raw(head + size + "\r\nab\r\n0\r\n\r\n").status, 400) << size;
  EXPECT_EQ(raw(head + "2;x=" + std::string(10240, 'y') + "\r\n{}\r\n0\r\n\r\n").status, 400);
  EXPECT_EQ(raw(head + "2\r\n{}\r\n0\r\n\r\n").status, 200);
}

// A protocol's form of the request before is none of the next one's.
TEST_F(ServerSecurity, faults_of_http__have_the_form_of_their_own_request) {
  Wire wire(server_.port());
  wire.send("POST /v1/sdapi/v1/txt2img HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\n{");
  EXPECT_GE(wire.answer().status, 400);
  wire.send("GET /" + std::string(100'000, 'b') + " HTTP/1.1\r\n");
  const HttpAnswer next = wire.answer();
  EXPECT_EQ(next.status, 431);
  EXPECT_EQ(next.json().value("detail", "none"), "none") << next.body;
}

TEST_F(ServerSecurity, row_11__many_headers_and_long_ones__431) {
  std::string many;
  for (int i = 0; i < 200; ++i) many += str("A", i, ": b\r\n");
  EXPECT_EQ(ask(server_.port(), "GET", "/healthz", "", many).status, 431);
  EXPECT_EQ(ask(server_.port(), "GET", "/healthz", "", "A: " + std::string(2'000'000, 'b') + "\r\n")
                .status,
            431);
  EXPECT_EQ(ask(server_.port(), "GET", "/" + std::string(100'000, 'b')).status, 431);
}

TEST_F(ServerSecurity, row_12__requests_that_two_servers_would_read_differently__400) {
  const std::string start = "POST /sdapi/v1/options HTTP/1.1\r\nHost: localhost\r\n";
  EXPECT_EQ(raw(start + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x").status, 400);
  EXPECT_EQ(raw(start + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}").status, 400);
  EXPECT_EQ(raw(start + "Content-Length : 2\r\n\r\n{}").status, 400);
  EXPECT_EQ(raw("GET /healthz HTTP/1.1\nHost: localhost\n\n").status, 400);
}

TEST_F(ServerSecurity, row_14__picture_that_only_claims_to_be_large__refused_before_it_is_made) {
  std::vector<uint8_t> png = io::encode_png(gradient(4, 4, 3));
  for (const size_t at : {size_t{16}, size_t{20}})  // width and height in IHDR
    png[at] = 0, png[at + 1] = 0, png[at + 2] = 255, png[at + 3] = 255;
  const auto a = img2img({{"init_images", {server::base64(png)}}});
  EXPECT_EQ(a.status, 400);
}

TEST_F(ServerSecurity, row_15__odd_pictures__work_or_are_told) {
  for (const auto& [h, w, c] : {std::tuple{1, 1, 3}, {1, 1, 1}, {3, 50, 1}})
    EXPECT_EQ(img2img({{"init_images", {picture_text(h, w, c)}}}).status, 200);
  EXPECT_EQ(img2img({{"mask", picture_text(1, 1, 1)}, {"inpaint_full_res", 0}}).status, 200);
  EXPECT_EQ(img2img({{"init_images", {""}}}).status, 404);
  EXPECT_EQ(img2img({{"init_images", {"AAAA"}}}).status, 400);
  EXPECT_EQ(img2img({{"init_images", {"?"}}}).status, 400);
}

TEST_F(ServerSecurity, row_16__sizes_that_are_no_multiples__are_rounded_or_told) {
  const auto size = [](const HttpAnswer& a) {
    const auto info = nlohmann::json::parse(a.json()["info"].get<std::string>());
    return info["infotexts"][0].get<std::string>();
  };
  const auto a = txt2img({{"width", 513}, {"height", 511}});
  EXPECT_EQ(a.status, 200);
  EXPECT_NE(size(a).find("Size: 512x504"), std::string::npos) << size(a);
  EXPECT_EQ(txt2img({{"width", 80}, {"height", 120}}).status, 200);
  EXPECT_EQ(img2img({{"width", 128}, {"mask", picture_text(9, 40, 1)}}).status, 200);
  EXPECT_EQ(server_.post("/ebb/v1/jobs", {{"size", "513x511"}}).status, 422);
}

TEST_F(ServerSecurity, row_17__numbers_out_of_range__422_with_the_field) {
  const std::pair<const char*, nlohmann::json> cases[] = {{"steps", -1},
                                                          {"steps", 0},
                                                          {"steps", 2147483648LL},
                                                          {"steps", 1e308},
                                                          {"steps", "NaN"},
                                                          {"width", -8},
                                                          {"batch_size", 1000000000},
                                                          {"n_iter", 65},
                                                          {"seed", 9223372036854775808ULL},
                                                          {"cfg_scale", "x"},
                                                          {"steps", {1}},
                                                          {"tiling", "maybe"}};
  for (const auto& [field, value] : cases) {
    const auto a = txt2img({{field, value}});
    EXPECT_EQ(a.status, 422) << field << " " << value;
    EXPECT_EQ(a.json()["detail"][0]["loc"][1], field) << a.body;
  }
  EXPECT_EQ(txt2img({{"enable_hr", true}, {"hr_scale", 0}}).status, 422);
  EXPECT_EQ(txt2img({{"steps", 2.0}, {"seed", "7"}, {"tiling", 0}}).status, 200);
  for (const char* setting : {"steps", "n", "batch"})
    EXPECT_EQ(server_.post("/ebb/v1/jobs", {{setting, -1}}).status, 422) << setting;
}

TEST_F(ServerSecurity, row_18__huge_bodies_and_deep_json__refused) {
  Wire wire(server_.port());
  wire.send(
      "POST /sdapi/v1/txt2img HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n");
  EXPECT_EQ(wire.answer().status, 413);
  for (const std::string& body :
       {"{\"a\":" + std::string(1'000'000, '['), std::string(1000, '{'),
        "{\"a\":[" + std::string(600'000, ',') + "]}", std::string("[1]"), std::string("{")})
    EXPECT_EQ(ask(server_.port(), "POST", "/sdapi/v1/txt2img", body).status, 400);
  EXPECT_EQ(txt2img({{"prompt", std::string(3'000'000, 'x')}}).status, 413);
}

TEST_F(ServerSecurity, row_19__urls_of_pictures__are_not_fetched) {
  for (const char* url : {"http://169.254.169.254/latest", "file:///etc/passwd", "https://x/y.png",
                          "data:text/html;base64,AAAA"})
    EXPECT_EQ(img2img({{"init_images", {url}}}).status, 400) << url;
}

TEST_F(ServerSecurity, row_20__line_ends_in_names__never_reach_a_header) {
  EXPECT_EQ(server_.get("//evil.example").status, 404);
  EXPECT_EQ(server_.get("/x%0d%0aSet-Cookie:%20a=b").status, 400);
  const auto a = txt2img({{"force_task_id", "x\r\nSet-Cookie: a=b"}});
  EXPECT_EQ(a.status, 422);
  const auto b = txt2img({{"odd\r\nSet-Cookie: a=b", 1}});
  EXPECT_EQ(b.status, 200);
  for (const auto& answer : {a, b}) EXPECT_EQ(answer.header("set-cookie"), "") << answer.head;
}

// A build may be without the page.
TEST_F(ServerSecurity, page__has_its_policy_or_is_told_to_be_missing) {
  const auto a = server_.get("/", "Sec-Fetch-Site: cross-site\r\n");
  if (a.status == 404) {
    EXPECT_NE(a.body.find("without its web page"), std::string::npos) << a.body;
  } else {
    EXPECT_EQ(a.status, 200);
    EXPECT_NE(a.header("content-security-policy").find("default-src 'none'"), std::string::npos);
    EXPECT_EQ(server_.get("/", "If-None-Match: " + a.header("etag") + "\r\n").status, 304);
  }
  const auto start = std::chrono::steady_clock::now();
  const auto head = ask(server_.port(), "HEAD", "/");
  EXPECT_EQ(head.status, a.status);
  EXPECT_EQ(head.header("content-length"), a.header("content-length"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(ServerSecurity, row_23__slow_clients__do_not_keep_others_waiting) {
  std::vector<std::unique_ptr<Wire>> idle;
  for (int i = 0; i < 40; ++i) idle.push_back(std::make_unique<Wire>(server_.port()));
  std::vector<std::unique_ptr<Wire>> streams;
  for (int i = 0; i < 20; ++i) {
    streams.push_back(std::make_unique<Wire>(server_.port()));
    streams.back()->send(http_request("GET", "/ebb/v1/events"));
  }
  std::vector<std::unique_ptr<Wire>> bodies;  // that come by a byte
  for (int i = 0; i < 3; ++i) {
    bodies.push_back(std::make_unique<Wire>(server_.port()));
    bodies.back()->send(
        "POST /sdapi/v1/txt2img HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  }
  // The 64th connection of this address still gets through, again and again.
  Wire last(server_.port());
  std::vector<std::chrono::steady_clock::duration> times;
  for (int i = 0; i < 100; ++i) {
    const auto start = std::chrono::steady_clock::now();
    last.send(http_request("GET", "/internal/ping"));
    ASSERT_EQ(last.answer().status, 200);
    times.push_back(std::chrono::steady_clock::now() - start);
    for (const auto& b : bodies) b->send(" ");
  }
  std::ranges::nth_element(times, times.begin() + 50);
  EXPECT_LT(times[50], milliseconds(20));  // the median: the machine has others, too
}

TEST(server_limits, connections_of_an_address__are_bounded) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) { o.limits.connections_of_address = 3; });
  std::vector<std::unique_ptr<Wire>> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(std::make_unique<Wire>(s.port()));
    held.back()->send(http_request("GET", "/internal/ping"));
    EXPECT_EQ(held.back()->answer().status, 200);
  }
  EXPECT_EQ(s.get("/internal/ping").status, 0);
  held.clear();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(s.get("/internal/ping").status, 200);
}

TEST(server_limits, headers_and_bodies_that_do_not_come__end_the_connection) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) {
    o.limits.header_time = milliseconds(200), o.limits.slow_body = milliseconds(200);
  });
  Wire header(s.port());
  header.send("GET / HT");
  EXPECT_FALSE(header.until("never", std::chrono::seconds(5)));
  EXPECT_EQ(header.read, "");
  Wire body(s.port());
  body.send("POST /sdapi/v1/options HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_FALSE(body.until("never", std::chrono::seconds(5)));
  EXPECT_EQ(s.get("/internal/ping").status, 200);
}

TEST(server_limits, stream_that_is_not_read__is_cut_off) {
  Folder folder;
  TestServer s(folder.path(), 1, [](auto& o) {
    o.limits.stream_bytes = 20000;
    o.limits.write_stall = milliseconds(300);
  });
  Wire reader(s.port());
  reader.send(http_request("GET", "/ebb/v1/events"));
  ASSERT_TRUE(reader.until("event: state"));
  // More all the time: a busy machine writes late what then fits into the socket's buffers.
  for (int i = 0; i < 2000 && s.service().queue().subscribers() > 0; ++i) {
    for (int k = 0; k < 100; ++k)
      s.service().queue().tell("model", {{"name", std::string(8000, 'x')}});
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(s.service().queue().subscribers(), 0u);
  EXPECT_EQ(s.get("/internal/ping").status, 200);
}

TEST_F(ServerSecurity, row_25__options_at_the_same_time_as_jobs__each_job_has_its_own) {
  std::vector<std::jthread> all;
  std::atomic<int> faults = 0;
  for (int i = 0; i < 12; ++i)
    all.emplace_back([&, i] {
      const int skip = 2 + i % 3;
      const auto o = server_.post("/sdapi/v1/options", {{"CLIP_stop_at_last_layers", skip}});
      const auto a = txt2img({{"override_settings", {{"CLIP_stop_at_last_layers", skip}}}});
      const auto p = server_.get("/sdapi/v1/progress");
      if (o.status != 200 || a.status != 200 || p.status != 200) ++faults;
      const auto info = nlohmann::json::parse(a.json()["info"].get<std::string>());
      if (info["clip_skip"] != skip) ++faults;
    });
  all.clear();
  EXPECT_EQ(faults, 0);
}

}  // namespace ebb::testing
