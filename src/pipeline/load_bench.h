// A bench of loading: the weights of a file, from the system's cache into a device's memory.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/context.h"

namespace ebb {

struct LoadResult {
  int64_t bytes = 0;          // of weights
  double check_s = 0;         // headers, and that all numbers are finite
  double fill_s = 0;          // into the device's memory
  int64_t private_bytes = 0;  // of the process, at most meanwhile; a mapped file's are not
};

// Reads the file once before it is timed, and compares what arrived with it afterwards. Throws
// Error.
LoadResult bench_load(const Context& context, const std::string& file);

// A safetensors file of about so many bytes of random weights in bf16.
void write_random_weights(const std::string& file, int64_t bytes);

}  // namespace ebb
