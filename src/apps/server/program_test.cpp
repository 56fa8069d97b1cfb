// `ebb serve` as a program: how it starts, ends, is killed and goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include "support/http_client.h"
#include "support/program.h"

namespace ebb::testing {
namespace {

using nlohmann::json;

// A running server; its lines go to a file.
class Serving {
 public:
  Serving(const std::string& folder, const std::vector<std::string>& flags,
          const std::string& engine = "fake", bool without_streams = false)
      : log_(folder + "/log") {
    std::filesystem::remove(log_);
    std::vector<std::string> words = {program_path(), "serve", "--engine", engine,
                                      "--port",       "0",     "--out",    folder + "/out"};
    words.insert(words.end(), flags.begin(), flags.end());
    pid_ = ::fork();
    if (pid_ == 0) {
      std::freopen(log_.c_str(), "w", stderr);
      if (without_streams) ::close(STDIN_FILENO), ::close(STDOUT_FILENO);
      std::vector<char*> argv;
      for (std::string& w : words) argv.push_back(w.data());
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    for (int i = 0; i < 1000 && port_ == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const std::string text = log();
      const size_t at = text.find("http://127.0.0.1:");
      if (at != text.npos && text.find('\n', at) != text.npos)
        port_ = static_cast<uint16_t>(std::atoi(text.c_str() + at + 17));
    }
    EXPECT_NE(port_, 0) << log();
  }
  ~Serving() { kill(SIGKILL); }
  // Its exit code, or the signal that ended it, negative.
  int kill(int signal) {
    if (pid_ <= 0) return 0;
    ::kill(pid_, signal);
    return wait();
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string log() const { return std::filesystem::exists(log_) ? file_bytes(log_) : ""; }
  uint16_t port() const { return port_; }
  pid_t pid() const { return pid_; }
  HttpAnswer post(const std::string& target, const json& body) const {
    return ask(port_, "POST", target, body.dump());
  }
  json job(const std::string& id) const { return ask(port_, "GET", "/ebb/v1/jobs/" + id).json(); }
  json finished(const std::string& id) const {
    for (int i = 0; i < 1000; ++i) {
      const json j = job(id);
      if (j.value("status", "") == "completed") return j;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return job(id);
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

json slow_job(int64_t n) {
  return {{"prompt", "a fox"}, {"size", "64x64"}, {"steps", 4}, {"seed", 5}, {"n", n}};
}

}  // namespace

TEST(serve_program, killed__its_jobs_go_on_and_pictures_are_whole) {
  Folder folder;
  std::string first, second;
  {
    Serving s(folder.path(), {"--step-ms", "30"});
    first = s.post("/ebb/v1/jobs", slow_job(4)).json()["id"];
    second = s.post("/ebb/v1/jobs", slow_job(1)).json()["id"];
    while (s.job(first)["images"].empty()) {
    }
    EXPECT_EQ(s.kill(SIGKILL), -SIGKILL);
  }
  Serving s(folder.path(), {"--step-ms", "1"});
  EXPECT_EQ(s.finished(first)["status"], "completed");
  EXPECT_EQ(s.finished(second)["status"], "completed");
  const json images = ask(s.port(), "GET", "/ebb/v1/images").json()["images"];
  EXPECT_GE(images.size(), 5u);
  for (const json& i : images) EXPECT_EQ(i["prompt"], "a fox");
}

// Its supervisor starts it again.
TEST(serve_program, device_that_is_lost__ends_it_with_an_error_and_other_jobs_go_on) {
  Folder folder;
  std::string waits;
  {
    Serving s(folder.path(), {"--step-ms", "100"});
    s.post("/ebb/v1/jobs", slow_job(1));
    json lost = slow_job(1);
    lost["prompt"] = "lose the device";
    s.post("/ebb/v1/jobs", lost);
    waits = s.post("/ebb/v1/jobs", slow_job(2)).json()["id"];
    EXPECT_EQ(s.wait(), 2);
    EXPECT_NE(s.log().find("no job can run in this process any more"), std::string::npos)
        << s.log();
  }
  Serving s(folder.path(), {"--step-ms", "1"});
  EXPECT_EQ(s.finished(waits)["status"], "completed");
}

TEST(serve_program, log__has_the_job_of_a_request_and_prompts_only_where_asked) {
  Folder folder;
  json body = {{"prompt", "a fox\nin\x1b[31m snow"}, {"steps", 2}, {"width", 64}, {"height", 64}};
  body["force_task_id"] = "mine";
  for (const bool prompts : {false, true}) {
    Serving s(folder.path(), prompts ? std::vector<std::string>{"--step-ms", "1", "--log-prompts"}
                                     : std::vector<std::string>{"--step-ms", "1"});
    EXPECT_EQ(s.post("/sdapi/v1/txt2img", body).status, 200);
    EXPECT_EQ(s.post("/ebb/v1/jobs", {{"negative", "rain"}, {"size", "64"}}).status, 202);
    EXPECT_EQ(ask(s.port(), "GET", "/sdapi/v1/samplers").status, 200);
    EXPECT_EQ(s.kill(SIGTERM), 0);
    const std::string log = s.log();
    EXPECT_NE(log.find(" ms job mine\n"), std::string::npos) << log;
    const size_t list = log.find("GET /sdapi/v1/samplers");
    EXPECT_EQ(log.substr(list, log.find('\n', list) - list).find("job"), std::string::npos) << log;
    const std::string line = "job mine prompt: a fox\\nin\\x1b[31m snow\n";
    EXPECT_EQ(log.find(line) != std::string::npos, prompts) << log;
    EXPECT_EQ(log.find("fox") != std::string::npos, prompts) << log;
    EXPECT_EQ(log.find(" negative: rain\n") != std::string::npos, prompts) << log;
  }
}

TEST(serve_program, log__has_what_is_refused_before_it_is_read) {
  Folder folder;
  Serving s(folder.path(), {"--step-ms", "1"});
  const auto send = [&](const std::string& text) {
    Wire wire(s.port());
    wire.send(text);
    return wire.answer().status;
  };
  EXPECT_EQ(send("no http\r\n\r\n"), 400);
  EXPECT_EQ(send("GET /" + std::string(100'000, 'b') + " HTTP/1.1\r\n"), 431);
  EXPECT_EQ(send("POST /sdapi/v1/txt2img?key=secret HTTP/1.1\r\nHost: localhost\r\n"
                 "Content-Length: 1000000000\r\n\r\n"),
            413);
  EXPECT_EQ(send("POST /sdapi/v1/options HTTP/1.1\r\nHost: localhost\r\n"
                 "Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            400);
  EXPECT_EQ(s.kill(SIGTERM), 0);
  for (const char* line :
       {"- - 400 refused\n", "- - 431 refused\n", "POST /sdapi/v1/txt2img 413 refused\n",
        "POST /sdapi/v1/options 400 refused\n"})
    EXPECT_NE(s.log().find(line), std::string::npos) << line << s.log();
  EXPECT_EQ(s.log().find("secret"), std::string::npos);
}

TEST(serve_program, killed_3_times_with_50_jobs__each_picture_is_there_once) {
  Folder folder;
  std::map<std::string, int> times;
  auto s = std::make_unique<Serving>(folder.path(), std::vector<std::string>{"--step-ms", "10"});
  for (int i = 0; i < 50; ++i) {
    const std::string prompt = str("job ", i);
    times[prompt] = 0;
    json job = slow_job(1);
    job["prompt"] = prompt;
    ASSERT_EQ(s->post("/ebb/v1/jobs", job).status, 202) << i;
  }
  const auto images = [&] {
    return ask(s->port(), "GET", "/ebb/v1/images?limit=200").json()["images"];
  };
  for (int kills = 1; kills <= 3; ++kills) {
    for (int i = 0; i < 1000 && images().size() < 10 * static_cast<size_t>(kills); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_LT(images().size(), 50u) << "nothing is left to be killed";
    EXPECT_EQ(s->kill(SIGKILL), -SIGKILL);
    s = std::make_unique<Serving>(folder.path(), std::vector<std::string>{"--step-ms", "10"});
  }
  for (int i = 0; i < 2000 && images().size() < 50; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for one too many
  for (const json& i : images()) ++times[i["prompt"]];
  for (const auto& [prompt, n] : times) EXPECT_EQ(n, 1) << prompt;
}

TEST(serve_program, signal__ends_it_in_time_with_0) {
  Folder folder;
  Serving s(folder.path(), {"--step-ms", "50"});
  s.post("/ebb/v1/jobs", {{"prompt", "x"}, {"size", "64"}, {"steps", 1000}});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(s.kill(SIGTERM), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(serve_program, flags_that_can_never_be__it_does_not_start) {
  Folder folder;
  const std::string start = str("serve --port 0 --out ", folder / "out", ' ');
  put_file(folder / "file", "");
  for (const auto& [flags, sentence] : std::vector<std::pair<std::string, std::string>>{
           {"--device gpu", "unknown name 'gpu' (did you mean 'cpu'?)"},
           {"--threads -3", "threads must be 0 to"},
           {"--device cpu --threads 9999", "threads must be 0 to"},
           {"--trusted-proxy proxy",
            "--trusted-proxy must be an address, as 127.0.0.1 (got 'proxy')"},
           {"--allowed-host 'a b'", "--allowed-host must be the name of a host"},
           {"--allowed-host http://a", "--allowed-host must be the name of a host"},
           {"--options " + folder / "file/options", "--options: "}})
    EXPECT_NE(error_line(start + flags).find(sentence), std::string::npos)
        << flags << '\n'
        << error_line(start + flags);
}

// A file that is opened would be such a stream, and get lines that are for people.
TEST(serve_program, closed_standard_streams__are_no_files_of_the_server) {
  Folder folder;
  Serving s(folder.path(), {"--step-ms", "1"}, "fake", true);
  for (const char* stream : {"0", "1"})
    EXPECT_EQ(std::filesystem::read_symlink(str("/proc/", s.pid(), "/fd/", stream)), "/dev/null");
}

// Row 21: open to others by mistake.
TEST(serve_program, row_21__other_computers_without_a_key__it_does_not_start) {
  Folder folder;
  const std::string start = str("serve --engine fake --port 0 --out ", folder / "out");
  EXPECT_NE(error_line(start + " --listen 0.0.0.0").find("--key"), std::string::npos);
  EXPECT_NE(error_line(start + " --host 0.0.0.0").find("--insecure-no-auth"), std::string::npos);
  EXPECT_NE(error_line(start + " --cors-origin '*'").find("--cors-origin"), std::string::npos);
  put_file(folder / "key", "short");
  EXPECT_NE(error_line(start + " --key " + folder / "key").find("8 signs"), std::string::npos);
}

// Row 22: what is logged of a request.
TEST(serve_program, row_22__lines_of_the_log_are_short_and_have_no_prompts) {
  Folder folder;
  Serving s(folder.path(), {"--step-ms", "1"});
  s.post("/sdapi/v1/img2img",
         {{"prompt", "secret words"}, {"init_images", {std::string(3'000'000, 'A')}}});
  s.post("/ebb/v1/jobs", {{"prompt", "fail"}});
  ask(s.port(), "GET", "/" + std::string(5000, 'x'));
  s.kill(SIGTERM);
  const std::string log = s.log();
  EXPECT_EQ(log.find("secret"), std::string::npos);
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    EXPECT_LT(end - at, 500u);
    at = end + 1;
  }
}

// Row 27: a port in use, a folder that takes no files.
TEST(serve_program, row_27__port_in_use_and_no_room_for_pictures__are_told) {
  Folder folder;
  Serving s(folder.path(), {"--step-ms", "1"});
  const std::string line =
      error_line(str("serve --engine fake --port ", s.port(), " --out ", folder / "other"));
  EXPECT_NE(line.find("cannot listen at 127.0.0.1"), std::string::npos) << line;
  EXPECT_NE(error_line(str("serve --engine fake --port 0 --runs nowhere --out ", folder / "other")),
            "");
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
  put_file(folder / "file", "");
  EXPECT_NE(error_line(str("serve --engine fake --port 0 --out ", folder / "file")).find("--out"),
            std::string::npos);
  const std::string proc = error_line("serve --engine fake --port 0 --out /proc");
  EXPECT_NE(proc.find("--out: no file can be made in the folder ("), std::string::npos) << proc;
  EXPECT_TRUE(proc.ends_with("  /proc")) << proc;
  std::filesystem::rename(folder / "out", folder / "gone");
  std::filesystem::remove_all(folder / "gone");
  const auto a =
      s.post("/sdapi/v1/txt2img",
             {{"prompt", "x"}, {"steps", 1}, {"width", 64}, {"height", 64}, {"save_images", true}});
  EXPECT_EQ(a.status, 200) << a.body;
  EXPECT_EQ(a.json()["images"].size(), 1u);
}

TEST(serve_program, two_with_one_out__the_second_does_not_start) {
  Folder folder;
  Serving s(folder.path(), {"--step-ms", "1"});
  const std::string start = str("serve --engine fake --port 0 --out ", folder / "out");
  EXPECT_NE(error_line(start).find("another process writes into --out"), std::string::npos)
      << error_line(start);
  s.kill(SIGKILL);
  Serving again(folder.path(), {"--step-ms", "1"});
  EXPECT_EQ(ask(again.port(), "GET", "/internal/ping").status, 200);
}

TEST(serve_program, without_models__it_has_the_one_that_comes_with_ebb) {
  Folder folder;
  std::filesystem::create_directories(folder / "models");
  Serving s(folder.path(), {"--device", "cpu", "--models", folder / "models"}, "models");
  json all = json::object();
  for (int i = 0; i < 500 && all.value("scanning", true); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    all = ask(s.port(), "GET", "/ebb/v1/catalogue").json();
  }
  ASSERT_EQ(all["models"].size(), 1u) << all["faults"].dump();
  EXPECT_EQ(all["models"][0]["name"], "box");
}

// Row 28: the program that started it has ended.
TEST(serve_program, row_28__parent_that_is_killed__ends_it_too) {
  Folder folder;
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::pause();
    ::_exit(0);
  }
  Serving s(folder.path(), {"--parent-pid", std::to_string(parent), "--log-level", "debug",
                            "--diffusion-fa", "--vae-tiling", "--vae-tile-size", "512x512"});
  EXPECT_EQ(ask(s.port(), "GET", "/v1/internal/ping").status, 200);
  EXPECT_NE(s.log().find("--vae-tiling has no effect"), std::string::npos) << s.log();
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(s.wait(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

}  // namespace ebb::testing
