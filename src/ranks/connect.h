// From how a process was started to the group of its run.
#pragma once

#include <memory>

#include "ranks/tcp_group.h"

namespace ebb::ranks {

// Where the launcher names no address of rank 0 (mpirun), MPI tells it. Throws Error.
std::unique_ptr<TcpGroup> connect(const Launch& launch, const Limits& limits = {});

std::string random_token();

}  // namespace ebb::ranks
