#include "ranks/watch.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ebb::ranks {
namespace {

constexpr double times_the_longest = 20;

int64_t whole(double seconds) { return std::llround(seconds); }

bool limited(Phase p) { return p == Phase::join || p == Phase::batch || p == Phase::step; }

}  // namespace

Watch::Watch(std::vector<Member> members, const Limits& limits) : limits_(limits) {
  for (Member& m : members) ranks_.push_back({.member = std::move(m)});
}

void Watch::progressed(int64_t rank, const Progress& progress, double now) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.progress = progress;
  r.heard = r.progress_at = now;
}

void Watch::waits_in_gather(int64_t rank, double now) {
  ranks_[static_cast<size_t>(rank)].gathers_since = now;
}

void Watch::gathered() {
  for (Rank& r : ranks_) r.gathers_since.reset();
}

void Watch::lost(int64_t rank, std::string_view how, double now) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  if (r.left || r.lost || r.error) return;
  r.lost = true;
  if (!end_) end_ = {static_cast<size_t>(rank), std::string(how), now};
}

void Watch::failed(int64_t rank, std::string_view error, double now) {
  ranks_[static_cast<size_t>(rank)].error = error;
  if (!end_) end_ = {static_cast<size_t>(rank), "", now};
}

std::optional<std::string> Watch::verdict(double now) {
  if (std::ranges::any_of(
          ranks_, [](const Rank& r) { return !r.left && r.progress.phase == Phase::alone; }))
    free_since_ = now;
  if (end_) {
    const bool alike = end_->how.empty() && all_failed_alike(*ranks_[end_->rank].error);
    if (alike || now - end_->at >= limits_.settle) return end_of(*end_);
    return {};
  }
  for (const auto& found : {silent(now), gather_hangs(now), hanging(now)})
    if (found) return found;
  return {};
}

bool Watch::all_failed_alike(const std::string& error) const {
  return std::ranges::all_of(ranks_, [&](const Rank& r) { return r.left || r.error == error; });
}

// Where a rank was when something came over it. It was last heard of a moment before; rank 0 may
// have gone on since, and no further than the rank has.
std::string Watch::place_of(const Rank& r) const {
  const int64_t step = ranks_[0].progress.step;
  if (!r.left && r.progress.step < step) return str("step ", step);
  switch (r.progress.phase) {
    case Phase::start: return "before the first step";
    case Phase::join: return "joining the link";
    case Phase::batch: return str("step ", r.progress.step, ", preparing its batch");
    case Phase::step: return str("step ", r.progress.step);
    case Phase::alone: return str("step ", r.progress.step, ", writing");
  }
  return "";
}

std::optional<std::string> Watch::end_of(const End& end) const {
  const Rank& r = ranks_[end.rank];
  if (!end.how.empty()) return str("ranks: ", r.member, " ", end.how, " (", place_of(r), ")");
  if (r.error->empty())
    return str("ranks: ", r.member, " ends by an error, which it says itself (", place_of(r), ")");
  if (ranks_.size() > 1 && all_failed_alike(*r.error)) return r.error;
  return str(*r.error, "  on ", r.member);
}

std::optional<std::string> Watch::silent(double now) const {
  for (const Rank& r : ranks_)
    if (!r.left && now - r.heard > limits_.silence)
      return str("ranks: ", r.member, " gives no sign of life for ", whole(now - r.heard),
                 " s: it is stopped, or its host or network is gone (", place_of(r), ")");
  return {};
}

std::optional<std::string> Watch::gather_hangs(double now) const {
  double since = now;
  for (const Rank& r : ranks_) since = std::min(since, r.gathers_since.value_or(now));
  if (std::ranges::none_of(ranks_, [](const Rank& r) { return r.gathers_since.has_value(); }))
    return {};
  const double waited = now - std::max(since, free_since_);
  for (const Rank& r : ranks_) {
    if (r.gathers_since) continue;
    if (r.left)
      return str("ranks: ", r.member, " has left, and others wait for it (", place_of(r), ")");
    if (waited > limits_.gather)
      return str("ranks: ", r.member, " does not come to where the others wait for ", whole(waited),
                 " s (", place_of(r), ")");
  }
  return {};
}

// Of one that left, since the others could notice.
double Watch::seconds_in_phase(const Rank& r, double now) const {
  return std::min(r.progress.seconds + (now - r.progress_at), now - free_since_);
}

double Watch::limit_of(Phase phase) const {
  double longest = 0;
  for (const Rank& r : ranks_)
    longest = std::max(longest, r.progress.longest[static_cast<size_t>(phase)]);
  const double usual = times_the_longest * longest;
  if (phase == Phase::join) return limits_.join;
  if (phase == Phase::batch) return std::max(limits_.batch, usual);
  return longest > 0 ? std::max(limits_.step, usual) : limits_.first_step;
}

bool Watch::behind(const Rank& a, const Rank& b) {
  if (a.left != b.left) return a.left;
  if (a.progress.step != b.progress.step) return a.progress.step < b.progress.step;
  return a.progress.phase < b.progress.phase;
}

// Of ranks that wait for each other, the one that is behind all others is to blame.
std::optional<std::string> Watch::hanging(double now) const {
  const auto last = std::ranges::min_element(ranks_, behind);
  const bool all_alike =
      std::ranges::none_of(ranks_, [&](const Rank& r) { return behind(*last, r); });
  for (const Rank& r : ranks_) {
    const Phase phase = r.progress.phase;
    if (r.left || !limited(phase)) continue;
    const double seconds = seconds_in_phase(r, now);
    const bool starts = !last->left && last->progress.phase == Phase::start;  // it may compile
    const double limit = starts ? std::max(limits_.gather, limit_of(phase)) : limit_of(phase);
    if (seconds <= limit || (phase == Phase::batch && all_alike)) continue;
    const std::string numbers = str(whole(seconds), " s, limit ", whole(limit), " s");
    if (all_alike)
      return str("ranks: none of the ", ranks_.size(), " ranks gets on (", place_of(r), ", for ",
                 numbers, ")");
    if (last->left)
      return str("ranks: ", last->member, " has left, and others wait for it (", place_of(r),
                 ", for ", numbers, ")");
    return str("ranks: ", last->member, " keeps the others waiting (", place_of(*last), "; for ",
               numbers, ")");
  }
  return {};
}

}  // namespace ebb::ranks
