// The program as several ranks under mpirun.
#pragma once

#include <filesystem>
#include <string>

#include "support/program.h"

namespace ebb::testing {

// Why tests cannot start ranks here; "": they can.
inline std::string no_mpirun() {
  if (run_command("command -v mpirun").code != 0) return "there is no mpirun";
  const auto library = std::filesystem::path(program_path()).parent_path() / "libebb_mpi.so";
  return std::filesystem::exists(library) ? "" : "built without MPI";
}

// Ranks that wait let others have the processors.
inline std::string on_ranks(int ranks, const std::string& command) {
  return str("mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 -n ", ranks,
             " ", command);
}

}  // namespace ebb::testing
