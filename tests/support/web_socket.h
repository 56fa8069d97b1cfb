// A WebSocket client of the server's tests (RFC 6455), on one connection.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "support/http_client.h"

namespace ebb::testing {

class WebSocketClient {
 public:
  enum Kind : uint8_t { text = 1, binary = 2, close = 8, ping = 9, pong = 10 };
  struct Message {
    Kind kind = text;
    std::string data;
    nlohmann::json json() const { return nlohmann::json::parse(data, nullptr, false); }
  };

  WebSocketClient(uint16_t port, const std::string& target, const std::string& headers = "",
                  const std::string& host = "127.0.0.1")
      : wire_(port) {
    // the key and the answer to it of RFC 6455, section 1.3
    wire_.send(http_request("GET", target, "",
                            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "
                            "13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
                                headers,
                            host));
    answer_ = wire_.answer();
  }
  int status() const { return answer_.status; }
  const HttpAnswer& answer() const { return answer_; }

  // The next message; none where the connection ends, or nothing comes for some seconds.
  std::optional<Message> next() {
    if (!has(2)) return {};
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(wire_.read[i]); };
    size_t size = byte(1), head = 2;
    const size_t more = size == 126 ? 2 : size == 127 ? 8 : 0;
    if (!has(head + more)) return {};
    if (more > 0) size = 0;
    for (size_t i = 0; i < more; ++i) size = size << 8 | byte(head + i);
    head += more;
    if (!has(head + size)) return {};
    Message out{static_cast<Kind>(byte(0) & 15), wire_.read.substr(head, size)};
    wire_.read.erase(0, head + size);
    return out;
  }
  // Of text that is JSON, the next one of that type; null where there is none.
  nlohmann::json next(const std::string& type) {
    while (const auto m = next()) {
      if (m->kind != text) continue;
      const auto json = m->json();
      if (json.value("type", "") == type) return json["data"];
    }
    return {};
  }
  // Short ones, as clients must: masked, here by 0.
  void send(Kind kind, const std::string& data) {
    wire_.send(str(static_cast<char>(0x80 | kind), static_cast<char>(0x80 | data.size()),
                   std::string(4, '\0'), data));
  }
  Wire& wire() { return wire_; }

 private:
  bool has(size_t bytes) {
    while (wire_.read.size() < bytes)
      if (!wire_.more()) return false;
    return true;
  }
  Wire wire_;
  HttpAnswer answer_;
};

}  // namespace ebb::testing
