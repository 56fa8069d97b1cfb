// Rank 0's side of the group.
#include <poll.h>

#include <algorithm>

#include "base/error.h"
#include "ranks/control.h"
#include "ranks/leave.h"

namespace ebb::ranks {
namespace {

class Hub final : public Control {
 public:
  Hub(Assembly assembly, const Limits& limits)
      : Control(assembly, 0, limits),
        watch_(assembly.members, limits),
        connections_(std::move(assembly.connections)),
        texts_(connections_.size()) {}

 private:
  std::vector<Connection*> connections() override {
    std::vector<Connection*> out;
    for (Connection& c : connections_) out.push_back(&c);
    return out;
  }

  bool turn() override {
    watch_.progressed(0, progress(), now());
    const Wishes wishes = take_wishes();
    if (wishes.text) take_text(0, *wishes.text);
    if (wishes.error) watch_.failed(0, *wishes.error, now());
    for (size_t r = 1; r < connections_.size(); ++r) hear(static_cast<int64_t>(r));
    if (wishes.leaving) {
      send_last(*wishes.leaving == Leaving::in_order ? Kind::goodbye : Kind::end);
      return false;
    }
    pass_texts();
    if (beat_due()) send_all(Kind::beat);
    flush_all();
    if (const std::optional<std::string> why = watch_.verdict(now())) end_all(*why);
    return true;
  }

  void hear(int64_t rank) {
    Connection& c = connections_[static_cast<size_t>(rank)];
    if (!c.open()) return;
    try {
      c.receive(most_text);
      while (const std::optional<Frame> f = c.next(most_text)) take(rank, *f);
    } catch (const Error&) {
      c.close();
      watch_.lost(rank, "sent what is no message", now());
    }
    if (!c.open()) watch_.lost(rank, "ended without a word", now());
  }

  void take(int64_t rank, const Frame& f) {
    watch_.heard(rank, now());
    if (f.kind == Kind::beat) watch_.progressed(rank, progress_of(f.body), now());
    if (f.kind == Kind::text) take_text(rank, f.body);
    if (f.kind == Kind::failed) watch_.failed(rank, f.body, now());
    if (f.kind == Kind::goodbye) watch_.left(rank);
    if (f.kind == Kind::end) leave();
  }

  void take_text(int64_t rank, std::string text) {
    auto& place = texts_[static_cast<size_t>(rank)];
    require(!place, "ranks: a text too many");
    place = std::move(text);
    ++texts_there_;
    watch_.waits_in_gather(rank, now());
  }

  // When the texts of all are there.
  void pass_texts() {
    if (texts_there_ < texts_.size()) return;
    BodyWriter all;
    std::vector<std::string> own;
    for (auto& t : texts_) {
      all.text(*t);
      own.push_back(std::move(*t));
      t.reset();
    }
    texts_there_ = 0;
    watch_.gathered();
    if (all.body().size() > most_texts)
      end_all(str("ranks: the texts of all must have at most ", most_texts, " bytes (",
                  all.body().size(), ")"));
    send_all(Kind::texts, all.body());
    deliver(std::move(own));
  }

  void send_all(Kind kind, std::string_view body = {}) {
    for (Connection& c : connections_) c.send(kind, body);
  }
  void flush_all() {
    for (Connection& c : connections_) c.flush();
  }

  // Sends the last message and waits, not for long, until all have taken it: what is closed with
  // something unread in it may lose what was sent.
  void send_last(Kind kind) {
    send_all(kind);
    for (Connection& c : connections_) c.end_sending();
    const auto start = std::chrono::steady_clock::now();
    const auto any_open = [&] {
      for (Connection& c : connections_) {
        c.flush();
        c.receive(most_text);
        try {
          while (c.next(most_text)) continue;
        } catch (const Error&) {
          c.close();
        }
      }
      return std::ranges::any_of(connections_, &Connection::open);
    };
    while (any_open() && std::chrono::steady_clock::now() - start <
                             std::chrono::duration<double>(farewell_seconds)) {
      std::vector<pollfd> all;
      for (const Connection& c : connections_)
        all.push_back({.fd = c.descriptor(), .events = POLLIN, .revents = 0});
      constexpr int milliseconds = 50;
      ::poll(all.data(), all.size(), milliseconds);
    }
  }

  [[noreturn]] void end_all(const std::string& why) {
    say(why);
    send_last(Kind::end);
    end_process();
  }

  Watch watch_;
  std::vector<Connection> connections_;            // by rank; none at 0
  std::vector<std::optional<std::string>> texts_;  // of the gather, by rank
  size_t texts_there_ = 0;
};

}  // namespace

std::unique_ptr<Control> make_hub(Assembly assembly, const Limits& limits) {
  return std::make_unique<Hub>(std::move(assembly), limits);
}

}  // namespace ebb::ranks
