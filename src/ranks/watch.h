// Finds which rank keeps the others from going on: by what rank 0 hears of each. No clock and no
// socket of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ranks/member.h"

namespace ebb::ranks {

// Seconds.
struct Limits {
  double appear = 120;  // for all ranks to be there
  double beat = 1;      // between two signs of life
  double silence = 15;  // without one
  double join = 120;    // in these phases, while others wait
  double batch = 50;    // or 20 times the longest so far, as for a step
  double step = 60;
  double first_step = 1800;  // of the first two: one compiles, one shows how long steps take
  double gather = 600;       // for the last to come to where the others exchange texts
  double settle = 1;         // between the first sign of an end and the verdict
  double last_writing = 30;  // for rank 0 to finish the file that it writes when another rank fails
};

class Watch {
 public:
  Watch(std::vector<Member> members, const Limits& limits);

  // Times are seconds of the caller's clock, which must not run while the caller does not.
  void heard(int64_t rank, double now) { ranks_[static_cast<size_t>(rank)].heard = now; }
  void progressed(int64_t rank, const Progress& progress, double now);
  void waits_in_gather(int64_t rank, double now);
  void gathered();  // by all
  // Ends: an orderly one, a connection that is closed or sends nonsense, an error of the rank's.
  void left(int64_t rank) { ranks_[static_cast<size_t>(rank)].left = true; }
  void lost(int64_t rank, std::string_view how, double now);
  // "" : the rank says it itself.
  void failed(int64_t rank, std::string_view error, double now);

  // Why all must end now; none: they need not.
  std::optional<std::string> verdict(double now);

 private:
  struct Rank {
    Member member;
    Progress progress;
    double heard = 0;
    double progress_at = 0;  // when it told it
    bool left = false, lost = false;
    std::optional<std::string> error;
    std::optional<double> gathers_since;
  };
  struct End {  // the first one
    size_t rank = 0;
    std::string how;  // "": by an error
    double at = 0;
  };

  std::optional<std::string> end_of(const End& end) const;
  bool all_failed_alike(const std::string& error) const;
  std::optional<std::string> silent(double now) const;
  std::optional<std::string> hanging(double now) const;
  std::optional<std::string> gather_hangs(double now) const;
  double limit_of(Phase phase) const;
  double seconds_in_phase(const Rank& rank, double now) const;
  static bool behind(const Rank& a, const Rank& b);
  std::string place_of(const Rank& rank) const;

  std::vector<Rank> ranks_;
  Limits limits_;
  std::optional<End> end_;
  double free_since_ = 0;  // since when no rank works alone
};

}  // namespace ebb::ranks
