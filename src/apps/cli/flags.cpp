#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "apps/cli/command.h"
#include "base/error.h"
#include "base/names.h"
#include "base/seed.h"
#include "base/text_list.h"
#include "diffusion/config.h"

namespace ebb::cli {
namespace {

std::string_view type_name(const Field& f) {
  constexpr std::string_view names[] = {"INT",     "NUMBER",     "",    "TEXT",
                                        "INT,...", "NUMBER,...", "TEXT"};
  if (auto* const* text = std::get_if<TextValue*>(&f.ref))
    if (dynamic_cast<const Seed*>(*text)) return "INT";
  return names[f.ref.index()];
}

// Sets the field; its errors are those of the command line.
void take_value(const Field& f, const std::string& text) {
  try {
    set_field(f, text);
  } catch (const Error& e) {
    throw CLI::ValidationError(is_list(f) ? str(flag_of(f.name), ": ", e.what()) : e.what());
  }
}

}  // namespace

bool is_list(const Field& f) {
  auto* const* text = std::get_if<TextValue*>(&f.ref);
  return text && dynamic_cast<const TextList*>(*text);
}

void add_flags(CLI::App& app, std::vector<Field> fields, const std::string& group) {
  app.option_defaults()->group(group.empty() ? "Options" : group);
  for (const Field& f : fields) {
    const std::string name = flag_of(f.name);
    if (auto* const* b = std::get_if<bool*>(&f.ref)) {
      // --flag, --flag=false, --no-flag
      app.add_flag(str(name, ",!", negated_flag_of(f.name)), **b, f.help)
          ->default_str(**b ? "on" : "off");
      continue;
    }
    CLI::Option* option = app.add_option_function<std::string>(
        name, [f](const std::string& text) { take_value(f, text); }, f.help);
    option->type_name(std::string(type_name(f)))->default_str(field_text(f));
    if (is_list(f)) option->join(';');
  }
}

bool is_offered(std::string_view field, Overrides which) {
  if (which == Overrides::sampling) return !only_training(field);
  return field != "label_dropout" && field != "learn_sigma" && field != "vb_weight" &&
         field != "sigma_min" && field != "sigma_max";
}

void add_overrides(CLI::App& app, FieldTexts& texts, Overrides which) {
  DiffusionConfig defaults;
  const auto note = [&texts](const std::string& name, const std::string& text) {
    DiffusionConfig scratch;
    take_value(find_field(fields_of(scratch), name, "diffusion"), text);
    texts.emplace_back(name, text);
  };
  for (const Field& f : fields_of(defaults))
    if (is_offered(f.name, which))
      app.add_option_function<std::string>(
             flag_of(f.name), [note, name = f.name](const std::string& t) { note(name, t); },
             f.help + " (instead of the checkpoint's)")
          ->type_name(f.ref.index() == 2 ? "on|off" : std::string(type_name(f)));
}

std::vector<std::string> given_fields(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* o : app.get_options()) {
    if (o->count() == 0 || o->get_lnames().empty()) continue;
    std::string name = o->get_lnames()[0];
    std::ranges::replace(name, '-', '_');
    out.push_back(std::move(name));
  }
  return out;
}

bool is_given(const CLI::App& app, std::string_view field) {
  const std::vector<std::string> given = given_fields(app);
  return std::ranges::find(given, field) != given.end();
}

void check_texts(const CLI::App& app, std::string_view command) {
  if (is_given(app, "like") || is_given(app, "config")) {
    for (const char* source : {"--like", "--config"})
      if (const CLI::Option* o = app.get_option_no_throw(source); o && o->count() > 0)
        require(!o->results().at(0).empty(), command, ": ", source, " says nothing (got '')");
    return;
  }
  for (const CLI::Option* o : app.get_options()) {
    if (o->count() == 0 || o->get_lnames().empty() || o->get_expected_max() == 0) continue;
    const std::string flag = o->get_lnames()[0];
    require(flag == "prompt" || flag == "negative" ||
                std::ranges::any_of(o->results(), [](const std::string& t) { return !t.empty(); }),
            command, ": --", flag, " says nothing (got '')");
  }
}

void resolve_auto(std::initializer_list<std::string*> texts) {
  for (std::string* text : texts)
    if (small_letters(*text) == "auto") *text = "auto";
}

std::string in_run_folder(const std::string& checkpoint, std::string_view file) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  return fs::is_directory(checkpoint, ignored) ? (fs::path(checkpoint) / file).string() : "";
}

std::string flag_of(std::string_view field) {
  std::string out = str("--", field);
  std::ranges::replace(out, '_', '-');
  return out;
}

std::string negated_flag_of(std::string_view field) {
  constexpr std::string_view no = "no_";
  return field.starts_with(no) ? flag_of(field.substr(no.size())) : flag_of(str(no, field));
}

void add_positional(CLI::App& app, const std::string& name, std::string& value,
                    const std::string& help, Positional kind) {
  app.add_option(name, value, help)->required(kind == Positional::required);
}

void describe_flag(CLI::App& app, const std::string& flag, const std::string& help) {
  app.get_option(flag)->description(help);
}

void describe_choices(CLI::App& app, std::string_view field,
                      const std::vector<std::string>& names) {
  CLI::Option* flag = app.get_option(flag_of(field));
  std::string help = flag->get_description();
  if (std::ranges::all_of(names, [&](const std::string& n) { return help.find(n) != help.npos; }))
    return;
  for (size_t i = 0; i < names.size(); ++i)
    help += str(i == 0 ? ": " : i + 1 < names.size() ? ", " : " or ", names[i]);
  flag->description(help);
}

void add_help_paragraph(CLI::App& app, const std::string& text) {
  app.footer(text + "\n\n" + app.get_footer());
}

std::string flag_value(const std::vector<std::string>& words, std::string_view flag) {
  const std::string with_equals = str(flag, '=');
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(with_equals)) return words[i].substr(with_equals.size());
    if (words[i] == flag && i + 1 < words.size()) return words[i + 1];
  }
  return "";
}

bool is_on(const std::vector<std::string>& words, const std::string& flag) {
  bool on = false;
  const Field field{flag, &on, ""};
  for (const std::string& w : words) {
    if (w == flag) on = true;
    if (w.starts_with(flag + "=")) set_field(field, std::string_view(w).substr(flag.size() + 1));
  }
  return on;
}

}  // namespace ebb::cli
