// Whether all ranks want the same: their versions, settings, data.
#pragma once

#include <string>
#include <vector>

#include "core/communicator.h"

namespace ebb::ranks {

// A fact about a run. Of a JSON object, each of its fields is one, as "train.lr".
struct Fact {
  std::string name, value;
};

// All ranks call it. Throws the same Error on all of them where a value differs: it names the first
// such, its values and the ranks that have them, and what else differs.
void check_equal(RankGroup& group, const std::vector<Fact>& facts);

// "0-2, 5"
std::string ranks_text(const std::vector<int64_t>& ranks);

}  // namespace ebb::ranks
