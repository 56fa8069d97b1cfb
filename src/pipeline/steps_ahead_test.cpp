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
  bool on_host() const override { return here; }
  bool fast_in(DType /*dtype*/) const override { return false; }
  int64_t free_memory() const override { return 0; }
  std::shared_ptr<Buffer> allocate(int64_t /*bytes*/) override { return nullptr; }
  void copy(const Tensor& /*from*/, const Tensor& /*to*/) override {}
  void synchronize() override {}
  std::unique_ptr<Event> record_event() override {
    return std::make_unique<Numbered>(events_++, waited);
  }

  bool here = false;
  std::vector<int> waited;

 private:
  int events_ = 0;
};

TEST(StepsAhead, step__tells_of_those_that_were_waited_for) {
  CountingDevice device;
  StepsAhead ahead(device);
  EXPECT_EQ(ahead.step(1), 0);
  EXPECT_EQ(device.waited, std::vector<int>{}) << "the first step may still run";
  EXPECT_EQ(ahead.step(2), 1);
  EXPECT_EQ(ahead.step(3), 2);
  EXPECT_EQ(device.waited, (std::vector<int>{0, 1}));
}

TEST(StepsAhead, step_on_the_host__is_done_when_it_is_told) {
  CountingDevice device;
  device.here = true;
  StepsAhead ahead(device);
  EXPECT_EQ(ahead.step(1), 1);
  EXPECT_EQ(ahead.step(2), 2);
}

}  // namespace
}  // namespace ebb
