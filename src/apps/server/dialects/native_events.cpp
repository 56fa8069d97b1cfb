// The native protocol: events, and the state that they go on from. docs/server.md describes it.
#include <algorithm>
#include <charconv>

#include "apps/server/fault.h"
#include "apps/server/service.h"
#include "base/names.h"
#include "base/parse_json.h"

namespace ebb::server::dialects {
namespace {

Json state_json(Service& s) {
  const int64_t seq = s.queue().last_event();  // before: what follows is told again
  const auto running = s.queue().running();
  const auto [name, ready] = s.model();
  return {{"seq", seq},
          {"running", running ? Json(running->job->id) : Json()},
          {"model",
           {{"name", name},
            {"state", name.empty() ? "none"
                      : ready      ? "ready"
                                   : "loading"}}},
          {"jobs", jobs_json(s.queue().all())}};
}

std::string numbered_text(const Event& e) {
  return str("id: ", e.number, '\n', event_text(e.name, e.text));
}

bool is_state(const std::shared_ptr<const Event>& e) { return e->name == "state"; }

// What a client reads. It gets events as they come; one that is behind gets none, but, once it has
// taken what waits, those that it missed, or the state where they are forgotten.
class Feed : public std::enable_shared_from_this<Feed> {
 public:
  Feed(Service& s, std::shared_ptr<EventStream> to, std::optional<int64_t> seen)
      : service_(s), to_(std::move(to)), seen_(seen) {}

  // It lives as long as the client reads.
  void start(const Call& c) {
    subscription_ = service_.queue().subscribe([weak = weak_from_this()](const Event& e, auto&) {
      if (const auto self = weak.lock()) self->add(e);
    });
    catch_up();
    c.exchange->on_leave([self = shared_from_this()] {});
  }

 private:
  // Under the queue's lock: asks it for nothing. Where memory is short, what was not sent is behind
  // the next event.
  void add(const Event& e) {
    const std::lock_guard lock(mutex_);
    newest_ = e.number;
    if (is_behind_ && !fails_ && e.name != "bye") return;
    const bool missed = std::exchange(fails_, true);
    if (e.name == "bye" || (e.name != "state" && !missed)) {
      send(e);
    } else {  // catch_up() sends what was missed, or the state where its order changed
      if (e.name == "state") seen_.reset();
      is_behind_ = true;
      later();
    }
    fails_ = false;
  }

  // Under the lock. False: no more is to be sent now.
  bool send(const Event& e) {
    if (e.name == "bye") return end(numbered_text(e));
    const Sent sent = to_->send(numbered_text(e));
    if (sent == Sent::refused) return end(error_text());
    is_behind_ |= sent == Sent::behind;
    if (sent == Sent::behind)
      to_->when_taken([self = shared_from_this()] { self->later(); });
    else
      seen_ = e.number;
    return sent == Sent::yes;
  }
  bool end(std::string last) {
    is_behind_ = true;
    to_->close(std::move(last));
    return false;
  }
  static std::string error_text() {
    const HttpFault why(503, "too_much_waits",
                        "too much waits for the clients that read events; come again in a while");
    return event_text("error", render_fault(why, {}).body);
  }

  void later() {
    service_.codec().add([self = shared_from_this()] { self->catch_up(); });
  }
  void catch_up() {
    bool goes_on = true;
    while (goes_on) {
      const auto seen = this->seen();
      auto missed = seen ? service_.queue().events_since(*seen) : std::nullopt;
      if (!missed || std::ranges::any_of(*missed, is_state)) missed = {snapshot()};
      goes_on = take(*missed);
    }
  }
  std::shared_ptr<const Event> snapshot() const {
    Json state = state_json(service_);
    const auto number = state["seq"].get<int64_t>();
    std::string text = json_text(state);
    return std::make_shared<const Event>(Event{number, "state", std::move(text)});
  }
  // Whether others have come meanwhile.
  bool take(const Events& missed) {
    const std::lock_guard lock(mutex_);
    for (const auto& e : missed)
      if (!send(*e)) return false;
    return is_behind_ = newest_ > seen_;
  }
  std::optional<int64_t> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

  Service& service_;
  std::shared_ptr<EventStream> to_;
  mutable std::mutex mutex_;
  std::optional<int64_t> seen_;  // the last one that was sent; none: the state is to come
  int64_t newest_ = 0;
  bool is_behind_ = true, fails_ = false;
  std::shared_ptr<const void> subscription_;
};

std::optional<int64_t> number_in(std::string_view text) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return out;
}

void events(const Call& c) {
  auto stream = c.exchange->stream(c.told());
  if (!stream) throw HttpFault(503, "too_many_streams", "too many clients read events");
  std::make_shared<Feed>(c.service, std::move(stream),
                         number_in(c.request->header("last-event-id")))
      ->start(c);
}

void state(const Call& c) {
  Json out = state_json(c.service);
  const std::string_view since = c.request->parameter("since");
  c.service.look();
  if (since.empty()) return c.reply(out);
  const auto number = number_in(since);
  if (!number) fail_field("since", "must be a whole number (got '", printable(since), "')");
  out["events"] = nullptr;
  if (const auto missed = c.service.queue().events_since(*number)) {
    out["events"] = Json::array();
    for (const auto& e : *missed)
      out["events"].push_back(
          {{"id", e->number}, {"event", e->name}, {"data", parse_json<Json>(e->text)}});
  }
  c.reply(out);
}

std::vector<Route> routes() {
  return {{"GET", "/ebb/v1/events", events}, {"GET", "/ebb/v1/state", state}};
}

}  // namespace

const Dialect& native_events() {
  static const Dialect d{"native_events", routes, render_fault};
  return d;
}

}  // namespace ebb::server::dialects
