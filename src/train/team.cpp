#include "train/team.h"

#include <algorithm>

#include "base/error.h"
#include "base/fields.h"
#include "base/hash.h"
#include "core/host_memory.h"

namespace ebb::train {
namespace {

std::string collectives_of(const Plan& plan) {
  std::string all;
  for (const Step& s : plan.steps())
    if (s.sig.op->collective) all += s.sig.text() + '\n';
  return str(fnv1a(all));
}

}  // namespace

ranks::Fact device_fact(const Device& d) {
  const std::string host = str(d.backend(), d.fast_in(DType::bf16) ? " with fast bf16" : "");
  return {"device", d.on_host() ? host : d.description()};
}

std::string Team::of_rank_0(const std::string& text) const {
  return alone() ? text : group_->gather(text)[0];
}

std::string Team::of_first(const std::string& text) const {
  if (alone()) return text;
  const std::vector<std::string> all = group_->gather(text);
  const auto found = std::ranges::find_if(all, [](const auto& one) { return !one.empty(); });
  return found == all.end() ? "" : *found;
}

std::string Team::of_all(const std::string& text) const {
  if (alone() || text.empty()) return of_first(text);
  return of_first(str("rank ", group_->rank(), ", ", text));
}

bool Team::share_choices(const Context& context) const {
  if (alone() || !context.tuner) return false;
  const std::string own = leads() ? context.tuner->choices_for(*context.device) : "";
  const std::string lines = of_rank_0(own);
  return !leads() && context.tuner->adopt(lines);
}

void Team::check_host_memory(int64_t bytes) const {
  if (alone()) return;
  const int64_t free = free_host_memory();  // before anyone goes on
  const std::vector<std::string> all = group_->gather(str(bytes));
  const std::string& host = group_->member(group_->rank()).host;
  int64_t sum = 0, here = 0;
  for (size_t r = 0; r < all.size(); ++r)
    if (group_->member(static_cast<int64_t>(r)).host == host)
      sum += parse_integer(all[r], "ranks: bytes"), ++here;
  require(sum <= free, "train: the state of training and what is computed on the host must fit ",
          "into the memory of ", host, " (", here, here == 1 ? " rank, " : " ranks, together ",
          sum / 1000000, " MB, ", free / 1000000, " MB are free)");
}

void Team::check_equal(const std::vector<ranks::Fact>& facts) const {
  if (!alone()) ranks::check_equal(*group_, facts);
}

void Team::check_collectives(const std::vector<const Plan*>& plans) const {
  std::vector<ranks::Fact> facts;
  for (const Plan* p : plans) facts.push_back({str("plan ", facts.size()), collectives_of(*p)});
  check_equal(facts);
}

}  // namespace ebb::train
