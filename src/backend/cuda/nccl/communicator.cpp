#include "backend/cuda/nccl/communicator.h"

#include <cstring>
#include <exception>

#include "base/error.h"

namespace ebb::cuda::nccl {
namespace {

// Rank 0's id, which all need.
UniqueId shared_id(const Library& nccl, RankGroup& group) {
  UniqueId id{};
  if (group.rank() == 0) nccl.check(nccl.get_unique_id(&id), "making an id");
  const std::vector<std::string> all =
      group.gather(str(nccl.version(), "\n", std::string_view(id.bytes, sizeof id.bytes)));
  const std::string version = nccl.version();
  for (size_t r = 0; r < all.size(); ++r) {
    const std::string other = all[r].substr(0, all[r].find('\n'));
    require(all[r].size() == other.size() + 1 + sizeof id.bytes, "nccl: rank ", r,
            " sends no id of NCCL's");
    const std::string first = all[0].substr(0, all[0].find('\n'));
    require(other == first, "nccl: all ranks need the same version (", first, " on rank 0, ", other,
            " on rank ", r, ")");
  }
  std::memcpy(id.bytes, all[0].data() + all[0].size() - sizeof id.bytes, sizeof id.bytes);
  return id;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Library& nccl, RankGroup& group, StreamOf stream)
      : nccl_(nccl), stream_(std::move(stream)), rank_(group.rank()), ranks_(group.ranks()) {
    const UniqueId id = shared_id(nccl, group);
    nccl.check(nccl.comm_init_rank(&comm_, static_cast<int>(ranks_), id, static_cast<int>(rank_)),
               "connecting the GPUs");
  }
  // What still runs, or waits for a rank that is gone, is ended where an Error is on its way.
  ~NcclCommunicator() override {
    if (comm_ == nullptr) return;
    if (std::uncaught_exceptions() > 0)
      nccl_.comm_abort(comm_);
    else
      nccl_.comm_destroy(comm_);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return ranks_; }
  std::string description() const override { return str("NCCL ", nccl_.version()); }

  std::string fault() const override {
    try {
      check_link();
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  }

  void all_reduce(std::span<const Operand> operands) override {
    each(operands, "all_reduce", [&](const Operand& o, cudaStream_t s) {
      return nccl_.all_reduce(o.in, o.out, count(o), number_of(o.dtype), sum, comm_, s);
    });
  }
  void reduce_scatter(std::span<const Operand> operands) override {
    each(operands, "reduce_scatter", [&](const Operand& o, cudaStream_t s) {
      return nccl_.reduce_scatter(o.in, o.out, count(o), number_of(o.dtype), sum, comm_, s);
    });
  }
  void all_gather(std::span<const Operand> operands) override {
    each(operands, "all_gather", [&](const Operand& o, cudaStream_t s) {
      return nccl_.all_gather(o.in, o.out, count(o), number_of(o.dtype), comm_, s);
    });
  }
  void broadcast(std::span<const Operand> operands) override {
    each(operands, "broadcast", [&](const Operand& o, cudaStream_t s) {
      return nccl_.broadcast(o.in, o.out, count(o), number_of(o.dtype), 0, comm_, s);
    });
  }

 private:
  static size_t count(const Operand& o) { return static_cast<size_t>(o.count); }

  void each(std::span<const Operand> operands, const char* what, const auto& enqueue) {
    check_link();
    const cudaStream_t s = stream_();
    nccl_.check(nccl_.group_start(), what);
    Result worst = success;
    for (const Operand& o : operands) {
      const Result result = enqueue(o, s);
      if (worst == success) worst = result;
    }
    const Result ended = nccl_.group_end();  // in any case: a group that is open is the thread's
    nccl_.check(worst, what);
    nccl_.check(ended, what);
  }

  // What happened to the connection meanwhile.
  void check_link() const {
    Result error = success;
    nccl_.check(nccl_.comm_get_async_error(comm_, &error), "asking for errors");
    nccl_.check(error, "the link");
  }

  const Library& nccl_;
  StreamOf stream_;
  int64_t rank_, ranks_;
  Comm comm_ = nullptr;
};

}  // namespace

void check_own_gpu(RankGroup& group, std::string_view uuid, std::string_view name) {
  const std::vector<std::string> all = group.gather(str(uuid, "\n", name));
  const auto uuid_of = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  for (size_t r = 0; r < all.size(); ++r)
    for (size_t before = 0; before < r; ++before)
      require(uuid_of(all[r]) != uuid_of(all[before]),
              "cuda: each rank needs a GPU of its own (ranks ", before, " and ", r,
              " have the same)  ", all[r].substr(all[r].find('\n') + 1));
}

std::unique_ptr<Communicator> communicator(const Library& library, RankGroup& group,
                                           StreamOf stream) {
  return std::make_unique<NcclCommunicator>(library, group, std::move(stream));
}

}  // namespace ebb::cuda::nccl
