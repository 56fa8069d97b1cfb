// ebb serve: the HTTP server.
#include <arpa/inet.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"
#include "apps/server/log.h"
#include "apps/server/random_text.h"
#include "apps/server/service.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "base/text_list.h"
#include "io/file.h"
#include "pipeline/model_in_the_box.h"
#include "train/stop.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string host = "127.0.0.1", models, out = "pictures", key, api_auth, options, styles,
              memory = "auto", engine = "models";
  std::string lora_dir, embeddings_dir, ckpt_dir, vae_dir, text_encoder_dir, controlnet_dir,
      realesrgan_models_path;
  TextList runs, allowed_host, cors_origin, trusted_proxy;
  int64_t port = 7860, parent_pid = 0, step_ms = 50, max_batch = 1, batch_window = 0;
  bool deterministic = false, drain = false, keep_orphans = false, insecure_no_auth = false,
       quiet = false, log_prompts = false;
  // Names of other programs.
  std::string listen, api_key, hypernetwork_dir, gfpgan_models_path, codeformer_models_path,
      log_level, vae_tile_size;
  TextList cors_allow_origins;
  bool api = false, diffusion_fa = false, chroma_disable_dit_mask = false, offload_to_cpu = false,
       vae_tiling = false;
  CommonOptions common;
  void fields(auto&& f) {
    f("models", models,
      "a folder of checkpoints, LoRAs, autoencoders, upscalers, and so on; beside them there is "
      "the small model that comes with ebb, which is taken where there is no other");
    f("host", host, "the address to listen at; others than this computer's own need --key");
    f("port", port, "0: any that is free");
    f("out", out, "a folder for pictures, and for the jobs that wait");
    f("runs", runs,
      "a folder of ebb train, or one with such folders in it, for the page /training; may be given "
      "again");
    f("key", key, "a file with the key that clients must send, or auto: one is made and told");
    f("api_auth", api_auth, "NAME:PASSWORD that clients may send instead (Basic)");
    f("allowed_host", allowed_host, "a name under which browsers may reach the server");
    f("cors_origin", cors_origin, "a page elsewhere that may ask, as https://lite.koboldai.net");
    f("trusted_proxy", trusted_proxy,
      "the address of a proxy, as 127.0.0.1, whose X-Forwarded-Proto and X-Forwarded-Host say what "
      "a browser asked for; may be given again");
    f("options", options, "a JSON file that keeps what clients set as options");
    f("styles", styles,
      "a file of parts of prompts as A1111's styles.csv: name,prompt,negative_prompt");
    f("memory", memory,
      "of the device, with the driver's, to keep within: 5GB, 800MiB; auto: what is free");
    f("max_batch", max_batch,
      "waiting jobs that differ in prompt, seed and the like alone are made together, up to so "
      "many "
      "pictures; 1: each by itself, with the bits of ebb generate");
    f("batch_window", batch_window,
      "with --max-batch: milliseconds that a job waits for others to join it");
    f("deterministic", deterministic,
      "pictures have the bits of ebb generate, whoever else asks: refuses --max-batch above 1");
    f("drain", drain, "at the end the job that runs is finished first");
    f("keep_orphans", keep_orphans, "a client that leaves does not cancel its job");
    f("quiet", quiet, "no line for each request");
    f("log_prompts", log_prompts, "a line for each job with its prompt, too");
    f("insecure_no_auth", insecure_no_auth, "other computers may ask without a key");
    f("parent_pid", parent_pid, "ends when the process with this number has ended");
    f("lora_dir", lora_dir, "another folder, of LoRAs, which prompts name: <lora:name:0.8>");
    f("embeddings_dir", embeddings_dir, "likewise, of textual inversions");
    f("ckpt_dir", ckpt_dir, "likewise, of checkpoints");
    f("vae_dir", vae_dir, "likewise, of autoencoders");
    f("text_encoder_dir", text_encoder_dir, "likewise, of text encoders");
    f("controlnet_dir", controlnet_dir, "likewise, of control networks");
    f("realesrgan_models_path", realesrgan_models_path, "likewise, of upscalers");
    f("engine", engine, "fake: pictures of nothing, for tests of clients");
    f("step_ms", step_ms, "with --engine fake: milliseconds of a step");
    other_fields(f);
  }
  // What other programs start their servers with.
  void other_fields(auto&& f) {
    f("listen", listen, "as --host");
    f("api_key", api_key, "as --key");
    f("cors_allow_origins", cors_allow_origins, "as --cors-origin");
    for (const auto& [name, value] :
         {std::pair{"api", &api}, std::pair{"diffusion_fa", &diffusion_fa},
          std::pair{"chroma_disable_dit_mask", &chroma_disable_dit_mask},
          std::pair{"offload_to_cpu", &offload_to_cpu}, std::pair{"vae_tiling", &vae_tiling}})
      f(name, *value, "has no effect: ebb decides it");
    for (const auto& [name, value] :
         {std::pair{"hypernetwork_dir", &hypernetwork_dir},
          std::pair{"gfpgan_models_path", &gfpgan_models_path},
          std::pair{"codeformer_models_path", &codeformer_models_path},
          std::pair{"log_level", &log_level}, std::pair{"vae_tile_size", &vae_tile_size}})
      f(name, *value, "has no effect");
  }
  void choices(auto&& f) { f("engine", engine, {"models", "fake"}); }
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string key_of(const Options& o) {
  const std::string& file = o.key.empty() ? o.api_key : o.key;
  if (file.empty()) return "";
  if (file == "auto") return server::random_text(32);
  std::string key(trimmed(io::read_whole_file(file, "serve: --key", 4096)));
  require(key.size() >= 8 && key.find_first_of(" \t\r\n") == key.npos,
          "serve: --key: the file must hold a key of 8 signs or more, without blanks  ", file);
  return key;
}

// A folder below `models` by one of these names.
std::string subfolder(const std::string& models, std::initializer_list<const char*> names) {
  std::error_code ignored;
  for (const char* name : names)
    if (const fs::path p = fs::path(models) / name; !models.empty() && fs::is_directory(p, ignored))
      return p.string();
  return "";
}

std::vector<server::CatalogueFolder> folders_of(const Options& o) {
  using server::FileKind;
  std::vector<server::CatalogueFolder> out;
  const auto add = [&](const char* flag, const std::string& path, std::optional<FileKind> kind) {
    if (path.empty()) return;
    require(fs::is_directory(path), "serve: ", flag_of(flag), " is no folder  ", path);
    out.push_back({path, kind});
  };
  add("models", o.models, {});
  add("ckpt_dir", o.ckpt_dir, FileKind::model);
  add("vae_dir", o.vae_dir, FileKind::vae);
  add("lora_dir", o.lora_dir, FileKind::lora);
  add("embeddings_dir", o.embeddings_dir, FileKind::embedding);
  add("text_encoder_dir", o.text_encoder_dir, FileKind::text_encoder);
  add("controlnet_dir", o.controlnet_dir, FileKind::control);
  add("realesrgan_models_path", o.realesrgan_models_path, FileKind::upscaler);
  if (o.engine != "models") return out;
  if (const auto box = find_model_in_the_box())
    out.push_back({fs::canonical(*box).parent_path().string(), {}, true});
  return out;
}

// What no job could run on is said at once, but no GPU is opened here.
void check_device(const Options& o) {
  const std::string device = small_letters(o.common.device);
  if (o.engine != "models" || (device.starts_with("cuda") && count_devices("cuda") > 0)) return;
  CommonOptions checked = o.common;
  if (device == "auto") checked.device = "cpu";  // for the number of threads
  open_device(checked);
}

// Names and addresses that could never be those of a request.
void check_peers(const Options& o) {
  for (const std::string& address : o.trusted_proxy.texts) {
    unsigned char bytes[sizeof(in6_addr)];
    require(inet_pton(AF_INET, address.c_str(), bytes) == 1 ||
                inet_pton(AF_INET6, address.c_str(), bytes) == 1,
            "serve: --trusted-proxy must be an address, as 127.0.0.1 (got '", address, "')");
  }
  for (const std::string& name : o.allowed_host.texts)
    require(!name.empty() && name.find_first_of(" \t/@,") == name.npos,
            "serve: --allowed-host must be the name of a host, as box.example.org (got '", name,
            "')");
}

server::ServiceOptions service_options(const Options& o, const std::string& key) {
  const std::string host = o.listen.empty() ? o.host : o.listen;
  require(o.port >= 0 && o.port <= 65535, "serve: --port must be 0 to 65535 (got ", o.port, ")");
  require(is_loopback(host) || !key.empty() || !o.api_auth.empty() || o.insecure_no_auth,
          "serve: other computers could ask without a key; --key FILE or --key auto asks for one, "
          "--insecure-no-auth asks for none  ",
          host);
  require(!o.out.empty(), "serve: --out must name a folder");
  check_peers(o);
  if (!o.options.empty() && !fs::exists(o.options))
    io::check_can_write(o.options, "serve: --options");
  require(o.api_auth.empty() || o.api_auth.find(':') != std::string::npos,
          "serve: --api-auth must be NAME:PASSWORD");
  server::ServiceOptions out;
  out.addresses = {host};
  if (host == "127.0.0.1" || host == "localhost") out.addresses = {"127.0.0.1", "::1"};
  out.port = static_cast<uint16_t>(o.port);
  out.folders = folders_of(o);
  out.out = o.out;
  out.lora_dir = !o.lora_dir.empty() ? o.lora_dir : subfolder(o.models, {"Lora", "lora", "loras"});
  if (out.lora_dir.empty()) out.lora_dir = o.models;
  out.embedding_dir =
      !o.embeddings_dir.empty() ? o.embeddings_dir : subfolder(o.models, {"embeddings"});
  out.options_file = o.options;
  out.runs = o.runs.texts;
  if (!o.styles.empty()) out.styles = server::read_styles(o.styles);
  out.guard = {.hosts = o.allowed_host.texts,
               .origins = o.cors_origin.texts,
               .key = key,
               .user = o.api_auth,
               .proxies = o.trusted_proxy.texts};
  out.guard.hosts.push_back(small_letters(host));
  for (const std::string& all : o.cors_allow_origins.texts)
    for (const std::string_view one : parted(all, ","))
      out.guard.origins.emplace_back(trimmed(one));
  for (const std::string& origin : out.guard.origins)
    require(origin.starts_with("http://") || origin.starts_with("https://"),
            "serve: --cors-origin must be an origin, as https://lite.koboldai.net (got '", origin,
            "')");
  constexpr int64_t most_batch = 64, most_window = 10'000;
  require(o.max_batch >= 1 && o.max_batch <= most_batch, "serve: --max-batch must be 1 to ",
          most_batch, " (got ", o.max_batch, ")");
  require(o.engine == "fake" || o.step_ms == Options().step_ms,
          "serve: --step-ms is of --engine fake alone");
  check_device(o);
  require(o.batch_window >= 0 && o.batch_window <= most_window,
          "serve: --batch-window must be 0 to ", most_window, " ms (got ", o.batch_window, ")");
  require(o.batch_window == 0 || o.max_batch > 1,
          "serve: --batch-window has no effect without --max-batch above 1");
  require(!o.deterministic || o.max_batch == 1, "serve: --max-batch ", o.max_batch,
          " makes pictures of several jobs together, which may change their last bits: not with "
          "--deterministic");
  require(!o.quiet || !o.log_prompts, "serve: --log-prompts has no effect with --quiet");
  out.log_prompts = o.log_prompts;
  out.max_batch = o.max_batch, out.batch_window = o.batch_window;
  out.drain = o.drain, out.keep_orphans = o.keep_orphans, out.log = !o.quiet;
  return out;
}

bool has_ended(int64_t process) {
  return process > 0 && ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

// Flags that other programs' servers have.
void say_unused(Options o) {
  Options plain;
  const auto given = fields_of(o), before = fields_of(plain);
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i].help.starts_with("has no effect") && field_text(given[i]) != field_text(before[i]))
      std::fprintf(stderr, "serve: %s %s\n", flag_of(given[i].name).c_str(), given[i].help.c_str());
}

int run(const Options& o) {
  say_unused(o);
  const std::string key = key_of(o);
  constexpr std::chrono::seconds last_lines{1};
  const train::StopSignals signals("stopping; again, after a second, to end now");
  const auto engine = [&](const server::Catalogue& c) {
    return o.engine == "fake" ? server::fake_engine(o.step_ms)
                              : server::pipeline_engine(c, o.common, o.memory);
  };
  server::ServiceOptions options = service_options(o, key);
  io::TrialFolder pictures(o.out, "serve: --out");
  server::Service service(std::move(options), engine);
  pictures.keep();
  const std::string host = o.listen.empty() ? o.host : o.listen;
  const std::string token = key.empty() ? "" : "#token=" + key;
  const std::string url =
      str("http://", host.find(':') == host.npos ? host : "[" + host + "]", ':', service.port(),
          '/', o.key == "auto" || o.api_key == "auto" ? token : "");
  if (o.common.json) print_json({{"url", url}, {"out", o.out}});
  std::fflush(stdout);
  server::server_log().add("serve: " + url);
  const std::jthread watch([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (signals.requested() != 0 || has_ended(o.parent_pid) || !service.device_fault().empty())
        return service.stop();
    }
  });
  service.run();
  server::server_log().wait(last_lines);
  const bool runs_end = service.folders().finish(std::chrono::seconds(1));
  const std::string fault = service.device_fault();
  if (runs_end && service.catalogue().finish(std::chrono::seconds(1))) {
    require(fault.empty(),
            "serve: no job can run in this process any more: start it again, it goes on with the "
            "jobs that wait  ",
            fault);
    return 0;
  }
  server::server_log().add(str("serve: a folder of ", runs_end ? "models" : "--runs",
                               " still does not answer: it is not waited for"));
  server::server_log().wait(last_lines);
  std::fflush(nullptr);
  std::_Exit(fault.empty() ? 0 : 1);  // the thread that waits for it cannot be ended
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_flags(app, fields_of(*o));
  add_flags(app, fields_of(o->common));
  return [o] {
    resolve(*o);
    check_choices(*o, [](std::string_view field) { return "serve: unknown " + flag_of(field); });
    return run(*o);
  };
}

}  // namespace

const Command& serve() {
  static const Command c{
      "serve",
      "answer the HTTP requests of other programs and of its own web page",
      "ebb serve --models ~/models --out pictures",
      bind,
      {"models", "host", "port", "out", "runs", "key", "cors_origin", "device"},
      {"runs", "allowed_host", "cors_origin", "cors_allow_origins", "trusted_proxy"}};
  return c;
}

}  // namespace ebb::cli
