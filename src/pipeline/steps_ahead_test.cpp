#include "pipeline/steps_ahead.h"

#include <gtest/gtest.h>

#include <vector>

namespace ebb {
namespace {

// Counts its events, and lists those that the host waited for.
class CountingDevice final : public Device {
 public:
  class Numbered final : public Event {
   public:
    Numbered(int number, std::vector<int>& waited) : number_(number), waited_(waited) {}
    double seconds_since(const Event& /*earlier*/) const override {
      waited_.push_back(number_);
      return 0;
    }

   private:
    int number_;
    std::vector<int>& waited_;
  };

  std::string_view backend() const override { return "cpu"; }
  std::string description() const override { return "counts events"; }
  bool fast_in(DType /*dtype*/) const override { return false; }
  int64_t free_memory() const override { return 0; }
  std::shared_ptr<Buffer> allocate(int64_t /*bytes*/) override { return nullptr; }
  void copy(const Tensor& /*from*/, const Tensor& /*to*/) override {}
  void synchronize() override {}
  std::unique_ptr<Event> record_event() override {
    return std::make_unique<Numbered>(events_++, waited);
  }

  std::vector<int> waited;

 private:
  int events_ = 0;
};

TEST(StepsAhead, step__waits_for_the_one_before_it) {
  CountingDevice device;
  StepsAhead ahead(device);
  ahead.step();
  EXPECT_EQ(device.waited, std::vector<int>{}) << "the first step may still run";
  ahead.step();
  ahead.step();
  EXPECT_EQ(device.waited, (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace ebb
