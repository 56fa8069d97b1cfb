// A client of the server's tests: whole requests and raw bytes over sockets of 127.0.0.1.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/names.h"

namespace ebb::testing {

// More bytes than the system keeps for a peer that does not read: Linux lets the buffers of both
// ends grow to 36 MB (tcp_rmem, tcp_wmem).
inline constexpr size_t beyond_socket_buffers = size_t{48} << 20;

struct HttpAnswer {
  int status = 0;  // 0: the connection was closed without one
  std::string head, body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  std::string header(const std::string& name) const {
    const size_t at = small_letters(head).find("\r\n" + small_letters(name) + ": ");
    if (at == head.npos) return "";
    const size_t from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }
};

// A connection. What is read waits at most some seconds.
class Wire {
 public:
  explicit Wire(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) close();
  }
  ~Wire() { close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  bool open() const { return socket_ >= 0; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // The end of what it sends; it still reads.
  void end() { ::shutdown(socket_, SHUT_WR); }
  // More bytes into `read`; false at the end or after that time.
  bool more(std::chrono::milliseconds time = std::chrono::seconds(20)) {
    pollfd p{socket_, POLLIN, 0};
    if (::poll(&p, 1, static_cast<int>(time.count())) <= 0) return false;
    char part[65536];
    const ssize_t n = ::recv(socket_, part, sizeof part, 0);
    if (n <= 0) return false;
    read.append(part, static_cast<size_t>(n));
    return true;
  }
  // Waits until it is there.
  bool until(std::string_view text, std::chrono::milliseconds time = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (read.find(text) == read.npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      if (left.count() <= 0 || !more(left)) return false;
    }
    return true;
  }
  // One answer with a Content-Length, which of an answer to HEAD has no bytes.
  HttpAnswer answer(bool has_body = true) {
    HttpAnswer out;
    if (!until("\r\n\r\n")) return out;
    const size_t end = read.find("\r\n\r\n");
    out.head = read.substr(0, end + 2);
    out.status = std::atoi(out.head.substr(9, 3).c_str());
    const std::string length = out.header("content-length");
    const size_t size = length.empty() || !has_body ? 0 : std::stoul(length);
    while (read.size() < end + 4 + size && more()) {
    }
    out.body = read.substr(end + 4, size);
    read.erase(0, end + 4 + size);
    return out;
  }

  std::string read;

 private:
  int socket_;
};

// The bytes of a request. `headers`: lines with \r\n.
inline std::string http_request(const std::string& method, const std::string& target,
                                const std::string& body = "", const std::string& headers = "",
                                const std::string& host = "127.0.0.1") {
  std::string out = str(method, ' ', target, " HTTP/1.1\r\nHost: ", host, "\r\n", headers);
  if (!body.empty() && headers.find("Content-Type") == headers.npos)
    out += "Content-Type: application/json\r\n";
  if (!body.empty() || method != "GET") out += str("Content-Length: ", body.size(), "\r\n");
  return out + "\r\n" + body;
}

inline HttpAnswer ask(uint16_t port, const std::string& method, const std::string& target,
                      const std::string& body = "", const std::string& headers = "",
                      const std::string& host = "127.0.0.1") {
  Wire wire(port);
  wire.send(http_request(method, target, body, headers, host));
  return wire.answer(method != "HEAD");
}

}  // namespace ebb::testing
