// ebb report FOLDER: the page about a training run.
#include "pipeline/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/command.h"
#include "apps/cli/terminal.h"

namespace ebb::cli {
namespace {

struct Options {
  std::string folder;
  bool json = false;
  void fields(auto&& f) { f("json", json, "print one JSON object on standard output"); }
};

std::function<int()> bind(CLI::App& app, const std::vector<std::string>&) {
  const auto o = std::make_shared<Options>();
  add_positional(app, "FOLDER", o->folder, "the folder of a training run");
  add_flags(app, fields_of(*o));
  return [o] {
    say_warnings(write_report(o->folder));
    const std::string path = o->folder + "/report.html";
    if (o->json)
      print_json({{"report", path}});
    else
      std::fprintf(stderr, "wrote %s\n", path.c_str());
    return 0;
  };
}

}  // namespace

const Command& report() {
  static const Command c{"report", "write report.html about a training run", "ebb report out/demo",
                         bind};
  return c;
}

}  // namespace ebb::cli
