// Command: a subcommand of the program. src/apps/cli/commands/<name>.cpp defines `const Command&
// ebb::cli::<name>()`; a generated list names them.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace CLI {
class App;
}

namespace ebb::cli {

struct Command {
  std::string_view name, summary, example;
  // Adds the command's flags to `app`; `words` are the raw arguments (flags with hyphens, however
  // they were written), for flags that depend on others (a model's). Returns what to run once they
  // are parsed; its result is the exit code.
  std::function<int()> (*bind)(CLI::App& app, const std::vector<std::string>& words) = nullptr;
  // Fields whose flags --help shows; --help-all shows all. Empty: all are few enough.
  std::vector<std::string_view> common = {};
  // Fields of several texts (base/text_list.h), whose flags may be given more than once.
  std::vector<std::string_view> repeated = {};
};

// The exit code after an error.
constexpr int usage_error = 2;
// The exit code after a signal is this plus the signal's number, as in shells.
constexpr int signal_exit = 128;
// What a command says when the first signal comes.
constexpr std::string_view stopping = "stopping; again, after a second, to end now";

// What --overwrite does where --out names a file.
constexpr std::string_view overwrite_help = "replace the file of that name, whatever it is";

// Options of every command.
struct CommonOptions {
  bool json = false;
  std::string device = "auto", tune = "off";
  int64_t threads = 0;
  int64_t index = 0;  // of the GPU among those here
  void fields(auto&& f) {
    f("json", json, "print one JSON object on standard output, all else on standard error");
    f("device", device, "auto, cpu or cuda");
    f("threads", threads, "CPU threads; 0: all that this process may use");
    f("tune", tune, "fast or full: measure kernel candidates once per shape; off: presets");
  }
  void choices(auto&& f) { f("tune", tune, {"off", "fast", "full"}); }
};

// One flag per field: --image-size for image_size. Help shows the default; flags with a group stand
// under its name.
void add_flags(CLI::App& app, std::vector<Field> fields, const std::string& group = "");
// Flags of the DiffusionConfig fields that sampling may override. They are only recorded, as names
// and texts, and applied to the checkpoint's config later.
using FieldTexts = std::vector<std::pair<std::string, std::string>>;
// `training`: those that training may override.
enum class Overrides : uint8_t { sampling, training };
// Training from captions drops them as data, and levels of sampling are no matter of it.
bool is_offered(std::string_view field, Overrides which);
void add_overrides(CLI::App& app, FieldTexts& texts, Overrides which = Overrides::sampling);
// A positional argument.
enum class Positional { required, optional };
void add_positional(CLI::App& app, const std::string& name, std::string& value,
                    const std::string& help, Positional kind = Positional::required);
// Another text of help for a flag that is there.
void describe_flag(CLI::App& app, const std::string& flag, const std::string& help);
// Puts the values of a field behind its flag's help, unless that speaks of all of them.
void describe_choices(CLI::App& app, std::string_view field, const std::vector<std::string>& names);
// Puts a paragraph between the flags and the example of the help.
void add_help_paragraph(CLI::App& app, const std::string& text);
// The names of the fields whose flags were given, once the app is parsed.
std::vector<std::string> given_fields(const CLI::App& app);
// Whether the flag of a field was given.
bool is_given(const CLI::App& app, std::string_view field);
// Whether a field is of several texts (base/text_list.h).
bool is_list(const Field& f);
// Throws Error for a flag that was given with no text, which says nothing, but for prompts, and
// where settings come from a picture or a file (--like, --config), of which it takes one away.
void check_texts(const CLI::App& app, std::string_view command);
// Normalises the case of "auto".
void resolve_auto(std::initializer_list<std::string*> texts);
// A file in the folder of a run; "" if the checkpoint is a file, not such a folder.
std::string in_run_folder(const std::string& checkpoint, std::string_view file);
// The flag of a field: --image-size for image_size.
std::string flag_of(std::string_view field);
// The flag that turns a switch off: --no-json for json, --upscale for no_upscale.
std::string negated_flag_of(std::string_view field);
// The value of a flag in raw arguments; "" if it is not there.
std::string flag_value(const std::vector<std::string>& words, std::string_view flag);
// Whether a switch is on in raw arguments: --resume, --resume=true.
bool is_on(const std::vector<std::string>& words, const std::string& flag);

}  // namespace ebb::cli
