// Messages between ranks: frames of a kind and a body, over a socket. Whatever arrives may be
// anybody's: every length is bounded before memory is taken for it. Numbers are little-endian, as
// every host that ebb runs on has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ranks/socket.h"

namespace ebb::ranks {

enum class Kind : uint8_t {
  hello,     // to rank 0: protocol, token, who one is
  accepted,  // you are one of this run
  refused,   // you are not, and why
  welcome,   // all are there: who they are
  beat,      // I live; to rank 0 with one's progress
  text,      // of a gather, to rank 0
  texts,     // of all
  failed,    // to rank 0: the error that ends me
  goodbye,   // I leave, and all is well
  end,       // all have to end, and why has been said; of rank 0, or of rank 1 where 0 is gone
};
constexpr uint8_t kinds = 10;

struct Frame {
  Kind kind = Kind::beat;
  std::string body;
};

// Writes the parts of a body.
class BodyWriter {
 public:
  BodyWriter& number(int64_t v);
  BodyWriter& real(double v);
  BodyWriter& text(std::string_view v);
  const std::string& body() const { return body_; }

 private:
  std::string body_;
};

// Reads them in the same order. Throws Error where the body ends before or is longer.
class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : rest_(body) {}
  int64_t number();
  double real();
  std::string text();
  void finish() const;  // nothing may be left

 private:
  std::string_view take(size_t bytes);
  std::string_view rest_;
};

class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}
  int descriptor() const { return socket_.descriptor(); }
  bool open() const { return static_cast<bool>(socket_); }
  void close() { socket_ = Socket(); }

  void send(Kind kind, std::string_view body = {});  // queues it
  bool unsent() const { return !out_.empty(); }
  void flush();        // hands over what the socket takes now
  void end_sending();  // behind what is queued; a flush that finds it sent closes that direction
  // Takes what has arrived, at most about a frame of so many bytes. The connection is closed where
  // the other side has, and what came before that can still be read.
  void receive(size_t most_bytes);
  // The next whole frame, of at most so many bytes. Throws Error for what is no frame.
  std::optional<Frame> next(size_t most_bytes);

 private:
  Socket socket_;
  std::string in_, out_;
  bool ending_ = false;
};

}  // namespace ebb::ranks
