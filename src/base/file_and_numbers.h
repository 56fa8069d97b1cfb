// Texts as flags have them: a file with numbers behind it, parted by colons, "FILE:0.8:0.5".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ebb {

struct FileAndNumbers {
  std::string file;
  std::vector<double> numbers;  // in the order of the text

  double number(size_t i, double otherwise) const {
    return i < numbers.size() ? numbers[i] : otherwise;
  }
};
// At most `most` numbers are read, from the end: what is no number belongs to the name, which may
// have colons of its own. `who` and `noun` ("lora", "strength") are for errors: throws Error for a
// number that is not finite, and where a file is there but for what stands behind its last colon.
FileAndNumbers file_and_numbers(const std::string& text, size_t most, std::string_view who,
                                std::string_view noun);

}  // namespace ebb
