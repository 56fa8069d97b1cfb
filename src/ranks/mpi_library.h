// MPI, found at run time in libebb_mpi.so: the program itself does not need one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ebb::ranks {

struct MpiTable;

// MPI of this process from MPI_Init to MPI_Finalize, which waits for all ranks; while an Error is
// on its way, the process ends without it.
class MpiLibrary {
 public:
  // The same one to all who want it at the same time. Throws Error: there is no libebb_mpi.so, or
  // MPI cannot begin, or has ended in this process.
  static std::shared_ptr<MpiLibrary> open();
  ~MpiLibrary();
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }
  std::string description() const;  // "Open MPI v4.1.4"
  // Collective calls, of one thread at a time. Throw Error.
  void broadcast(std::span<uint8_t> data);  // rank 0's, to all
  // Rows of at most most_row_bytes (ranks/mpi/table.h), one a rank.
  void all_gather(const void* in, void* out, int64_t bytes_of_row);
  void all_to_all(const void* in, void* out, int64_t bytes_of_row);

 private:
  MpiLibrary();
  const MpiTable* table_ = nullptr;
  int32_t rank_ = 0, ranks_ = 1;
};

}  // namespace ebb::ranks
