// Collectives between processes on processors, over MPI.
#pragma once

#include <memory>

#include "core/communicator.h"

namespace ebb::cpu {

// Sums are made by their owner, an equal share of the elements each, in the order of the ranks and
// in f32: they depend on nothing but the number of ranks. Throws Error: MPI is missing, or counts
// other ranks than the group.
std::unique_ptr<Communicator> mpi_communicator(const RankGroup& group);

}  // namespace ebb::cpu
