// Attributes: the values of a function's attributes for a call; and numbers that stand for them, so
// that a call that is made again hands over one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "functions/function.h"

namespace ebb::functions {

struct Attributes {
  std::vector<AttributeValue> values;  // in the order of the function's
  std::vector<uint64_t> words;         // equal where they are

  Attributes() = default;
  explicit Attributes(std::vector<AttributeValue> v);
};

// Some thousands of attributes are kept for the life of the process; of one function, equal ones
// have one number. Threads may call at once.
constexpr int64_t most_numbered = 4096;
// -1: there are as many already. Throws Error for values of other types than the function's.
int64_t number_of(const Function& f, Attributes attributes);
// Throws Error for a number of another function or of none.
const Attributes& attributes_of(const Function& f, int64_t number);

}  // namespace ebb::functions
