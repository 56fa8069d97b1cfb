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
  Parts of;
  int64_t begin, count, offset;
  // Of the part of rank r: its first element in the operand, and how many there are.
  int64_t first(int64_t r) const { return r * of.part + begin; }
  int64_t length(int64_t r) const {
    return std::clamp<int64_t>(std::min((r + 1) * of.part, of.total) - first(r), 0, count);
  }
  int64_t bytes(int64_t r) const { return length(r) * of.size(); }
  int64_t at(int64_t r) const { return first(r) * of.size(); }
};

int64_t round_up(int64_t v, int64_t multiple) { return (v + multiple - 1) / multiple * multiple; }

// What is exchanged at once: pieces that fit into a slot together. The first `small` of them, of
// `small_bytes` together, are packed and copied as one: to start a copy takes about as long as to
// pack 4 MB and to unpack them.
struct Round {
  std::vector<Piece> pieces;
  size_t small = 0;
  int64_t small_bytes = 0, used = 0;
};

std::vector<Round> rounds_of(std::vector<Parts> operands, int64_t slot_bytes) {
  const auto is_small = [&](const Parts& p) { return 4 * p.part * p.size() < slot_bytes; };
  std::stable_partition(operands.begin(), operands.end(), is_small);
  std::vector<Round> rounds;
  for (const Parts& p : operands)
    for (int64_t begin = 0; begin < p.part;) {
      if (rounds.empty() || rounds.back().used >= slot_bytes) rounds.emplace_back();
      Round& r = rounds.back();
      const int64_t count = std::min(p.part - begin, (slot_bytes - r.used) / p.size());
      r.pieces.push_back({p, begin, count, r.used});
      begin += count;
      r.used += round_up(count * p.size(), alignment);
      if (!is_small(p)) continue;
      r.small = r.pieces.size();
      r.small_bytes = r.used;
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
    const auto part = [&](const Operand& o) {
      return round_up((o.count + ranks_ - 1) / ranks_, alignment / size_of(o.dtype));
    };
    each_round(operands, part, 1, [&](const Round& round) {
      push(round);
      meet(Flag::full);
      sum(round, true);
      meet(Flag::summed);
      pull(round, others());
    });
  }

  void reduce_scatter(std::span<const Operand> operands) override {
    each_round(operands, count_of, ranks_, [&](const Round& round) {
      push(round);
      meet(Flag::full);
      sum(round, false);
    });
  }

  void all_gather(std::span<const Operand> operands) override {
    each_round(operands, count_of, ranks_, [&](const Round& round) {
      offer(round, rank_);
      meet(Flag::full);
      pull(round, others());
    });
  }

  // An operand is the part of rank 0.
  void broadcast(std::span<const Operand> operands) override {
    each_round(operands, count_of, 1, [&](const Round& round) {
      if (rank_ == 0) offer(round, 0);
      meet(Flag::full);
      if (rank_ != 0) pull(round, {0});
    });
  }

 private:
  static int64_t count_of(const Operand& o) { return o.count; }

  // `part`: the elements of a rank's part of an operand. `times`: an operand has so many times its
  // count, on the side with more.
  void each_round(std::span<const Operand> operands, const auto& part, int64_t times,
                  const auto& exchange) {
    std::vector<Parts> all;
    for (const Operand& o : operands)
      all.push_back({static_cast<const std::byte*>(o.in), static_cast<std::byte*>(o.out), part(o),
                     o.count * times, o.dtype});
    // Whether the slots are free is asked where they are filled, and told where they are read: what
    // lies between two collectives hides the way of that flag.
    for (const Round& round : rounds_of(all, link_->slot_bytes())) {
      link_->sync({.wait = Flag::free});
      exchange(round);
      link_->sync({.raise = Flag::free});
    }
  }

  void meet(Flag flag) { link_->sync({.raise = flag, .wait = flag}); }

  // From the next one on: all of them begin with another.
  std::vector<int64_t> others() const {
    std::vector<int64_t> out;
    for (int64_t d = 1; d < ranks_; ++d) out.push_back((rank_ + d) % ranks_);
    return out;
  }

  void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) link_->copy({to, from, bytes});
  }
  static void add(std::vector<Link::Move>& moves, void* to, const void* from, int64_t bytes) {
    if (bytes > 0 && to != from) moves.push_back({to, from, bytes});
  }

  // To every other rank its part, from whose slot it adds it up.
  void push(const Round& round) {
    std::vector<Link::Move> moves;
    for (const int64_t to : others())
      for (size_t i = 0; i < round.small; ++i) {
        const Piece& p = round.pieces[i];
        add(moves, link_->packing(to) + p.offset, p.of.in + p.at(to), p.bytes(to));
      }
    link_->move(moves);
    for (const int64_t to : others()) {
      std::byte* const slot = link_->slot(to, rank_);
      copy(slot, link_->packing(to), round.small_bytes);
      for (size_t i = round.small; i < round.pieces.size(); ++i) {
        const Piece& p = round.pieces[i];
        copy(slot + p.offset, p.of.in + p.at(to), p.bytes(to));
      }
    }
  }

  // This rank's part, into its place in the result, which has `all` parts or this one alone.
  void sum(const Round& round, bool all) {
    std::vector<Link::Sum> sums;
    for (const Piece& p : round.pieces) {
      if (p.length(rank_) == 0) continue;
      std::byte* const out = p.of.out + (all ? p.at(rank_) : p.begin * p.of.size());
      sums.push_back({p.of.dtype, p.of.in + p.at(rank_), p.offset, out, p.length(rank_), all});
    }
    link_->sum(sums);
  }

  // What this rank has alone, as part `part` of the result, for the others to pull.
  void offer(const Round& round, int64_t part) {
    std::vector<Link::Move> moves;
    for (const Piece& p : round.pieces) {
      const std::byte* const own = p.of.in + p.begin * p.of.size();
      add(moves, link_->slot(rank_, rank_) + p.offset, own, p.bytes(part));
      add(moves, p.of.out + p.at(part), own, p.bytes(part));
    }
    link_->move(moves);
  }

  // The parts of ranks `from`, out of their own slots.
  void pull(const Round& round, const std::vector<int64_t>& from) {
    std::vector<Link::Move> moves;
    for (const int64_t r : from) {
      const std::byte* const slot = link_->slot(r, r);
      copy(link_->packing(r), slot, round.small_bytes);
      for (size_t i = 0; i < round.pieces.size(); ++i) {
        const Piece& p = round.pieces[i];
        std::byte* const out = p.of.out + p.at(r);
        if (i < round.small)
          add(moves, out, link_->packing(r) + p.offset, p.bytes(r));
        else
          copy(out, slot + p.offset, p.bytes(r));
      }
    }
    link_->move(moves);
  }

  std::unique_ptr<Link> link_;
  int64_t rank_, ranks_;
};

}  // namespace

std::unique_ptr<Communicator> communicator(std::unique_ptr<Link> link) {
  return std::make_unique<Exchange>(std::move(link));
}

}  // namespace ebb::cuda::peers
