// A run on several devices: one process, a rank, for each. Ranks pass small messages on the host
// (RankGroup), and tensors between their devices (Communicator).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ebb {

// The ranks of a run, as one of them sees them.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int64_t rank() const = 0;        // 0 to ranks() - 1
  virtual int64_t ranks() const = 0;       // the world size
  virtual int64_t local_rank() const = 0;  // among those of this host
  // The texts of all ranks, by rank. All ranks call it, the same number of times. Throws Error.
  virtual std::vector<std::string> gather(std::string_view own) = 0;
};

// The collectives of a rank, on tensors in its device's memory. All ranks call the same ones in the
// same order, with equal counts and dtypes. Each enqueues its work where the device's kernels go
// and returns; a caller on several streams orders them by events. Sums have an order of their own,
// which is the same every time on the same ranks; of 16 bits they are rounded to the dtype at least
// once (docs/many-gpus.md).
class Communicator {
 public:
  struct Operand {
    const void* in = nullptr;
    void* out = nullptr;
    int64_t count = 0;  // elements of the smaller side
    DType dtype = DType::f32;
  };

  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t ranks() const = 0;
  virtual std::string description() const = 0;  // "NCCL 2.28.3", "Open MPI 4.1.4"
  // What has gone wrong with the link while collectives run, in its library's words; "": nothing.
  // Any thread may ask: the one that waits for a collective may wait for ever.
  virtual std::string fault() const { return ""; }
  // Whether collectives hold thread blocks on the device until other ranks' run. Kernels whose
  // thread blocks wait for each other may then not start beside them.
  virtual bool occupies_device() const { return true; }
  // out = the sum of all ranks' in. May be in place. f32, bf16, f16.
  virtual void all_reduce(std::span<const Operand> operands) = 0;
  // in: ranks x count elements; out = row `rank` of the sum. f32, bf16, f16.
  virtual void reduce_scatter(std::span<const Operand> operands) = 0;
  // out: ranks x count elements, row r = rank r's in. Any dtype.
  virtual void all_gather(std::span<const Operand> operands) = 0;
  // out = rank 0's in. May be in place. Any dtype.
  virtual void broadcast(std::span<const Operand> operands) = 0;
};

}  // namespace ebb
