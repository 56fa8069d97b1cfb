// ebb samplers: what samplers, schedules and dialects there are, and pictures of them at work.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/command.h"
#include "apps/cli/picture_output.h"
#include "apps/cli/terminal.h"
#include "base/choices.h"
#include "base/error.h"
#include "base/names.h"
#include "diffusion/guidance/guidance.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/defaults.h"
#include "io/file.h"
#include "pipeline/sampler_errors.h"
#include "pipeline/sampler_facts.h"

namespace ebb::cli {
namespace {

const std::vector<std::string>& commands() {
  static const std::vector<std::string> all = {"list", "plot", "table", "gallery"};
  return all;
}

struct Options {
  std::string what = "list", out;
  PlotRequest plot;
  bool json = false, overwrite = false;
  void fields(auto&& f) {
    f("sampler", plot.sampler, "plot: the sampler");
    f("options", plot.options, "plot: of the sampler, as name=value,name=value");
    f("schedule", plot.schedule,
      "plot, gallery: of the noise levels; auto: from the sampler's name, or the dialect, "
      "or karras (flow on flow models)");
    f("schedule_options", plot.schedule_options,
      "plot, gallery: of the schedule that is named; custom's levels: sigmas=14.6,5,1,0");
    f("steps", plot.steps, "plot, gallery: number of steps");
    f("dialect", plot.dialect, "plot, gallery: whose conventions are followed");
    f("flow", plot.flow,
      "plot, gallery: on a flow model, x = (1 - sigma) data + sigma noise; the gallery has the "
      "samplers that support it");
    f("points", plot.points, "plot, gallery: number of points");
    f("seed", plot.seed, "plot, gallery: of the noise, 0 to 2^64 - 1; -1: one is drawn and told");
    f("out", out, "plot: an .svg file; gallery: a folder");
    f("overwrite", overwrite, "plot, gallery: replace files of those names, whatever they are");
    f("json", json, "list, a name: one JSON object on standard output");
  }
  void choices(auto&& f) { f("what", what, commands()); }
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

std::string supported_models(const Sampler& s) {
  std::string text = s.flow ? "eps v x0 edm flow" : "eps v x0 edm";
  return s.needs_uncond ? text + ", guided" : text;
}

// ---- list ----------------------------------------------------------------------------------

constexpr const char* row = "%-26s %-10s %5s %6s %5s  %-25s  %s\n";

void print_samplers() {
  std::printf(row, "sampler", "kind", "order", "evals", "draws", "models", "what it is");
  for (const Sampler* s : all_samplers())
    std::printf(row, s->name.c_str(), std::string(name_of(s->kind)).c_str(),
                s->order == 0 ? "-" : short_number(s->order).c_str(), evaluations_text(*s).c_str(),
                short_number(cost_of(*s).draws).c_str(), supported_models(*s).c_str(),
                s->help.c_str());
  std::printf(
      "\norder: of convergence without noise; evals, draws: of the denoiser and of random numbers, "
      "a step;\nmodels: what networks may predict; guided: only with classifier-free guidance\n");
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
  std::printf("\n%-26s %s\n", "dialect", "whose conventions");
  for (const Dialect& d : all_dialects()) std::printf("%-26s %s\n", d.name.c_str(), d.help.c_str());
  std::printf("\nebb samplers NAME lists options and other names of one.\n");
}

using Json = nlohmann::ordered_json;

Json json_of(const std::vector<Option>& options) {
  Json j = Json::object();
  for (const Option& o : options) j[o.name] = o.value;
  return j;
}

// `defaults`: of the requested name.
Json json_of(const Sampler& s, const OptionTexts& defaults = {}) {
  const SamplerCost cost = cost_of(s);
  Json j = {{"name", s.name},         {"kind", name_of(s.kind)},
            {"order", s.order},       {"help", s.help},
            {"flow", s.flow},         {"needs_uncond", s.needs_uncond},
            {"adaptive", s.adaptive}, {"evaluations", cost.evaluations},
            {"draws", cost.draws}};
  for (const SamplerAlias& a : s.aliases) j["aliases"].push_back(a.name);
  j["options"] = json_of(with_defaults(s.options(), defaults));
  return j;
}

// The schedule that a sampler's name brings; "": none.
std::string schedule_of_name(const std::string& name) {
  return usual_schedule("ebb", name, Space::ve);
}

// Of a schedule, source of noise or guidance rule: the options that a name of it stands for; none:
// it is no name of it.
template <class Thing>
std::optional<OptionTexts> options_of_name(const Thing& t, const std::string& name) {
  if (same_name(t.name, name)) return OptionTexts();
  if constexpr (requires { t.aliases; })
    for (const auto& a : t.aliases) {
      if constexpr (requires { a.options; }) {
        if (same_name(a.name, name)) return a.options;
      } else if (same_name(a, name)) {
        return OptionTexts();
      }
    }
  return {};
}

// Those of `all` that have the name; "": all.
template <class Thing>
void add_things(Json& j, const char* kind, const std::vector<Thing>& all, const std::string& name) {
  for (const auto* t : all) {
    const auto options = name.empty() ? OptionTexts() : options_of_name(*t, name);
    if (!options) continue;
    const std::vector<Option> values = with_defaults(t->options(), *options);
    j[kind].push_back({{"name", t->name}, {"help", t->help}, {"options", json_of(values)}});
  }
}

// "": what the network was published with.
void add_dialects(Json& j, const std::string& name) {
  for (const Dialect& d : all_dialects())
    if (name.empty() || same_name(d.name, name))
      j["dialects"].push_back({{"name", d.name},
                               {"help", d.help},
                               {"noise", d.noise},
                               {"schedule", d.defaults.schedule}});
}

template <class Thing>
void add_names(std::vector<std::string>& out, const std::vector<Thing>& all) {
  for (const auto* t : all) out.push_back(t->name);
}

// By a name of a sampler that is not its own. Throws Error that suggests the nearest of all names.
FoundSampler find_other_sampler(const std::string& name) {
  std::vector<std::string> others = commands();
  add_names(others, all_schedules());
  add_names(others, all_noise_sources());
  add_names(others, all_guidance_rules());
  for (const Dialect& d : all_dialects()) others.push_back(d.name);
  try {
    return find_sampler(name);
  } catch (const Error&) {
    const std::string near = nearest_name(name, others);
    if (near.empty()) throw;
    fail("samplers: unknown name '", name, "' (did you mean '", near, "'?)");
  }
}

Json json_of_name(const std::string& name) {
  Json j;
  for (const Sampler* s : all_samplers())
    if (name.empty() || same_name(s->name, name)) j["samplers"].push_back(json_of(*s));
  add_things(j, "schedules", all_schedules(), name);
  add_things(j, "noise", all_noise_sources(), name);
  add_things(j, "guidance_rules", all_guidance_rules(), name);
  add_dialects(j, name);
  if (j.empty()) {
    const FoundSampler other = find_other_sampler(name);
    j["samplers"].push_back(json_of(*other.sampler, other.options));
    if (const std::string s = schedule_of_name(name); !s.empty()) j["samplers"][0]["schedule"] = s;
  }
  return j;
}

void print_json(const std::string& name) { std::puts(json_of_name(name).dump().c_str()); }

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
    const auto options = options_of_name(*t, name);
    if (!options) continue;
    std::printf("%s: %s (%s)\n", t->name.c_str(), t->help.c_str(), what);
    if constexpr (requires { t->aliases; }) print_aliases(t->aliases);
    print_options(with_defaults(t->options(), *options));
    return true;
  }
  return false;
}

// `defaults`: of the name that was asked for.
void print_sampler(const Sampler& s, const OptionTexts& defaults = {}) {
  std::printf("%s: %s (a sampler)\n%s, order %s, %s evaluations a step, for %s\n", s.name.c_str(),
              s.help.c_str(), std::string(name_of(s.kind)).c_str(),
              s.order == 0 ? "-" : short_number(s.order).c_str(), evaluations_text(s).c_str(),
              supported_models(s).c_str());
  print_aliases(s.aliases);
  print_options(with_defaults(s.options(), defaults));
}

bool print_dialect(const std::string& name) {
  for (const Dialect& d : all_dialects()) {
    if (!same_name(d.name, name)) continue;
    const std::string schedule =
        d.defaults.schedule.empty() ? "what the model was published with" : d.defaults.schedule;
    std::printf("%s: %s (a dialect, --dialect)\ndefault noise %s, default schedule %s\n",
                d.name.c_str(), d.help.c_str(), d.noise.c_str(), schedule.c_str());
    return true;
  }
  return false;
}

// All that have the name: lcm is a sampler and a schedule.
void print_one(const std::string& name) {
  int found = print_thing(all_schedules(), name, "a schedule") +
              print_thing(all_noise_sources(), name, "a source of noise") +
              print_thing(all_guidance_rules(), name, "a guidance rule") + print_dialect(name);
  for (const Sampler* s : all_samplers())
    if (same_name(s->name, name) && ++found) print_sampler(*s);
  if (found > 0) return;
  const FoundSampler other = find_other_sampler(name);
  print_sampler(*other.sampler, other.options);
  if (const std::string s = schedule_of_name(name); !s.empty())
    std::printf("the name implies the schedule %s, unless --schedule is given\n", s.c_str());
}

// ---- pictures ------------------------------------------------------------------------------

constexpr std::string_view out_flag = "samplers: --out";

bool is_plot(const std::string& file) {
  constexpr int64_t most = 1 << 24;
  return std::filesystem::file_size(file) < most &&
         is_sampler_plot(io::read_whole_file(file, out_flag, most));
}

// Plots replace plots.
void check_plot(const std::string& file, bool overwrite) {
  check_replaced(file, out_flag, overwrite, "is no plot of a sampler by ebb", is_plot);
}

void write_plot(const Options& o) {
  require(o.out.ends_with(".svg"), "samplers: plot needs --out FILE.svg (got '", o.out, "')");
  check_plot(o.out, o.overwrite);
  const std::string svg = sampler_plot(o.plot);
  write_text(o.out, svg, out_flag, o.overwrite, is_plot);
  std::printf("%s\n", o.out.c_str());
}

void write_gallery(const Options& o) {
  require(!o.out.empty(), "samplers: gallery needs --out FOLDER");
  io::check_can_fill(o.out, out_flag);
  const auto file_of = [&](const Sampler* s) {
    return (std::filesystem::path(o.out) / (s->name + ".svg")).string();
  };
  for (const Sampler* s : all_samplers())
    if (std::filesystem::exists(file_of(s))) check_plot(file_of(s), o.overwrite);
  for (const Sampler* s : all_samplers()) {
    if (o.plot.flow && !s->flow) continue;
    PlotRequest r = o.plot;
    r.sampler = s->name;
    r.steps_given = r.steps_given && !s->adaptive;  // they are for the others
    const std::string path = file_of(s);
    const std::string svg = sampler_plot(r);
    io::make_folder(o.out, out_flag);
    write_text(path, svg, out_flag, o.overwrite, is_plot);
    std::printf("%s\n", path.c_str());
  }
}

void print_table() {
  ProgressLine line("measuring");
  const std::string text = sampler_error_tables([&](double share) { line.show(share); });
  line.finish();
  std::fputs(text.c_str(), stdout);
}

// What WHAT may be, and the fields whose flags it takes.
struct Mode {
  std::string_view what;
  std::vector<std::string_view> fields;
};

const std::vector<Mode>& modes() {
  static const std::vector<Mode> all = {
      {"list", {"json"}},
      {"plot",
       {"sampler", "options", "schedule", "schedule_options", "steps", "dialect", "flow", "points",
        "seed", "out", "overwrite"}},
      {"table", {}},
      {"gallery",
       {"schedule", "schedule_options", "steps", "dialect", "flow", "points", "seed", "out",
        "overwrite"}},
      {"a name", {"json"}}};
  return all;
}

bool takes(const Mode& mode, const std::string& field) {
  return std::ranges::find(mode.fields, field) != mode.fields.end();
}

// Throws Error for flags that belong to other modes.
void check_mode(const std::string& what, const std::vector<std::string>& given) {
  const auto named = std::ranges::find(modes(), what, &Mode::what);
  const Mode& mode = named == modes().end() ? modes().back() : *named;
  for (const std::string& field : given) {
    if (takes(mode, field)) continue;
    std::string others;
    for (const Mode& m : modes())
      if (takes(m, field)) others += str(others.empty() ? "" : " and ", m.what);
    fail("samplers: ", flag_of(field), " is for ", others, " (samplers ", what, ")");
  }
}

int run(const Options& o) {
  if (o.what == "plot")
    write_plot(o);
  else if (o.what == "table")
    print_table();
  else if (o.what == "gallery")
    write_gallery(o);
  else if (o.json)
    print_json(o.what == "list" ? "" : o.what);
  else if (o.what == "list")
    print_list();
  else
    print_one(o.what);
  return 0;
}

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "WHAT", o->what,
                 "list; a name: its options; plot: an SVG of a sampler at work; table: errors "
                 "against evaluations, as Markdown; gallery: a plot of every sampler",
                 Positional::optional);
  add_flags(app, fields_of(*o));
  return [o, &app] {
    resolve(*o);
    resolve_auto({&o->plot.schedule});
    check_mode(o->what, given_fields(app));
    o->plot.steps_given = is_given(app, "steps");
    say_drawn(o->plot.seed);
    return run(*o);
  };
}

}  // namespace

const Command& samplers() {
  static const Command c{"samplers", "list samplers and schedules, and draw them at work",
                         "ebb samplers plot --sampler heun --schedule karras --out heun.svg", bind};
  return c;
}

}  // namespace ebb::cli
