// WebFrames: the messages of a WebSocket (RFC 6455) on a connection's socket: of
// http_connection.h alone.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <boost/beast/websocket/stream.hpp>

#include "apps/server/http.h"

namespace ebb::server {

using Upgrade = boost::beast::http::request<boost::beast::http::empty_body>;

inline Upgrade upgrade_of(const Request& r) {
  Upgrade out(boost::beast::http::verb::get, r.target, 11);
  out.method_string(r.method);
  for (const auto& [name, value] : r.headers) out.insert(name, value);
  return out;
}

// Whether the request asks for a WebSocket.
inline bool is_upgrade(const Request& r) {
  return boost::beast::websocket::is_upgrade(upgrade_of(r));
}

class WebFrames {
 public:
  explicit WebFrames(boost::asio::ip::tcp::socket& socket) : stream_(socket) {
    constexpr size_t most_read = 65536;  // of what the peer says, which nobody reads
    stream_.read_message_max(most_read);
    stream_.auto_fragment(false);
  }
  void accept(const Request& r, const Headers& headers, auto done) {
    namespace ws = boost::beast::websocket;
    stream_.set_option(ws::stream_base::decorator([headers](ws::response_type& out) {
      for (const auto& [name, value] : headers) out.set(name, value);
      out.set(boost::beast::http::field::server, "ebb");
    }));
    upgrade_ = upgrade_of(r);
    stream_.async_accept(upgrade_, std::move(done));
  }
  void write(const std::string& message, bool is_text, auto done) {
    stream_.text(is_text);
    stream_.async_write(boost::asio::buffer(message), std::move(done));
  }
  // One message, which is dropped; answers pings and the peer's goodbye.
  void read(auto done) {
    read_.clear();
    stream_.async_read(read_, std::move(done));
  }
  // Not done behind a goodbye or a breach of the rules, until the peer closes its end.
  void ping(auto done) { stream_.async_ping({}, std::move(done)); }
  void close(const std::string& reason, auto done) {
    namespace ws = boost::beast::websocket;
    ws::close_reason why(reason.empty() ? ws::close_code::going_away
                                        : ws::close_code::try_again_later);
    why.reason.assign(reason.data(), std::min(reason.size(), why.reason.max_size()));
    stream_.async_close(why, std::move(done));
  }

 private:
  boost::beast::websocket::stream<boost::asio::ip::tcp::socket&> stream_;
  boost::beast::flat_buffer read_;
  Upgrade upgrade_;
};

}  // namespace ebb::server
