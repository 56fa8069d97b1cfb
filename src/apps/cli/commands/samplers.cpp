// ebb samplers: what samplers, schedules and dialects there are, and pictures of them at work.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "base/error.h"
#include "diffusion/guidance/guidance.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/noise/noise.h"
#include "pipeline/sampler_errors.h"
#include "pipeline/sampler_facts.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string what = "list", out;
  PlotRequest plot;
  bool json = false;
  void fields(auto&& f) {
    f("sampler", plot.sampler, "plot: the sampler");
    f("schedule", plot.schedule, "plot: of the noise levels");
    f("steps", plot.steps, "plot: number of steps");
    f("options", plot.options, "plot: of the sampler, as name=value,name=value");
    f("dialect", plot.dialect, "plot: whose habits are followed");
    f("flow", plot.flow, "plot: on a flow model, x = (1 - sigma) data + sigma noise");
    f("points", plot.points, "plot: number of points");
    f("seed", plot.seed, "plot: of the noise");
    f("out", out, "plot: an .svg file; gallery: a folder");
    f("json", json, "list: one JSON object on standard output");
  }
};

// 1, 1.5, 0.08: without zeros behind.
std::string short_number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", v);
  return text;
}

std::string evaluations_text(const Sampler& s) {
  return s.adaptive ? "own" : short_number(cost_of(s).evaluations);
}

std::string serves(const Sampler& s) {
  std::string text = s.flow ? "eps v x0 edm flow" : "eps v x0 edm";
  return s.needs_uncond ? text + ", guided" : text;
}

// ---- list ----------------------------------------------------------------------------------

constexpr const char* row = "%-26s %-10s %5s %6s %5s  %-25s  %s\n";

void print_samplers() {
  std::printf(row, "sampler", "kind", "order", "evals", "draws", "serves", "what it is");
  for (const Sampler* s : all_samplers())
    std::printf(row, s->name.c_str(), std::string(name_of(s->kind)).c_str(),
                s->order == 0 ? "-" : short_number(s->order).c_str(), evaluations_text(*s).c_str(),
                short_number(cost_of(*s).draws).c_str(), serves(*s).c_str(), s->help.c_str());
  std::printf(
      "\norder: of convergence without noise; evals, draws: of the denoiser and of random numbers, "
      "a step;\nserves: what networks may predict; guided: only with classifier-free guidance\n");
}

void print_names(const char* kind, const char* what, const auto& all) {
  std::printf("\n%-26s %s\n", kind, what);
  for (const auto* t : all) std::printf("%-26s %s\n", t->name.c_str(), t->help.c_str());
}

void print_list() {
  print_samplers();
  print_names("schedule", "what it is", all_schedules());
  print_names("noise", "where numbers come from", all_noise_sources());
  print_names("guidance rule", "what it does", all_guidance_rules());
  std::printf("\n%-26s %s\n", "dialect", "whose habits");
  for (const Dialect& d : all_dialects()) std::printf("%-26s %s\n", d.name.c_str(), d.help.c_str());
  std::printf("\nebb samplers NAME lists options and other names of one.\n");
}

void print_json() {
  nlohmann::ordered_json j;
  for (const Sampler* s : all_samplers()) {
    nlohmann::ordered_json one = {{"name", s->name},        {"kind", name_of(s->kind)},
                                  {"order", s->order},      {"help", s->help},
                                  {"flow", s->flow},        {"needs_uncond", s->needs_uncond},
                                  {"adaptive", s->adaptive}};
    const SamplerCost cost = cost_of(*s);
    one["evaluations"] = cost.evaluations;
    one["draws"] = cost.draws;
    for (const SamplerAlias& a : s->aliases) one["aliases"].push_back(a.name);
    for (const Option& o : s->options()) one["options"][o.name] = o.value;
    j["samplers"].push_back(std::move(one));
  }
  for (const Schedule* s : all_schedules())
    j["schedules"].push_back({{"name", s->name}, {"help", s->help}});
  for (const NoiseSource* s : all_noise_sources())
    j["noise"].push_back({{"name", s->name}, {"help", s->help}});
  for (const GuidanceRule* r : all_guidance_rules())
    j["guidance_rules"].push_back({{"name", r->name}, {"help", r->help}});
  for (const Dialect& d : all_dialects()) j["dialects"].push_back(d.name);
  std::puts(j.dump().c_str());
}

// ---- one -----------------------------------------------------------------------------------

void print_options(const std::vector<Option>& options) {
  if (options.empty()) std::printf("no options\n");
  for (const Option& o : options)
    std::printf("  %-18s %-10s %s\n", o.name.c_str(), o.value.c_str(), o.help.c_str());
}

void print_aliases(const std::vector<SamplerAlias>& aliases) {
  for (const SamplerAlias& a : aliases) {
    std::printf("also called %s", a.name.c_str());
    for (const auto& [name, value] : a.options) std::printf(" %s=%s", name.c_str(), value.c_str());
    std::printf("\n");
  }
}

void print_aliases(const std::vector<std::string>& aliases) {
  for (const std::string& a : aliases) std::printf("also called %s\n", a.c_str());
}

// A schedule, source of noise or guidance rule of this name.
template <class Thing>
bool print_thing(const std::vector<Thing>& all, const std::string& name, const char* what) {
  for (const auto* t : all) {
    if (t->name != name) continue;
    std::printf("%s: %s (%s)\n", t->name.c_str(), t->help.c_str(), what);
    if constexpr (requires { t->aliases; }) print_aliases(t->aliases);
    print_options(t->options());
    return true;
  }
  return false;
}

// `defaults`: of the name that was asked for.
void print_sampler(const Sampler& s, const OptionTexts& defaults = {}) {
  std::printf("%s: %s (a sampler)\n%s, order %s, %s evaluations a step, serves %s\n",
              s.name.c_str(), s.help.c_str(), std::string(name_of(s.kind)).c_str(),
              s.order == 0 ? "-" : short_number(s.order).c_str(), evaluations_text(s).c_str(),
              serves(s).c_str());
  print_aliases(s.aliases);
  print_options(with_defaults(s.options(), defaults));
}

// All that have the name: lcm is a sampler and a schedule.
void print_one(const std::string& name) {
  int found = print_thing(all_schedules(), name, "a schedule") +
              print_thing(all_noise_sources(), name, "a source of noise") +
              print_thing(all_guidance_rules(), name, "a guidance rule");
  for (const Sampler* s : all_samplers())
    if (s->name == name && ++found) print_sampler(*s);
  if (found > 0) return;
  const FoundSampler other = find_sampler(name);
  print_sampler(*other.sampler, other.options);
}

// ---- pictures ------------------------------------------------------------------------------

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  require(file.good(), "samplers: cannot write ", path);
}

void write_plot(const Options& o) {
  require(o.out.ends_with(".svg"), "samplers: plot needs --out FILE.svg (got '", o.out, "')");
  write_file(o.out, sampler_plot(o.plot));
  std::printf("%s\n", o.out.c_str());
}

void write_gallery(const Options& o) {
  require(!o.out.empty(), "samplers: gallery needs --out FOLDER");
  std::filesystem::create_directories(o.out);
  for (const Sampler* s : all_samplers()) {
    PlotRequest r = o.plot;
    r.sampler = s->name;
    const std::string path = (std::filesystem::path(o.out) / (s->name + ".svg")).string();
    write_file(path, sampler_plot(r));
    std::printf("%s\n", path.c_str());
  }
}

int run(const Options& o) {
  if (o.what == "list")
    o.json ? print_json() : print_list();
  else if (o.what == "plot")
    write_plot(o);
  else if (o.what == "table")
    std::fputs(sampler_error_tables().c_str(), stdout);
  else if (o.what == "gallery")
    write_gallery(o);
  else
    print_one(o.what);
  return 0;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  app.add_option("WHAT", o->what,
                 "list; a name: its options; plot: an SVG of a sampler at work; table: errors "
                 "against evaluations, as Markdown; gallery: a plot of every sampler");
  add_flags(app, fields_of(*o));
  return [o] { return run(*o); };
}

}  // namespace

const Command& samplers() {
  static const Command c{"samplers", "list samplers and schedules, and draw them at work",
                         "ebb samplers plot --sampler heun --schedule karras --out heun.svg", bind};
  return c;
}

}  // namespace ebb::cli
