#include "backend/cpu/mpi_communicator.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "ranks/mpi/table.h"
#include "ranks/mpi_library.h"

namespace ebb::cpu {
namespace {

using Bytes = std::vector<uint8_t>;

size_t size(int64_t bytes) { return static_cast<size_t>(bytes); }

// Calls work(at, count) for one part of [0, bytes) after the other.
void in_parts(int64_t bytes, int64_t part, const auto& work) {
  for (int64_t at = 0; at < bytes; at += part) work(at, std::min(part, bytes - at));
}

// out[i] = the sum of all rows' element i, in the order of the rows.
template <class T>
void sum_rows(const T* rows, int64_t ranks, int64_t count, T* out) {
#pragma omp parallel for
  for (int64_t i = 0; i < count; ++i) {
    auto sum = static_cast<float>(rows[i]);
    for (int64_t r = 1; r < ranks; ++r) sum += static_cast<float>(rows[r * count + i]);
    out[i] = T(sum);
  }
}

void sum_rows(const Bytes& rows, int64_t ranks, int64_t count, DType dtype, uint8_t* out) {
  require(is_float(dtype), "collective: sums are of floats (", dtype, ")");
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (is_float(dtype_of<T>))
      sum_rows(reinterpret_cast<const T*>(rows.data()), ranks, count, reinterpret_cast<T*>(out));
  });
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(const RankGroup& group) : mpi_(ranks::MpiLibrary::open()) {
    require(mpi_->rank() == group.rank() && mpi_->ranks() == group.ranks(),
            "cpu: MPI must connect the ranks, so that mpirun or srun --mpi have to start them (MPI "
            "has rank ",
            mpi_->rank(), " of ", mpi_->ranks(), ", the run ", group.rank(), " of ", group.ranks(),
            ")");
  }
  int64_t rank() const override { return mpi_->rank(); }
  int64_t ranks() const override { return mpi_->ranks(); }
  std::string description() const override { return mpi_->description(); }

  void all_reduce(std::span<const Operand> operands) override {
    for (const Operand& o : operands)
      in_parts(o.count * size_of(o.dtype), ranks() * share(), [&](int64_t at, int64_t bytes) {
        reduce_part(o.dtype, in(o) + at, out(o) + at, bytes);
      });
  }

  void reduce_scatter(std::span<const Operand> operands) override {
    for (const Operand& o : operands) {
      const int64_t row = o.count * size_of(o.dtype);
      in_parts(row, share(), [&](int64_t at, int64_t bytes) {
        exchange(pack(in(o) + at, row, bytes), bytes);
        sum_rows(received_, ranks(), bytes / size_of(o.dtype), o.dtype, out(o) + at);
      });
    }
  }

  void all_gather(std::span<const Operand> operands) override {
    for (const Operand& o : operands) {
      const int64_t row = o.count * size_of(o.dtype);
      if (row <= ranks::most_row_bytes) {
        mpi_->all_gather(o.in, o.out, row);
        continue;
      }
      in_parts(row, share(), [&](int64_t at, int64_t bytes) {
        received_.resize(size(ranks() * bytes));
        mpi_->all_gather(in(o) + at, received_.data(), bytes);
        for (int64_t r = 0; r < ranks(); ++r)
          std::memcpy(out(o) + r * row + at, received_.data() + r * bytes, size(bytes));
      });
    }
  }

  void broadcast(std::span<const Operand> operands) override {
    for (const Operand& o : operands) {
      const int64_t bytes = o.count * size_of(o.dtype);
      if (rank() == 0 && o.in != o.out && bytes > 0) std::memcpy(o.out, o.in, size(bytes));
      mpi_->broadcast({out(o), size(bytes)});
    }
  }

 private:
  static const uint8_t* in(const Operand& o) { return static_cast<const uint8_t*>(o.in); }
  static uint8_t* out(const Operand& o) { return static_cast<uint8_t*>(o.out); }

  // Bytes of a rank at a time: what all send together is a few megabytes. A multiple of all sizes
  // of elements.
  int64_t share() const {
    constexpr int64_t together = int64_t{4} << 20, unit = 64;
    return std::max(together / ranks() / unit, int64_t{1}) * unit;
  }

  void exchange(const uint8_t* rows, int64_t row_bytes) {
    received_.resize(size(ranks() * row_bytes));
    mpi_->all_to_all(rows, received_.data(), row_bytes);
  }

  // `bytes` of each of the rows, which are `row` apart.
  const uint8_t* pack(const uint8_t* rows, int64_t row, int64_t bytes) {
    if (row == bytes) return rows;
    sent_.resize(size(ranks() * bytes));
    for (int64_t r = 0; r < ranks(); ++r)
      std::memcpy(sent_.data() + r * bytes, rows + r * row, size(bytes));
    return sent_.data();
  }

  // Every rank sums an equal share, and gives it to all; the last ones may be short of elements.
  void reduce_part(DType dtype, const uint8_t* in, uint8_t* out, int64_t bytes) {
    const int64_t element = size_of(dtype), count = bytes / element;
    const int64_t each = (count + ranks() - 1) / ranks(), row = each * element;
    const bool even = each * ranks() == count;
    if (!even) {
      sent_.assign(size(ranks() * row), 0);
      std::memcpy(sent_.data(), in, size(bytes));
    }
    exchange(even ? in : sent_.data(), row);
    sum_.resize(size(row));
    sum_rows(received_, ranks(), each, dtype, sum_.data());
    mpi_->all_gather(sum_.data(), even ? out : received_.data(), row);
    if (!even) std::memcpy(out, received_.data(), size(bytes));
  }

  std::shared_ptr<ranks::MpiLibrary> mpi_;
  Bytes sent_, received_, sum_;
};

}  // namespace

std::unique_ptr<Communicator> mpi_communicator(const RankGroup& group) {
  return std::make_unique<MpiCommunicator>(group);
}

}  // namespace ebb::cpu
