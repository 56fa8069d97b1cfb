// The side of a rank that is not 0.
#include <poll.h>

#include "base/error.h"
#include "ranks/control.h"
#include "ranks/leave.h"

namespace ebb::ranks {
namespace {

class Spoke final : public Control {
 public:
  Spoke(Assembly assembly, int64_t rank, const Limits& limits)
      : Control(assembly, rank, limits), hub_(std::move(assembly.connections.front())) {}

 private:
  std::vector<Connection*> connections() override { return {&hub_}; }

  bool turn() override {
    const Progress here = progress();
    const Wishes wishes = take_wishes();
    if (wishes.text) hub_.send(Kind::text, *wishes.text);
    if (wishes.error) {
      error_ = str(*wishes.error, "  on ", member(rank_));
      hub_.send(Kind::failed, *wishes.error);
    }
    if (beat_due()) hub_.send(Kind::beat, body_of(here));
    hub_.flush();
    hear();
    if (wishes.leaving) {
      take_leave(*wishes.leaving);
      return false;
    }
    if (hub_left_ && error_) end_with(*error_);
    if (!hub_left_) look_after_hub(here);
    return true;
  }

  void hear() {
    hub_.receive(most_texts);
    try {
      while (const std::optional<Frame> f = hub_.next(most_texts)) take(*f);
    } catch (const Error&) {
      hub_.close();
    }
  }

  void take(const Frame& f) {
    heard_ = now();
    if (f.kind == Kind::end) leave();
    if (f.kind == Kind::texts) {
      BodyReader in(f.body);
      std::vector<std::string> texts;
      for (size_t r = 0; r < members_.size(); ++r) texts.push_back(in.text());
      in.finish();
      deliver(std::move(texts));
    }
    if (f.kind == Kind::goodbye) {
      hub_left_ = true;
      hub_.end_sending();
      hub_.flush();
      hub_.close();
      no_more_gathers(str("ranks: ", member(0), " has left"));
    }
  }

  // Waits, not for long, until rank 0 has taken the last message.
  void take_leave(Leaving how) {
    hub_.send(how == Leaving::in_order ? Kind::goodbye : Kind::failed);
    hub_.end_sending();
    const auto start = std::chrono::steady_clock::now();
    while (hub_.open() && std::chrono::steady_clock::now() - start <
                              std::chrono::duration<double>(farewell_seconds)) {
      hub_.flush();
      pollfd in{.fd = hub_.descriptor(), .events = POLLIN, .revents = 0};
      constexpr int milliseconds = 50;
      ::poll(&in, 1, milliseconds);
      hub_.receive(most_texts);
      drop_messages();
    }
  }

  void drop_messages() {
    try {
      while (hub_.next(most_texts)) continue;
    } catch (const Error&) {
      hub_.close();
    }
  }

  // Rank 0 watches all others; the next one speaks for it.
  void look_after_hub(const Progress& here) {
    if (!hub_.open() && !closed_at_) closed_at_ = now();
    const bool gone = closed_at_ && now() - *closed_at_ >= limits_.settle;
    const bool silent = !closed_at_ && now() - heard_ > limits_.silence;
    if (!gone && !silent) return;
    if (error_) end_with(*error_);
    if (rank_ != 1) leave();
    hub_.send(Kind::end);  // one that was stopped and goes on finds that all is said
    hub_.flush();
    end_with(str("ranks: ", member(0),
                 gone ? " ended without a word"
                      : " gives no sign of life: it is stopped, or its host or network is gone",
                 " (step ", here.step, ")"));
  }

  [[noreturn]] static void end_with(std::string_view error) {
    say(error);
    leave();
  }

  Connection hub_;
  std::optional<std::string> error_;  // of this rank, with its name
  std::optional<double> closed_at_;
  double heard_ = 0;
  bool hub_left_ = false;
};

}  // namespace

std::unique_ptr<Control> make_spoke(Assembly assembly, int64_t rank, const Limits& limits) {
  return std::make_unique<Spoke>(std::move(assembly), rank, limits);
}

}  // namespace ebb::ranks
