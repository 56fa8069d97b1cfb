#include "backend/cuda/peers/exchange.h"

#include <algorithm>
#include <vector>

namespace ebb::cuda::peers {
namespace {

using Operand = Communicator::Operand;

// An operand as one part for each rank, of `part` elements; the last of `total` may be shorter.
struct Parts {
  const std::byte* in;
  std::byte* out;
  int64_t part, total;
  DType dtype;
  int64_t size() const { return size_of(dtype); }
};

// Elements `begin` to `begin + count` of every rank's part of an operand, `offset` bytes into
// slots.
struct Piece {
  const Parts* of;
  int64_t begin, count, offset;
  // Of the part of rank r: its first element in the operand, and how many there are.
  int64_t first(int64_t r) const { return r * of->part + begin; }
  int64_t length(int64_t r) const {
    return std::clamp<int64_t>(std::min((r + 1) * of->part, of->total) - first(r), 0, count);
  }
  int64_t bytes(int64_t r) const { return length(r) * of->size(); }
  int64_t at(int64_t r) const { return first(r) * of->size(); }
};

int64_t up(int64_t v, int64_t multiple) { return (v + multiple - 1) / multiple * multiple; }

// What is exchanged at once: pieces that fit into a slot together.
std::vector<std::vector<Piece>> rounds_of(std::span<const Parts> operands, int64_t slot_bytes) {
  std::vector<std::vector<Piece>> rounds;
  int64_t used = slot_bytes;
  for (const Parts& p : operands)
    for (int64_t begin = 0; begin < p.part;) {
      if (used >= slot_bytes) {
        rounds.emplace_back();
        used = 0;
      }
      const int64_t count = std::min(p.part - begin, (slot_bytes - used) / p.size());
      rounds.back().push_back({&p, begin, count, used});
      begin += count;
      used += up(count * p.size(), alignment);
    }
  return rounds;
}

class Exchange final : public Communicator {
 public:
  explicit Exchange(std::unique_ptr<Link> link)
      : link_(std::move(link)), rank_(link_->rank()), ranks_(link_->ranks()) {}

  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return ranks_; }
  std::string description() const override { return link_->description(); }
  bool occupies_device() const override { return false; }

  void all_reduce(std::span<const Operand> operands) override {
    const auto shared = [&](const Operand& o) {
      return up((o.count + ranks_ - 1) / ranks_, alignment / size_of(o.dtype));
    };
    each_round(operands, shared, 1, [&](std::span<const Piece> pieces) {
      push(pieces);
      link_->barrier();
      sum(pieces, true);
      link_->barrier();
      for (int64_t r = 0; r < ranks_; ++r)
        if (r != rank_) pull(pieces, r);
    });
  }

  void reduce_scatter(std::span<const Operand> operands) override {
    each_round(operands, count_of, ranks_, [&](std::span<const Piece> pieces) {
      push(pieces);
      link_->barrier();
      sum(pieces, false);
      link_->barrier();
    });
  }

  void all_gather(std::span<const Operand> operands) override {
    each_round(operands, count_of, ranks_, [&](std::span<const Piece> pieces) {
      link_->barrier();
      offer(pieces, rank_);
      link_->barrier();
      for (int64_t r = 0; r < ranks_; ++r)
        if (r != rank_) pull(pieces, r);
    });
  }

  // An operand is the part of rank 0.
  void broadcast(std::span<const Operand> operands) override {
    each_round(operands, count_of, 1, [&](std::span<const Piece> pieces) {
      link_->barrier();
      if (rank_ == 0) offer(pieces, 0);
      link_->barrier();
      if (rank_ != 0) pull(pieces, 0);
    });
  }

 private:
  static int64_t count_of(const Operand& o) { return o.count; }

  // `whole`: how many times its count an operand has, on the larger side.
  void each_round(std::span<const Operand> operands, const auto& part, int64_t whole,
                  const auto& exchange) {
    std::vector<Parts> all;
    for (const Operand& o : operands)
      all.push_back({static_cast<const std::byte*>(o.in), static_cast<std::byte*>(o.out), part(o),
                     o.count * whole, o.dtype});
    for (const auto& pieces : rounds_of(all, link_->slot_bytes())) exchange(pieces);
  }

  void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0 && to != from) link_->copy(to, from, bytes);
  }

  // What this rank has alone, as part `part` of the result, for the others to pull.
  void offer(std::span<const Piece> pieces, int64_t part) {
    for (const Piece& p : pieces) {
      const std::byte* const own = p.of->in + p.begin * p.of->size();
      copy(link_->slot(rank_, rank_) + p.offset, own, p.bytes(part));
      copy(p.of->out + p.at(part), own, p.bytes(part));
    }
  }

  // To every other rank its part, from whose slot it adds it up.
  void push(std::span<const Piece> pieces) {
    for (int64_t d = 1; d < ranks_; ++d) {
      const int64_t to = (rank_ + d) % ranks_;  // not all to one at once
      for (const Piece& p : pieces)
        copy(link_->slot(to, rank_) + p.offset, p.of->in + p.at(to), p.bytes(to));
    }
  }

  // This rank's part. What is reduced and scattered has no other in its result.
  void sum(std::span<const Piece> pieces, bool kept) {
    std::vector<Link::Sum> sums;
    for (const Piece& p : pieces) {
      if (p.length(rank_) == 0) continue;
      std::byte* const out = p.of->out + (kept ? p.at(rank_) : p.begin * p.of->size());
      sums.push_back({p.of->dtype, p.of->in + p.at(rank_), p.offset, out, p.length(rank_), kept});
    }
    link_->sum(sums);
  }

  void pull(std::span<const Piece> pieces, int64_t from) {
    for (const Piece& p : pieces)
      copy(p.of->out + p.at(from), link_->slot(from, from) + p.offset, p.bytes(from));
  }

  std::unique_ptr<Link> link_;
  int64_t rank_, ranks_;
};

}  // namespace

std::unique_ptr<Communicator> communicator(std::unique_ptr<Link> link) {
  return std::make_unique<Exchange>(std::move(link));
}

}  // namespace ebb::cuda::peers
