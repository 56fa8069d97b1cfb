// What answers on a connection: of http.cpp alone, which is the one file that is compiled with
// Boost.
#pragma once

#include "apps/server/http_connection.h"

namespace ebb::server {

// Whoever lets go of it last, on whatever thread, it ends on the thread of all connections.
inline std::shared_ptr<Connection> connected(const std::shared_ptr<State>& state,
                                             tcp::socket socket) {
  return {new Connection(state, std::move(socket)), [state](Connection* c) { state->remove(c); }};
}

// Lives on any thread; the connection on its own.
class Stream final : public EventStream {
 public:
  Stream(std::shared_ptr<State> s, std::weak_ptr<Connection> c)
      : state_(std::move(s)), connection_(std::move(c)) {}
  ~Stream() override {
    Stream::close();
    --state_->streams;
  }
  Sent send(std::string text) override { return send(std::move(text), true); }
  Sent send_bytes(std::string bytes) override { return send(std::move(bytes), false); }
  void when_taken(std::function<void()> call) override {
    state_->post([c = connection_, call = std::move(call)]() mutable {
      if (const auto open = c.lock()) open->when_taken(std::move(call));
    });
  }
  Sent close(std::string last = {}) override {
    const auto large = counted(last.size());
    if (!large && last.size() > state_->limits.small_answer) return Sent::refused;
    state_->post([c = connection_, m = Message{std::move(last), true, {}, large}]() mutable {
      if (const auto open = c.lock()) open->end_stream(std::move(m));
    });
    return Sent::yes;
  }

 private:
  Sent send(std::string text, bool is_text) {
    if (connection_.expired()) return Sent::refused;
    const Limits& l = state_->limits;
    const size_t size = text.size();
    // of a message that is not sent they go down again at once
    const auto own = std::make_shared<ByteCount>(unsent_);
    if (const size_t all = own->grow(size); all > size && all > l.stream_bytes) return Sent::behind;
    const auto large = counted(size);
    if (!large) return Sent::refused;
    state_->post([c = connection_, m = Message{std::move(text), is_text, own, large}]() mutable {
      if (const auto open = c.lock()) open->send_event(std::move(m));
    });
    return Sent::yes;
  }
  // Among those of all streams, where it is large; null: it does not fit.
  std::shared_ptr<ByteCount> counted(size_t size) const {
    const Limits& l = state_->limits;
    auto out = std::make_shared<ByteCount>(state_->large_bytes);
    if (size <= l.stream_bytes) return out;
    const size_t all = out->grow(size);
    return all > size && all > l.streams_bytes ? nullptr : out;
  }
  const Bytes unsent_ = no_bytes();
  std::shared_ptr<State> state_;
  std::weak_ptr<Connection> connection_;
};

class Answer final : public Exchange {
 public:
  Answer(std::shared_ptr<State> s, const std::shared_ptr<Connection>& c)
      : state_(std::move(s)), weak_(c), connection_(c) {}
  // Without an answer the peer would wait for ever.
  ~Answer() override {
    if (!done_.exchange(true) && !state_->has_ended())
      send(state_->handler.fault(500, "the request was not answered"));
  }
  void reply(Reply r) override {
    if (!done_.exchange(true)) send(std::move(r));
  }
  std::shared_ptr<EventStream> stream(Headers headers) override {
    return begin([headers = std::move(headers)](Connection& c) { c.begin_stream(headers); });
  }
  std::shared_ptr<EventStream> websocket(const Request& request) override {
    if (!is_upgrade(request)) return nullptr;
    return begin([request](Connection& c) { c.begin_websocket(request); });
  }
  void on_leave(std::function<void()> call) override {
    state_->post([c = weak_, call = std::move(call)]() mutable {
      if (const auto open = c.lock())
        open->set_leave(std::move(call));
      else
        call();
    });
  }

 private:
  std::shared_ptr<EventStream> begin(std::function<void(Connection&)> how) {
    if (state_->streams.fetch_add(1) >= state_->limits.streams) {
      --state_->streams;
      return nullptr;
    }
    if (done_.exchange(true)) {
      --state_->streams;
      return nullptr;
    }
    state_->post([c = connection_, how = std::move(how)] { how(*c); });
    return std::make_shared<Stream>(state_, weak_);
  }
  void send(Reply r) {
    state_->post([c = connection_, r = std::move(r)]() mutable { c->write(std::move(r)); });
  }
  std::shared_ptr<State> state_;
  std::weak_ptr<Connection> weak_;
  std::shared_ptr<Connection> connection_;
  std::atomic<bool> done_ = false;
};

inline void Connection::handle() {
  deadline_.cancel();
  keep_ = parser_->keep_alive();
  request_->body = std::move(parser_->get().body());
  request_->counted = std::exchange(count_, nullptr);
  parser_.reset();
  auto answer = std::make_shared<Answer>(state_, shared_from_this());
  watch();
  state_->handler.handle(std::exchange(request_, nullptr), std::move(answer));
}

}  // namespace ebb::server
