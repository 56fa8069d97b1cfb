// Ranks that are threads of one process: for tests of what several ranks compute, without MPI.
#pragma once

#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/communicator.h"
#include "core/tensor.h"

namespace ebb::testing {

class ThreadRanks {
 public:
  explicit ThreadRanks(int64_t ranks)
      : size_(ranks), barrier_(ranks), texts_(index(ranks)), operands_(index(ranks)) {}

  // One rank: messages and sums in the order of ranks.
  class Member final : public RankGroup, public Communicator {
   public:
    Member(ThreadRanks& all, int64_t rank) : all_(all), rank_(rank) {}
    int64_t rank() const override { return rank_; }
    int64_t ranks() const override { return all_.size_; }
    int64_t local_rank() const override { return rank_; }
    std::string description() const override { return "threads"; }
    std::vector<std::string> gather(std::string_view own) override {
      all_.texts_[index(rank_)] = own;
      all_.barrier_.arrive_and_wait();
      std::vector<std::string> out = all_.texts_;
      all_.barrier_.arrive_and_wait();
      return out;
    }
    void all_reduce(std::span<const Operand> operands) override {
      exchange(operands, [&](const Operand& o, size_t k) { return sum(k, 0, o.count, o.dtype); });
    }
    void reduce_scatter(std::span<const Operand> operands) override {
      exchange(operands, [&](const Operand& o, size_t k) {
        return sum(k, rank_ * o.count, o.count, o.dtype);
      });
    }
    void all_gather(std::span<const Operand> operands) override {
      exchange(operands, [&](const Operand& o, size_t k) {
        std::vector<std::byte> out;
        for (const auto& of : all_.operands_) append(out, of[k].in, o.count, o.dtype);
        return out;
      });
    }
    void broadcast(std::span<const Operand> operands) override {
      exchange(operands, [&](const Operand& o, size_t k) {
        std::vector<std::byte> out;
        append(out, all_.operands_[0][k].in, o.count, o.dtype);
        return out;
      });
    }
    int64_t calls() const { return calls_; }

   private:
    // All ranks read before any writes.
    void exchange(std::span<const Operand> operands,
                  const std::function<std::vector<std::byte>(const Operand&, size_t)>& result) {
      ++calls_;
      all_.operands_[index(rank_)].assign(operands.begin(), operands.end());
      all_.barrier_.arrive_and_wait();
      std::vector<std::vector<std::byte>> results;
      for (size_t k = 0; k < operands.size(); ++k) {
        for (const auto& of : all_.operands_)
          require(of.size() == operands.size() && of[k].count == operands[k].count &&
                      of[k].dtype == operands[k].dtype,
                  "ranks: collectives differ (operand ", k, ")");
        results.push_back(result(operands[k], k));
      }
      all_.barrier_.arrive_and_wait();
      for (size_t k = 0; k < operands.size(); ++k)
        std::memcpy(operands[k].out, results[k].data(), results[k].size());
      all_.barrier_.arrive_and_wait();
    }
    static void append(std::vector<std::byte>& to, const void* from, int64_t count, DType dtype) {
      const auto* bytes = static_cast<const std::byte*>(from);
      to.insert(to.end(), bytes, bytes + count * size_of(dtype));
    }
    std::vector<std::byte> sum(size_t k, int64_t first, int64_t count, DType dtype) {
      const auto of = [&](int64_t rank) {
        Tensor t(dtype, {count});
        const auto* in = static_cast<const std::byte*>(all_.operands_[index(rank)][k].in);
        std::memcpy(t.raw(), in + first * size_of(dtype), static_cast<size_t>(t.bytes()));
        return t.to(DType::f32);
      };
      const Tensor total = of(0).clone();
      for (int64_t r = 1; r < all_.size_; ++r) {
        const Tensor t = of(r);
        for (size_t i = 0; i < index(count); ++i) total.span<float>()[i] += t.span<float>()[i];
      }
      const Tensor rounded = total.to(dtype);
      const auto* bytes = static_cast<const std::byte*>(rounded.raw());
      return {bytes, bytes + rounded.bytes()};
    }

    ThreadRanks& all_;
    int64_t rank_, calls_ = 0;
  };

  // Runs `work` on every rank and waits. Throws what the first rank that fails threw, if all do;
  // ranks must fail together.
  void run(const std::function<void(const std::shared_ptr<Member>&)>& work) {
    std::vector<std::exception_ptr> errors(index(size_));
    {
      std::vector<std::jthread> threads;
      for (int64_t r = 0; r < size_; ++r)
        threads.emplace_back([&, r] {
          try {
            work(std::make_shared<Member>(*this, r));
          } catch (...) {
            errors[index(r)] = std::current_exception();
            barrier_.arrive_and_drop();  // the others need not wait for it
          }
        });
    }
    for (const std::exception_ptr& e : errors)
      if (e) std::rethrow_exception(e);
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  int64_t size_;
  std::barrier<> barrier_;
  std::vector<std::string> texts_;
  std::vector<std::vector<Communicator::Operand>> operands_;
};

}  // namespace ebb::testing
