// What answers on a connection: of http.cpp alone, which is the one file that is compiled with
// Boost.
#pragma once

#include "apps/server/http_connection.h"

namespace ebb::server {

// Whoever lets go of it last, on whatever thread, it ends on the thread of all connections.
inline std::shared_ptr<Connection> connected(const std::shared_ptr<State>& state,
                                             tcp::socket socket) {
  return {new Connection(state, std::move(socket)),
          [state](Connection* c) { asio::post(state->io, [c] { delete c; }); }};
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
  bool send(std::string text) override {
    if (connection_.expired()) return false;
    asio::post(state_->io, [c = connection_, text = std::move(text)]() mutable {
      if (const auto open = c.lock()) open->send_event(std::move(text));
    });
    return true;
  }
  void close(std::string last = {}) override {
    asio::post(state_->io, [c = connection_, last = std::move(last)]() mutable {
      if (const auto open = c.lock()) open->end_stream(std::move(last));
    });
  }

 private:
  std::shared_ptr<State> state_;
  std::weak_ptr<Connection> connection_;
};

class Answer final : public Exchange {
 public:
  Answer(std::shared_ptr<State> s, const std::shared_ptr<Connection>& c)
      : state_(std::move(s)), weak_(c), connection_(c) {}
  // Without an answer the peer would wait for ever.
  ~Answer() override {
    if (!done_.exchange(true)) send(state_->handler.fault(500, "the request was not answered"));
  }
  void reply(Reply r) override {
    if (!done_.exchange(true)) send(std::move(r));
  }
  std::shared_ptr<EventStream> stream(Headers headers) override {
    if (state_->streams.fetch_add(1) >= state_->limits.streams) {
      --state_->streams;
      return nullptr;
    }
    if (done_.exchange(true)) {
      --state_->streams;
      return nullptr;
    }
    asio::post(state_->io, [c = connection_, headers = std::move(headers)]() mutable {
      c->begin_stream(std::move(headers));
    });
    auto out = std::make_shared<Stream>(state_, weak_);
    return out;
  }
  void on_leave(std::function<void()> call) override {
    asio::post(state_->io, [c = weak_, call = std::move(call)]() mutable {
      if (const auto open = c.lock())
        open->set_leave(std::move(call));
      else
        call();
    });
  }

 private:
  void send(Reply r) {
    asio::post(state_->io,
               [c = connection_, r = std::move(r)]() mutable { c->write(std::move(r)); });
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
