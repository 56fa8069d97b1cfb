// libebb_mpi.so: MPI behind the table that ebb loads. Compiled where MPI's headers are.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ranks/mpi/table.h"

namespace ebb::ranks {
namespace {

// Null for a success.
const char* text_of(int status) {
  static std::array<char, MPI_MAX_ERROR_STRING> text;
  if (status == MPI_SUCCESS) return nullptr;
  int length = 0;
  if (MPI_Error_string(status, text.data(), &length) != MPI_SUCCESS) return "an unknown error";
  return text.data();
}

const char* init(int32_t* rank, int32_t* ranks) {
  int threads = 0;
  const int status = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads);
  if (status != MPI_SUCCESS) return text_of(status);
  if (threads < MPI_THREAD_FUNNELED) return "it does not allow threads";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int r = 0, n = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &r);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  *rank = r;
  *ranks = n;
  return nullptr;
}

// The name and number of the version, which some print with much behind it.
const char* description() {
  static std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text;
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "MPI";
  text[std::strcspn(text.data(), ",\n")] = '\0';
  return text.data();
}

const char* broadcast(void* data, int64_t bytes) {
  auto* const at = static_cast<char*>(data);
  for (int64_t done = 0; done < bytes; done += most_row_bytes) {
    const int count = static_cast<int>(std::min(bytes - done, most_row_bytes));
    const int status = MPI_Bcast(at + done, count, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (status != MPI_SUCCESS) return text_of(status);
  }
  return nullptr;
}

const char* all_gather(const void* in, void* out, int64_t bytes) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int count = static_cast<int>(bytes);
  const bool in_place = in == static_cast<char*>(out) + rank * bytes;
  return text_of(MPI_Allgather(in_place ? MPI_IN_PLACE : in, count, MPI_BYTE, out, count, MPI_BYTE,
                               MPI_COMM_WORLD));
}

const char* all_to_all(const void* in, void* out, int64_t bytes) {
  const int count = static_cast<int>(bytes);
  return text_of(MPI_Alltoall(in, count, MPI_BYTE, out, count, MPI_BYTE, MPI_COMM_WORLD));
}

const char* finalize() { return text_of(MPI_Finalize()); }

}  // namespace
}  // namespace ebb::ranks

extern "C" __attribute__((visibility("default"))) const ebb::ranks::MpiTable* ebb_mpi_table() {
  using namespace ebb::ranks;  // NOLINT: all of the table
  static const MpiTable table = {.version = mpi_table_version,
                                 .init = init,
                                 .description = description,
                                 .broadcast = broadcast,
                                 .all_gather = all_gather,
                                 .all_to_all = all_to_all,
                                 .finalize = finalize};
  return &table;
}
