#include "apps/cli/ranks.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "apps/cli/gpus.h"
#include "base/error.h"
#include "base/names.h"
#include "ranks/connect.h"
#include "ranks/launch.h"
#include "ranks/spawn.h"

namespace ebb::cli {
namespace {

// Of this process, which is started once.
const std::optional<ranks::Launch>& own_launch() {
  static const auto launch = ranks::launch_of(ranks::environment());
  return launch;
}

// The arguments of this process, from the program's name on.
std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> out;
  for (std::string word; std::getline(file, word, '\0');) out.push_back(word);
  return out;
}

// Threads of a rank: the cores that it may use, shared with the ranks of its host that may use the
// same. A launcher may have bound each to its own.
int64_t share_of_cores(ranks::TcpGroup& group) {
  cpu_set_t bound;
  if (sched_getaffinity(0, sizeof bound, &bound) != 0) return 1;
  std::string cores;
  for (size_t i = 0; i < CPU_SETSIZE; ++i) cores += CPU_ISSET(i, &bound) ? '1' : '0';
  const std::string own = str(group.member(group.rank()).host, ' ', cores);
  const std::vector<std::string> all = group.gather(own);
  return std::max<int64_t>(CPU_COUNT(&bound) / std::ranges::count(all, own), 1);
}

}  // namespace

bool is_quiet() {
  const auto& launch = own_launch();
  return launch && launch->rank > 0;
}

void say_once(std::string_view line) {
  if (!is_quiet()) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

std::optional<int> start_copies(const std::string& gpus, const std::string& device) {
  if (gpus.empty()) return {};
  if (const auto& launch = own_launch()) {
    require(launch->how == "--gpus", "gpus: ", launch->how, " starts the ranks already (--gpus ",
            gpus, ")");
    return {};
  }
  require(small_letters(device) != "cpu", "gpus: --device cpu has none; mpirun starts ranks on ",
          "processors (--gpus ", gpus, ")");
  const int64_t n = number_of_gpus(gpus);
  if (n == 1) return {};
  return ranks::run_copies({.ranks = n, .arguments = own_arguments()});
}

std::shared_ptr<ranks::TcpGroup> join_group() {
  const auto& launch = own_launch();
  return launch ? ranks::connect(*launch) : nullptr;
}

void share_seed(DrawableSeed& seed, ranks::TcpGroup* group) {
  if (!is_quiet()) say_drawn(seed);
  if (!group) return;
  const std::string of_first = group->gather(seed.text())[0];
  if (seed.drawn()) seed.parse(of_first);
}

int64_t own_threads(int64_t asked, ranks::TcpGroup* group) {
  if (!group) return asked;
  const int64_t share = share_of_cores(*group);
  return asked > 0 ? asked : share;
}

Context open_device(CommonOptions o, ranks::TcpGroup* group) {
  if (!group) return open_device(o);
  const auto& launch = own_launch();
  // A launcher may show each rank its own GPU alone.
  o.index = count_devices("cuda") == 1 ? 0 : launch->local_rank;
  Context c = open_device(o);
  if (is_quiet()) c.log = [](std::string_view) {};
  group->report(0, ranks::Phase::join);
  c.device->join(*group);
  group->watch_link([device = c.device.get()] { return device->communicator()->fault(); });
  // Whoever gives the device up last, the link is not asked any more then.
  c.device = {c.device.get(), [group, owner = c.device](Device*) mutable {
                group->watch_link({});
                owner.reset();
              }};
  group->report(0, ranks::Phase::start);
  return c;
}

int run_ranked(ranks::TcpGroup* group, const std::function<int()>& work) {
  if (!group) return work();
  try {
    const int code = work();
    group->goodbye();
    return code;
  } catch (const std::exception& e) {
    group->fail(e.what());
  }
}

}  // namespace ebb::cli
