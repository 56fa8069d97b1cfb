#include "ranks/launch.h"

#include <unistd.h>

#include <array>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace ebb::ranks {
namespace {

constexpr int64_t most_ranks = 65536, most_port = 65535;

// The variables of one launcher, read with its name in errors.
class Variables {
 public:
  Variables(const Environment& all, std::string_view how) : all_(all), how_(how) {}

  bool has(std::string_view name) const { return !text(name).empty(); }
  std::string text(std::string_view name) const {
    const auto it = all_.find(name);
    return it == all_.end() ? "" : it->second;
  }
  std::string needed(std::string_view name) const {
    require(has(name), "ranks: ", how_, " must set ", name, " as well (it is not set)");
    return text(name);
  }
  int64_t number(std::string_view name, int64_t least, int64_t most) const {
    const std::string value = needed(name);
    int64_t out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    require(
        error == std::errc() && end == value.data() + value.size() && out >= least && out <= most,
        "ranks: ", name, " of ", how_, " must be a number from ", least, " to ", most, " (got '",
        value, "')");
    return out;
  }
  int64_t number_or(std::string_view name, int64_t least, int64_t most, int64_t otherwise) const {
    return has(name) ? number(name, least, most) : otherwise;
  }
  std::string_view how() const { return how_; }

 private:
  const Environment& all_;
  std::string_view how_;
};

// The names of what every launcher says.
struct Names {
  std::string_view rank, ranks, local_rank, local_ranks;
};

// None: there is one rank.
std::optional<Launch> numbers_of(const Variables& v, const Names& names) {
  Launch out{.how = v.how()};
  out.ranks = v.number(names.ranks, 1, most_ranks);
  if (out.ranks == 1) return {};
  out.rank = v.number(names.rank, 0, most_ranks);
  require(out.rank < out.ranks, "ranks: ", names.rank, " must be below ", names.ranks, " (",
          out.rank, " of ", out.ranks, ", by ", v.how(), ")");
  out.local_rank = v.number_or(names.local_rank, 0, most_ranks, 0);
  out.local_ranks = v.number_or(names.local_ranks, 1, most_ranks, 0);
  require(
      out.local_ranks == 0 || (out.local_rank < out.local_ranks && out.local_ranks <= out.ranks),
      "ranks: ", names.local_rank, " must be below ", names.local_ranks, ", and these at most ",
      names.ranks, " (", out.local_rank, " of ", out.local_ranks, " here, ", out.ranks,
      " in all, by ", v.how(), ")");
  return out;
}

// MASTER_ADDR and MASTER_PORT, which every launcher's user may set, and a run's own token.
void take_address(Launch& launch, const Variables& v) {
  if (v.has("MASTER_ADDR")) launch.addresses = {v.text("MASTER_ADDR")};
  if (v.has("MASTER_PORT")) launch.port = v.number("MASTER_PORT", 1, most_port);
  if (v.has(variable::token)) launch.token = v.text(variable::token);
}

std::optional<Launch> by_ebb(const Environment& all) {
  const Variables v(all, "--gpus");
  if (!v.has(variable::ranks) && !v.has(variable::rank)) return {};
  auto out =
      numbers_of(v, {variable::rank, variable::ranks, variable::local_rank, variable::local_ranks});
  if (!out) return {};
  out->addresses = {v.needed(variable::address)};
  out->port = v.number(variable::port, 1, most_port);
  constexpr int64_t most_descriptor = 1 << 20;
  if (out->rank == 0)
    out->listener = static_cast<int>(v.number_or(variable::listener, -1, most_descriptor, -1));
  out->token = v.text(variable::token);
  return out;
}

std::optional<Launch> by_torchrun(const Environment& all) {
  const Variables v(all, "torchrun");
  if (!v.has("WORLD_SIZE") && !v.has("RANK")) return {};
  auto out = numbers_of(v, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (!out) return {};
  out->token =
      str("torchrun ", v.text("TORCHELASTIC_RUN_ID"), " ", v.text("TORCHELASTIC_RESTART_COUNT"));
  v.needed("MASTER_ADDR");
  v.needed("MASTER_PORT");
  take_address(*out, v);
  // torchrun itself listens on the port then.
  if (v.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
    out->port = out->port < most_port ? out->port + 1 : out->port - 1;
  return out;
}

std::optional<Launch> by_mpi(const Environment& all, std::string_view how, const Names& names) {
  const Variables v(all, how);
  if (!v.has(names.ranks) && !v.has(names.rank)) return {};
  auto out = numbers_of(v, names);
  if (!out) return {};
  take_address(*out, v);
  require(out->addresses.empty() || out->port > 0,
          "ranks: MASTER_ADDR needs MASTER_PORT beside it (MASTER_ADDR is ", v.text("MASTER_ADDR"),
          ")");
  return out;
}

// A job of its own port, if nobody chose one.
int64_t port_of_job(const Variables& v) {
  constexpr int64_t most_job = int64_t{1} << 32, first = 20000, ports = 12000, steps = 16;
  const int64_t job = v.number("SLURM_JOB_ID", 0, most_job);
  const int64_t step = v.number("SLURM_STEP_ID", 0, most_job);
  return first + (job * steps + step % steps) % ports;
}

// A shell inside of an allocation, and the script of a job, know the job's tasks but are none.
bool srun_started(const Variables& v) {
  constexpr int64_t most = int64_t{1} << 32, first_special = most - 16;  // of numbers of steps
  return v.has("SLURM_STEP_ID") && v.has("SLURM_PROCID") &&
         v.number("SLURM_STEP_ID", 0, most) < first_special;
}

std::optional<Launch> by_slurm(const Environment& all) {
  const Variables v(all, "Slurm");
  if (!srun_started(v)) return {};
  const bool of_step = v.has("SLURM_STEP_NUM_TASKS");
  if (!of_step && !v.has("SLURM_NTASKS")) return {};
  auto out = numbers_of(
      v, {"SLURM_PROCID", of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", ""});
  if (!out) return {};
  if (v.has("SLURM_STEP_TASKS_PER_NODE") && v.has("SLURM_NODEID"))
    out->local_ranks =
        tasks_of_node(v.text("SLURM_STEP_TASKS_PER_NODE"), v.number("SLURM_NODEID", 0, most_ranks));
  out->token = str("Slurm ", v.needed("SLURM_JOB_ID"), ".", v.text("SLURM_STEP_ID"));
  out->port = port_of_job(v);
  take_address(*out, v);
  if (out->addresses.empty())
    out->addresses = {first_host(v.has("SLURM_STEP_NODELIST") ? v.text("SLURM_STEP_NODELIST")
                                                              : v.needed("SLURM_JOB_NODELIST"))};
  return out;
}

}  // namespace

Environment environment() {
  Environment out;
  for (char** at = ::environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view line = *at;
    const size_t equals = line.find('=');
    if (equals != line.npos)
      out.emplace(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)));
  }
  return out;
}

std::optional<Launch> launch_of(const Environment& all) {
  const auto has = [&](std::string_view name) { return all.find(name) != all.end(); };
  if (has(variable::ranks) || has(variable::rank)) return by_ebb(all);
  if (has("WORLD_SIZE") || has("RANK")) return by_torchrun(all);
  if (has("OMPI_COMM_WORLD_SIZE"))
    return by_mpi(all, "Open MPI",
                  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                   "OMPI_COMM_WORLD_LOCAL_SIZE"});
  // srun may speak PMI as well, but does not say the local rank by it.
  if (has("PMI_SIZE") && (has("MPI_LOCALRANKID") || !has("SLURM_PROCID")))
    return by_mpi(all, "MPICH", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  return by_slurm(all);
}

std::string first_host(std::string_view nodes) {
  std::string out;
  bool bracket = false, first = true;  // inside of brackets; in their first number
  for (const char c : nodes) {
    if (c == ',' && !bracket) break;
    if (c == '[' || c == ']') {
      require((c == '[') != bracket, "ranks: brackets must match in Slurm's list of hosts (", nodes,
              ")");
      bracket = c == '[';
      first = true;
    } else if (!bracket) {
      out += c;
    } else {
      first = first && c != '-' && c != ',';
      if (first) out += c;
    }
  }
  require(!out.empty() && !bracket, "ranks: Slurm's list of hosts must name one (got '", nodes,
          "')");
  return out;
}

int64_t tasks_of_node(std::string_view tasks, int64_t node) {
  const auto number = [&](std::string_view text) {
    int64_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    require(
        error == std::errc() && end == text.data() + text.size() && out >= 1 && out <= most_ranks,
        "ranks: Slurm's tasks per node must be numbers as 4(x2),3 (got '", tasks, "')");
    return out;
  };
  for (const std::string_view part : items_in(tasks, ",")) {
    const size_t open = part.find("(x");
    const bool repeated = open != part.npos && part.ends_with(')');
    const int64_t nodes = repeated ? number(part.substr(open + 2, part.size() - open - 3)) : 1;
    const int64_t here = number(part.substr(0, repeated ? open : part.npos));
    if (node < nodes) return here;
    node -= nodes;
  }
  return 0;
}

}  // namespace ebb::ranks
