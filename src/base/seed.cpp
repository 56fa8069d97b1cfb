#include "base/seed.h"

#include <charconv>
#include <random>

#include "base/error.h"

namespace ebb {

std::string Seed::text() const { return std::to_string(value_); }

void Seed::parse(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  require(error == std::errc() && at == end && !text.empty(), "seed: expected ", rule(), " (got '",
          text, "')");
  value_ = value;
}

void DrawableSeed::parse(std::string_view text) {
  const bool draws = text == "-1";
  Seed::parse(draws ? std::to_string(std::random_device{}()) : text);
  drawn_ = draws;
}

}  // namespace ebb
