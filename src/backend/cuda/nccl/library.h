// NCCL, found at run time: ebb neither needs it to build nor links it. The functions and numbers
// are those of NCCL's nccl.h, which have been the same since version 2.10.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace ebb::cuda::nccl {

using Comm = struct CommObject*;
struct UniqueId {
  char bytes[128];
};
using Result = int;
constexpr Result success = 0, in_progress = 7;
constexpr int sum = 0;  // of ncclRedOp_t

int number_of(DType dtype);  // in ncclDataType_t

struct Library {
  Result (*get_version)(int* version);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank)(Comm* comm, int ranks, UniqueId id, int rank);
  Result (*comm_destroy)(Comm comm);
  Result (*comm_abort)(Comm comm);
  Result (*comm_get_async_error)(Comm comm, Result* error);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm comm);  // null in versions before 2.13
  Result (*group_start)();
  Result (*group_end)();
  Result (*all_reduce)(const void* in, void* out, size_t count, int dtype, int op, Comm comm,
                       cudaStream_t stream);
  Result (*reduce_scatter)(const void* in, void* out, size_t count_out, int dtype, int op,
                           Comm comm, cudaStream_t stream);
  Result (*all_gather)(const void* in, void* out, size_t count_in, int dtype, Comm comm,
                       cudaStream_t stream);
  Result (*broadcast)(const void* in, void* out, size_t count, int dtype, int root, Comm comm,
                      cudaStream_t stream);

  // Throws Error, with NCCL's own words, for what is no success.
  void check(Result result, const char* what) const;
  std::string version() const;  // "2.28.9"
};

// Where it may be, in the order in which it is looked for: EBB_NCCL (the library or its folder)
// alone where that is set, else the loader's own places, CUDA's folders, and the wheel
// nvidia-nccl-cu13 in Python environments.
using Environment = std::map<std::string, std::string>;
std::vector<std::string> places(const Environment& environment);

// Throws Error: it is not there, with where to get it, or it lacks functions.
Library load(const std::vector<std::string>& places);
// Of this process, loaded once.
const Library& library();

}  // namespace ebb::cuda::nccl
