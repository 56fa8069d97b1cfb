// ebb bench: how fast the kernels are, against what the machine can do.
#include "runtime/op_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/ranks.h"
#include "apps/cli/terminal.h"
#include "base/byte_size.h"
#include "base/error.h"
#include "base/names.h"
#include "pipeline/load_bench.h"
#include "pipeline/lora_bench.h"
#include "pipeline/model_bench.h"
#include "pipeline/picture_bench.h"
#include "pipeline/pipeline_bench.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string filter, recompute = "off", dtype = "auto", file, size, gpus, shard = "auto",
                      reduce_dtype = "f32";
  int64_t batch = 0;
  bool profile = false;
  CommonOptions common;
  void fields(auto&& f) {
    f("recompute", recompute,
      "training steps: activation checkpointing to save memory: off, pointwise, all, auto or a "
      "size like 8GB");
    f("dtype", dtype,
      "evaluations of networks: f32 or bf16, also where the device is slow in it; auto: what it is "
      "fast in");
    f("gpus", gpus,
      "training steps: on so many GPUs of this machine, or on all, each with the case's batch");
    f("batch", batch, "training steps: images a GPU; 0: the case's");
    f("shard", shard,
      "training steps on several GPUs: auto, none, optimizer or weights, as `ebb train`");
    f("reduce_dtype", reduce_dtype, "of the gradients that these send each other: f32 or bf16");
    f("profile", profile, "of plans: also the time of each kernel, the longest uses first");
    f("file", file, "bench load: the safetensors file whose weights are loaded");
    f("size", size, "bench load: of a temporary file of random weights, such as 5GB");
  }
};

constexpr size_t profile_lines = 40;

// What choosing kernels has cost since `before`.
nlohmann::ordered_json tuning_json(const TuningCosts& now, const TuningCosts& before) {
  return {{"contests", now.contests - before.contests},
          {"candidates", now.candidates - before.candidates},
          {"prepare_s", now.prepare_s - before.prepare_s},
          {"compile_s", now.compile_s - before.compile_s},
          {"measure_s", now.measure_s - before.measure_s}};
}

void print_json(const BenchResult& r, const nlohmann::ordered_json& tuning) {
  nlohmann::ordered_json j = {{"op", r.op},
                              {"example", r.example},
                              {"dtype", r.dtype},
                              {"device", r.device},
                              {"kernel", r.kernel},
                              {"us", r.us},
                              {"spread", r.spread},
                              {"gb_per_s", r.gb_per_s},
                              {"tflop_per_s", r.tflop_per_s},
                              {"peak_percent", r.peak_percent},
                              {"memory_gb", r.memory_gb}};
  if (r.host_us > 0) j["host_us"] = r.host_us;
  if (r.first_step_s > 0) j["first_step_s"] = r.first_step_s;
  if (!r.check.empty()) j["check"] = r.check;
  if (!tuning.is_null()) j["tuning"] = tuning;
  for (const ProfileLine& l : r.profile)
    j["profile"].push_back({{"kernel", l.kernel},
                            {"signature", l.signature},
                            {"steps", l.steps},
                            {"us", l.us},
                            {"flops", l.cost.flops},
                            {"bytes", l.cost.bytes}});
  if (r.ranks > 1) j["ranks"] = r.ranks;
  cli::print_json(j);
  std::fflush(stdout);
}

// Loading is no kernel: from the system's cache into the device's memory, with all its checks.
int run_load(const Options& o) {
  require(o.file.empty() != o.size.empty(), "bench: load needs either --file or --size (got ",
          o.file.empty() ? "neither" : "both", ")");
  const Context context = open_device(o.common);
  const std::filesystem::path random =
      std::filesystem::temp_directory_path() / str("ebb-load-", ::getpid(), ".safetensors");
  const std::unique_ptr<const std::filesystem::path, void (*)(const std::filesystem::path*)> gone(
      &random, [](const std::filesystem::path* p) {
        std::error_code ignored;
        std::filesystem::remove(*p, ignored);
      });
  if (o.file.empty()) {
    const auto bytes = parse_size(o.size);
    require(bytes.has_value(), "bench: --size must be ", size_forms, " ('", o.size, "')");
    write_random_weights(random.string(), *bytes);
  }
  const LoadResult r = bench_load(context, o.file.empty() ? random.string() : o.file);
  const double seconds = r.check_s + r.fill_s, gb = static_cast<double>(r.bytes) * 1e-9;
  const double private_gb = static_cast<double>(r.private_bytes) * 1e-9;
  if (o.common.json)
    cli::print_json({{"op", "load"},
                     {"device", context.device->backend()},
                     {"gb", gb},
                     {"check_s", r.check_s},
                     {"fill_s", r.fill_s},
                     {"gb_per_s", gb / seconds},
                     {"private_gb", private_gb}});
  else
    std::printf(
        "load %.2f GB: %.3f s (checks %.3f, into memory %.3f), %.2f GB/s, private memory %.3f GB\n",
        gb, seconds, r.check_s, r.fill_s, gb / seconds, private_gb);
  return 0;
}

// Throws Error if nothing matches the filter, or no training step where steps are requested.
void check_filter(const Options& o, const Recompute& recompute, const Device& device) {
  const auto matches = [&](const std::string& name) {
    return name.find(o.filter) != std::string::npos;
  };
  const auto steps = model_bench_names(device), ops = op_bench_names(device);
  auto plans = pipeline_bench_names();
  for (std::string& name : lora_bench_names()) plans.push_back(std::move(name));
  std::ranges::copy(picture_bench_names(device), std::back_inserter(plans));
  const bool any = std::ranges::any_of(steps, matches) || std::ranges::any_of(plans, matches);
  const bool evaluation = std::ranges::any_of(steps, [&](const std::string& name) {
    return !name.starts_with("train_step/") && matches(name);
  });
  require(evaluation || o.dtype == "auto", "bench: --dtype is for evaluations of networks, and '",
          o.filter, "' matches none");
  const bool step = std::ranges::any_of(steps, [&](const std::string& name) {
    return name.starts_with("train_step/") && matches(name);
  });
  if (!any && std::ranges::none_of(ops, matches)) {
    std::vector<std::string> known;
    for (const std::string& name : ops) known.push_back(name.substr(0, name.find('/')));
    known.insert(known.end(), steps.begin(), steps.end());
    known.insert(known.end(), plans.begin(), plans.end());
    fail_unknown("bench: no bench example matches", o.filter, known);
  }
  const auto for_steps = [&](const char* flag, bool given) {
    require(step || !given, "bench: ", flag, " is for training steps, and '", o.filter,
            "' matches none");
  };
  for_steps("--recompute", recompute.kind != Recompute::Kind::off);
  for_steps("--batch", o.batch != 0);
  for_steps("--shard", o.shard != "auto");
  for_steps("--reduce-dtype", o.reduce_dtype != "f32");
  require(o.batch >= 0, "bench: --batch must be at least 1 (", o.batch, ")");
}

train::Split split_of(const Options& o) {
  require(o.reduce_dtype == "f32" || o.reduce_dtype == "bf16",
          "bench: --reduce-dtype must be f32 or bf16 ('", o.reduce_dtype, "')");
  return {.shard = train::parse_shard(o.shard), .sent = parse_dtype(o.reduce_dtype)};
}

std::optional<DType> dtype_of(const Options& o) {
  if (o.dtype == "auto") return {};
  require(o.dtype == "f32" || o.dtype == "bf16", "bench: unknown dtype '", o.dtype,
          "' (f32, bf16, auto)");
  return parse_dtype(o.dtype);
}

int run_rank(const Options& o, ranks::TcpGroup* group) {
  const Recompute recompute = parse_recompute(o.recompute);
  CommonOptions common = o.common;
  common.threads = own_threads(common.threads, group);
  const Context context = open_device(common, group);
  check_filter(o, recompute, *context.device);
  Ceilings c = measure_ceilings(context);
  if (!is_quiet())
    std::fprintf(stderr, "%s\ncopy %.1f GB/s, matmul f32 %.3f TFLOP/s, bf16 %.3f TFLOP/s\n",
                 context.device->description().c_str(), c.bytes_per_second * 1e-9,
                 c.flops_f32 * 1e-12, c.flops_bf16 * 1e-12);
  if (!o.common.json && !is_quiet())
    std::printf("%-16s %-22s %-5s %-22s %10s %7s %9s %9s %6s\n", "op", "example", "dtype", "kernel",
                "us", "spread", "GB/s", "TFLOP/s", "%peak");
  TuningCosts told = context.tuner ? context.tuner->costs() : TuningCosts{};
  const auto report = [&](const BenchResult& r) {
    if (is_quiet()) return;
    require(std::ferror(stdout) == 0, "bench: nobody reads the results any more");
    nlohmann::ordered_json tuning;
    if (context.tuner && context.tuner->costs().contests > told.contests) {
      tuning = tuning_json(context.tuner->costs(), told);
      told = context.tuner->costs();
      std::fprintf(stderr, "%s/%s: choosing kernels: %s\n", r.op.c_str(), r.example.c_str(),
                   tuning.dump().c_str());
    }
    if (o.common.json) return print_json(r, tuning);
    std::printf("%-16s %-22s %-5s %-22s %10.1f %6.0f%% %9.2f %9.3f %5.0f%%\n", r.op.c_str(),
                r.example.c_str(), r.dtype.c_str(), r.kernel.c_str(), r.us, 100 * r.spread,
                r.gb_per_s, r.tflop_per_s, r.peak_percent);
    if (!r.profile.empty()) std::fputs(profile_text(r.profile, profile_lines).c_str(), stdout);
    std::fflush(stdout);
  };
  bench_ops(context, o.filter, c, report);
  const ModelBench networks{.filter = o.filter,
                            .recompute = recompute,
                            .profile = o.profile,
                            .dtype = dtype_of(o),
                            .batch = o.batch,
                            .split = split_of(o)};
  bench_models(context, networks, c, report);
  bench_denoise(context, networks, c, report);
  bench_components(context, networks, c, report);
  bench_pipelines(context, o.filter, report);
  if (!o.filter.empty()) bench_loras(context, o.filter, report);
  bench_pictures(context, o.filter, report);
  return 0;
}

int run(const Options& o) {
  if (o.filter == "load") return run_load(o);
  require(o.file.empty() && o.size.empty(), "bench: --file and --size are for bench load");
  if (const auto code = start_copies(o.gpus, o.common.device)) return *code;
  const auto group = join_group();
  return run_ranked(group.get(), [&] { return run_rank(o, group.get()); });
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(
      app, "FILTER", o->filter,
      "run the cases whose op/example contains this; whole training steps are "
      "train_step/..., evaluations of a network denoise/..., of a text encoder "
      "encode_text/..., of an autoencoder encode/... and decode/..., the plan of another "
      "batch second_plan/..., another strength of a LoRA lora/..., whole pictures from text "
      "generate/...; load: time loading a model "
      "file",
      Positional::optional);
  add_flags(app, fields_of(*o));
  add_flags(app, fields_of(o->common));
  describe_flag(app, "--json", "print JSON on standard output, an object a line for each case");
  return [o] {
    o->filter = small_letters(o->filter);  // as all names are
    return run(*o);
  };
}

}  // namespace

const Command& bench() {
  static const Command c{"bench", "time the kernels, verified, in per cent of the machine's limits",
                         "ebb bench conv2d --threads 2", bind};
  return c;
}

}  // namespace ebb::cli
