// How this process was started as one of several: what --gpus, torchrun, mpirun and srun put into
// its environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::ranks {

using Environment = std::map<std::string, std::string, std::less<>>;
Environment environment();  // of this process

// One rank of a run, as its launcher describes it.
struct Launch {
  int64_t rank = 0, ranks = 1;
  int64_t local_rank = 0;   // among the ranks of this host
  int64_t local_ranks = 0;  // on this host; 0: the launcher does not say
  // Where rank 0 listens for the others. No addresses: MPI has to tell them (ranks/connect.h).
  std::vector<std::string> addresses;
  int64_t port = 0;
  int listener = -1;     // rank 0: a socket that it inherits and that listens already
  std::string token;     // what all ranks of a run, and no others, know; "": nothing
  std::string_view how;  // "--gpus", "torchrun", "Open MPI", "MPICH", "Slurm"
};

// None: the process computes alone. Throws Error, naming the variables, where some are missing,
// are no numbers or contradict each other.
std::optional<Launch> launch_of(const Environment& environment);

// The first of the hosts that Slurm names: "gpu03" of "gpu[03-05,9],cpu7". Throws Error.
std::string first_host(std::string_view nodes);
// How many tasks Slurm has on a node: "4(x2),3" says 4 on nodes 0 and 1, and 3 on node 2. Throws
// Error; 0 for a node that is not listed.
int64_t tasks_of_node(std::string_view tasks, int64_t node);

// The variables of ebb's own, by which run_ranks (ranks/spawn.h) tells its copies who they are. Any
// other launcher may set them as well.
namespace variable {
constexpr const char* rank = "EBB_RANK";
constexpr const char* ranks = "EBB_RANKS";
constexpr const char* local_rank = "EBB_LOCAL_RANK";
constexpr const char* local_ranks = "EBB_LOCAL_RANKS";
constexpr const char* address = "EBB_ADDRESS";
constexpr const char* port = "EBB_PORT";
constexpr const char* listener = "EBB_LISTENER";
constexpr const char* token = "EBB_RUN_TOKEN";
}  // namespace variable

}  // namespace ebb::ranks
