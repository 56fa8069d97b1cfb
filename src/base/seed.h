// Seed: of random numbers, as a field: a whole number from 0 to 2^64 - 1. DrawableSeed: one that
// may be left to chance.
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
  // What it must be, for errors.
  virtual std::string_view rule() const { return "a whole number from 0 to 2^64 - 1"; }

 private:
  uint64_t value_;
};

// Reads -1, too, as A1111 does: then one is drawn, of 32 bits. Its text is that number.
class DrawableSeed final : public Seed {
 public:
  using Seed::Seed;
  bool drawn() const { return drawn_; }  // it is to be told: nothing else says it

  void parse(std::string_view text) override;
  std::string_view rule() const override {
    return "a whole number from 0 to 2^64 - 1, or -1 to draw one";
  }

 private:
  bool drawn_ = false;
};

}  // namespace ebb
