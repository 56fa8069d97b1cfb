// What the connections of a server share: of http.cpp alone, which is the one file that is compiled
// with Boost.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "apps/server/http.h"

namespace ebb::server {

namespace asio = boost::asio;
using asio::ip::tcp;

class Connection;

using Bytes = std::shared_ptr<std::atomic<size_t>>;
inline Bytes no_bytes() { return std::make_shared<std::atomic<size_t>>(0); }

// Bytes of something among those of all, until the last who holds it lets go, on any thread.
class ByteCount {
 public:
  explicit ByteCount(Bytes all) : all_(std::move(all)) {}
  ~ByteCount() { *all_ -= bytes_; }
  ByteCount(const ByteCount&) = delete;
  ByteCount& operator=(const ByteCount&) = delete;
  size_t bytes() const { return bytes_; }
  // Of all, with these.
  size_t grow(size_t bytes) {
    const size_t more = bytes - std::exchange(bytes_, bytes);
    return all_->fetch_add(more) + more;
  }

 private:
  Bytes all_;
  size_t bytes_ = 0;
};

struct OfAddress {
  size_t connections = 0;
  Bytes answers = no_bytes();  // that wait
};

// Where the server listens. Where no descriptors are left it tries again in a while.
struct Listener {
  explicit Listener(asio::io_context& io) : acceptor(io), again(io) {}
  tcp::acceptor acceptor;
  asio::steady_timer again;
};

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  State(const Limits& l, HttpHandler h) : limits(l), handler(std::move(h)) {}

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  Limits limits;
  HttpHandler handler;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::set<Connection*> connections;
  std::map<std::string, OfAddress> of_address;
  std::atomic<size_t> streams = 0;
  const Bytes body_bytes = no_bytes(), large_bytes = no_bytes(), answer_bytes = no_bytes();
  bool finishing = false;
  asio::steady_timer last{io};

  // Calls it on the thread of all connections. Behind the server's end, when there is none, it is
  // dropped: what it holds would otherwise keep its own queue, and so itself, for ever.
  template <typename Call>
  void post(Call&& call) {
    const std::lock_guard lock(ending_);
    if (!has_ended_) asio::post(io, std::forward<Call>(call));
  }
  // The same, but without a thread it is done at once.
  void remove(Connection* c);
  void end();
  bool has_ended() {
    const std::lock_guard lock(ending_);
    return has_ended_;
  }

  void listen(const std::string& address, uint16_t port);
  void accept(const std::shared_ptr<Listener>& from);
  bool is_full(const tcp::socket& of) const;
  void stop_listening();
  Bytes joined(Connection* c, const std::string& address);
  void left(Connection* c, const std::string& address);
  void finish(std::chrono::milliseconds time);
  void close_all();
  std::vector<std::shared_ptr<Connection>> open() const;  // but for those that are about to end
  void check_finished() {
    if (finishing && connections.empty()) guard.reset(), last.cancel();
  }

 private:
  std::recursive_mutex ending_;  // removing one may end streams, which post
  bool has_ended_ = false;
};

using State = HttpServer::State;

}  // namespace ebb::server
