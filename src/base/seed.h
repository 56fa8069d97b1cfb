// Seed: of random numbers, as a field: a whole number from 0 to 2^64 - 1.
#pragma once

#include <cstdint>

#include "base/fields.h"

namespace ebb {

class Seed : public TextValue {
 public:
  Seed(uint64_t value = 0) : value_(value) {}
  operator uint64_t() const { return value_; }

  std::string text() const override;
  void parse(std::string_view text) override;  // throws Error for all else

 private:
  uint64_t value_;
};

}  // namespace ebb
