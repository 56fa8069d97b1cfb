// What libebb_mpi.so offers: the few calls of MPI that ebb makes, behind an interface that is the
// same for every MPI. The only file that both sides include.
#pragma once

#include <cstdint>

namespace ebb::ranks {

// Each function gives null, or what went wrong. Counts are bytes, of any number.
struct MpiTable {
  int32_t version;  // of this struct
  const char* (*init)(int32_t* rank, int32_t* ranks);
  const char* (*description)();                         // "Open MPI 4.1.4"; never null
  const char* (*broadcast)(void* data, int64_t bytes);  // from rank 0
  // out: rank r's `in` in row r. In place if `in` is that row.
  const char* (*all_gather)(const void* in, void* out, int64_t bytes_of_row);
  // Row r of `in` goes to rank r, into the row of who sends it.
  const char* (*all_to_all)(const void* in, void* out, int64_t bytes_of_row);
  const char* (*finalize)();
};
constexpr int32_t mpi_table_version = 1;
constexpr const char* mpi_table_name = "ebb_mpi_table";
using MpiTableFunction = const MpiTable* (*)();

// Rows of all_gather and all_to_all may have so many bytes.
constexpr int64_t most_row_bytes = int64_t{1} << 30;

}  // namespace ebb::ranks
