// ebb: trains diffusion models and samples from them. One file a command in commands/.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"
#include "base/error.h"
#include "base/names.h"
#include "base/version.h"
#include "train/stop.h"

#define X(name)          \
  namespace ebb::cli {   \
  const Command& name(); \
  }
#include "ebb/gen/commands.inc"
#undef X

namespace ebb::cli {
namespace {

std::vector<const Command*> all_commands() {
  return {
#define X(name) &name(),
#include "ebb/gen/commands.inc"
#undef X
  };
}

void print_overview(std::FILE* out) {
  std::fputs(
      "ebb trains diffusion models and samples from them.\n\n"
      "usage: ebb COMMAND [OPTIONS]\n\ncommands:\n",
      out);
  for (const Command* c : all_commands())
    std::fprintf(out, "  %-9.*s %.*s\n", static_cast<int>(c->name.size()), c->name.data(),
                 static_cast<int>(c->summary.size()), c->summary.data());
  std::fputs(
      "\n`ebb COMMAND --help` shows the common options of a command, with defaults and an "
      "example,\n"
      "`ebb COMMAND --help-all` all of them.\n"
      "Exit codes: 0 done, 2 a mistake or a fault (one line says which), 130 after Ctrl-C and 143\n"
      "after SIGTERM (128 and the signal's number; what `train` did is saved).\n",
      out);
}

const Command& find_command(const std::string& name) {
  return *find_known("unknown command", name, all_commands(), &Command::name);
}

// Every long flag of the app, for suggestions.
std::vector<std::string> known_flags(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& l : o->get_lnames()) out.push_back("--" + l);
  return out;
}

// The words with --a-b for --a_b: both may be written.
std::vector<std::string> with_hyphens(std::vector<std::string> words) {
  for (std::string& word : words) {
    if (word == "--") break;
    if (!word.starts_with("--")) continue;
    const auto end =
        word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size()));
    std::replace(word.begin(), end, '_', '-');
  }
  return words;
}

// Leaves the command's common options in the help, as one group.
void show_common(CLI::App& app, const Command& command) {
  if (command.common.empty()) return;
  size_t hidden = 0;
  for (CLI::Option* o : app.get_options()) {
    if (o->get_positional() || o == app.get_help_ptr() || o == app.get_help_all_ptr()) continue;
    const std::string flag = "--" + o->get_lnames()[0];
    const bool common =
        std::ranges::any_of(command.common, [&](std::string_view f) { return flag_of(f) == flag; });
    hidden += common ? 0 : 1;
    o->group(common ? "Options" : "");
  }
  app.footer(str(hidden, " more options: ebb ", command.name, " --help-all\n\n", app.get_footer()));
}

// Throws Error if a flag of one value is there twice: which one would count?
void check_repeats(const Command& command, const std::vector<std::string>& words) {
  std::set<std::string> seen;
  for (const std::string& word : words) {
    if (word == "--") return;
    if (!word.starts_with("--")) continue;
    const std::string flag = word.substr(0, word.find('='));
    if (std::ranges::any_of(command.repeated,
                            [&](std::string_view field) { return flag_of(field) == flag; }))
      continue;
    require(seen.insert(flag).second, command.name, ": ", flag, " is given more than once");
  }
}

// Throws Error if `word` stands behind a switch as if it were its value.
void check_switch(const CLI::App& app, std::string_view command,
                  const std::vector<std::string>& words, const std::string& word) {
  const auto at = std::ranges::find(words, word);
  if (at == words.begin() || at == words.end()) return;
  const std::string before = *(at - 1);
  const CLI::Option* option = app.get_option_no_throw(before);
  require(!before.starts_with("--") || !option || option->get_expected_max() > 0, command, ": ",
          before, " is a switch: give ", before, " alone or ", before, "=", word, " (got '", before,
          " ", word, "')");
}

// Throws Error for a switch with a value that is neither on nor off: --json=3.
void check_switch_values(const CLI::App& app, std::string_view command,
                         const std::vector<std::string>& words) {
  static const std::vector<std::string> values{"true", "false", "on", "off", "yes", "no", "1", "0"};
  for (const std::string& word : words) {
    if (word == "--") return;
    const size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == word.npos) continue;
    const std::string flag = word.substr(0, equals), value = word.substr(equals + 1);
    const CLI::Option* option = app.get_option_no_throw(flag);
    require(!option || option->get_expected_max() > 0 ||
                std::ranges::find(values, small_letters(value)) != values.end(),
            command, ": ", flag, " is a switch: its value must be true or false (got '", word,
            "')");
  }
}

int run_command(const Command& command, const std::vector<std::string>& given) {
  const std::vector<std::string> words = with_hyphens(given);
  check_repeats(command, words);  // before a command reads some of them
  CLI::App app{std::string(command.summary), "ebb " + std::string(command.name)};
  app.footer("example:\n  " + std::string(command.example));
  app.set_help_flag("-h,--help", "the common options");
  app.set_help_all_flag("--help-all", "every option");
  app.option_defaults()->always_capture_default(false);
  const std::function<int()> run = command.bind(app, words);
  check_switch_values(app, command.name, words);
  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForAllHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::CallForHelp&) {
    show_common(app, command);
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ExtrasError&) {
    const std::vector<std::string> known = known_flags(app);
    for (const std::string& word : app.remaining()) {
      check_switch(app, command.name, words, word);
      const std::string flag = word.substr(0, word.find('='));
      fail(command.name, ": unknown argument '", flag, "'",
           flag.starts_with("--") ? suggestion(flag, known) : std::string(" (see --help)"));
    }
    throw;
  } catch (const CLI::ParseError& e) {
    fail(command.name, ": ", e.what(), " (see ebb ", command.name, " --help)");
  }
  check_texts(app, command.name);
  return run();
}

int run_main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    print_overview(stderr);
    return usage_error;
  }
  if (words[0] == "help" && words.size() > 1)
    return run_command(find_command(words[1]), {"--help"});
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_overview(stdout);
    return 0;
  }
  if (words[0] == "--version") {
    std::printf("ebb %s\n", version);
    return 0;
  }
  return run_command(find_command(words[0]), {words.begin() + 1, words.end()});
}

}  // namespace
}  // namespace ebb::cli

namespace {

// OpenMP's waiting threads spin for milliseconds by default; where another program wants the same
// cores, every step then takes a hundred times as long. The limit is read when the library is
// loaded, so the program starts itself again with it set. The user's own settings win.
void limit_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  setenv("GOMP_SPINCOUNT", "10000", 1);
  execv("/proc/self/exe", argv);  // returns only if it fails, which changes nothing but speed
}

// Where one of the three standard streams is closed, the next file that is opened would be it, and
// get what is meant for people.
void fill_standard_streams() {
  int file = 0;
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDWR);
  if (file >= 0) close(file);
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  limit_spinning(argv);
  prctl(PR_SET_NAME, "ebb");  // for ps and pkill: what was started as /proc/self/exe is called exe
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away must not end a run without a checkpoint
  const ebb::train::SignalThread takes_signals;
  return ebb::cli::exit_code([&] { return ebb::cli::run_main(argc, argv); });
}
