// The one file that is compiled with Boost.
#include "apps/server/http.h"

#include <exception>

#include "apps/server/http_answer.h"
#include "apps/server/log.h"

namespace ebb::server {

void HttpServer::State::listen(const std::string& address, uint16_t port) {
  ErrorCode e;
  const auto ip = asio::ip::make_address(address, e);
  require(!e, "serve: --host must be an address, as 127.0.0.1 or ::1 (got '", address, "')");
  const tcp::endpoint at(ip, port);
  auto listener = std::make_shared<Listener>(io);
  tcp::acceptor& acceptor = listener->acceptor;
  acceptor.open(at.protocol(), e);
  if (!e) acceptor.set_option(tcp::acceptor::reuse_address(true), e);
  if (!e && ip.is_v6()) acceptor.set_option(asio::ip::v6_only(true), e);
  if (!e) acceptor.bind(at, e);
  if (!e) acceptor.listen(asio::socket_base::max_listen_connections, e);
  require(!e, "serve: cannot listen at ", address, " port ", port, " (", e.message(), ")",
          e == asio::error::address_in_use ? "; --port names another" : "");
  listeners.push_back(std::move(listener));
}

void HttpServer::State::accept(const std::shared_ptr<Listener>& from) {
  from->acceptor.async_accept([self = shared_from_this(), from](ErrorCode e, tcp::socket socket) {
    if (self->finishing || e == asio::error::operation_aborted) return;
    if (e) {  // no descriptors are left: some are closed in a while
      from->again.expires_after(std::chrono::milliseconds(100));
      from->again.async_wait([self, from](ErrorCode) {
        if (!self->finishing) self->accept(from);
      });
      return;
    }
    try {
      if (!self->is_full(socket)) connected(self, std::move(socket))->start();
    } catch (const std::exception& failed) {  // the next one may have more memory
      log_fault("a connection failed", failed);
    }
    self->accept(from);
  });
}

void HttpServer::State::stop_listening() {
  ErrorCode ignored;
  for (const auto& l : listeners) l->acceptor.close(ignored), l->again.cancel();
}

// Or the peer has gone.
bool HttpServer::State::is_full(const tcp::socket& of) const {
  ErrorCode gone;
  const auto peer = of.remote_endpoint(gone);
  if (gone || connections.size() >= limits.connections) return true;
  const auto own = of_address.find(peer.address().to_string());
  return own != of_address.end() && own->second.connections >= limits.connections_of_address;
}

Bytes HttpServer::State::joined(Connection* c, const std::string& address) {
  connections.insert(c);
  OfAddress& of = of_address[address];
  ++of.connections;
  return of.answers;
}

void HttpServer::State::left(Connection* c, const std::string& address) {
  connections.erase(c);
  if (--of_address[address].connections == 0) of_address.erase(address);
  check_finished();
}

void HttpServer::State::finish(std::chrono::milliseconds time) {
  if (std::exchange(finishing, true)) return;
  stop_listening();
  for (const auto& c : open()) c->close_idle();
  last.expires_after(time);
  last.async_wait([self = shared_from_this()](ErrorCode e) {
    if (!e) self->io.stop();
  });
  check_finished();
}

void HttpServer::State::close_all() {
  for (const auto& c : open()) c->close();
}

std::vector<std::shared_ptr<Connection>> HttpServer::State::open() const {
  std::vector<std::shared_ptr<Connection>> out;
  for (Connection* c : connections)
    if (auto held = c->weak_from_this().lock()) out.push_back(std::move(held));
  return out;
}

void HttpServer::State::remove(Connection* c) {
  const std::lock_guard lock(ending_);
  if (has_ended_)
    delete c;
  else
    asio::post(io, [c] { delete c; });
}

// What came before it is called still.
void HttpServer::State::end() {
  io.restart();
  io.poll();
  {
    const std::lock_guard lock(ending_);
    has_ended_ = true;
  }
  io.restart();
  io.poll();
}

HttpServer::HttpServer(const std::vector<std::string>& addresses, uint16_t port,
                       const Limits& limits, HttpHandler handler)
    : state_(std::make_shared<State>(limits, std::move(handler))) {
  for (const std::string& a : addresses) {
    try {
      state_->listen(a, port);
    } catch (const Error&) {
      if (state_->listeners.empty()) throw;
    }
    if (port == 0) port = this->port();
  }
  for (const auto& l : state_->listeners) state_->accept(l);
}

// What waits in the queue of calls refers to the state, which has the queue.
HttpServer::~HttpServer() {
  state_->finishing = true;
  state_->stop_listening();
  state_->close_all();
  state_->last.cancel();
  state_->end();
}

uint16_t HttpServer::port() const {
  return state_->listeners.at(0)->acceptor.local_endpoint().port();
}

void HttpServer::run() {
  while (!state_->io.stopped()) {
    try {
      state_->io.run();
    } catch (const std::exception& e) {  // of one connection, as where memory is short
      log_fault("a connection failed", e);
    }
  }
  state_->close_all();  // the peers of what is cut off are told at once
}

void HttpServer::finish(std::chrono::milliseconds time) {
  state_->post([s = state_, time] { s->finish(time); });
}

void HttpServer::post(std::function<void()> call) { state_->post(std::move(call)); }

}  // namespace ebb::server
