#include "ranks/frames.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace ebb::ranks {
namespace {

struct Header {
  uint32_t magic = 0, kind = 0, bytes = 0;
};
constexpr uint32_t magic = 0x72626265;  // "ebbr"

template <class T>
void append(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T read(std::string_view from) {
  T out{};
  std::memcpy(&out, from.data(), sizeof out);
  return out;
}

bool only_later() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

BodyWriter& BodyWriter::number(int64_t v) {
  append(body_, v);
  return *this;
}
BodyWriter& BodyWriter::real(double v) {
  append(body_, v);
  return *this;
}
BodyWriter& BodyWriter::text(std::string_view v) {
  append(body_, static_cast<int64_t>(v.size()));
  body_ += v;
  return *this;
}

std::string_view BodyReader::take(size_t bytes) {
  require(bytes <= rest_.size(), "ranks: a message ends too early (", bytes, " bytes needed, ",
          rest_.size(), " left)");
  const std::string_view out = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return out;
}
int64_t BodyReader::number() { return read<int64_t>(take(sizeof(int64_t))); }
double BodyReader::real() { return read<double>(take(sizeof(double))); }
std::string BodyReader::text() {
  const int64_t bytes = number();
  require(bytes >= 0, "ranks: a message has a text of negative length (", bytes, ")");
  return std::string(take(static_cast<size_t>(bytes)));
}
void BodyReader::finish() const {
  require(rest_.empty(), "ranks: a message is too long (", rest_.size(), " bytes more)");
}

void Connection::send(Kind kind, std::string_view body) {
  if (!open() || ending_) return;
  append(out_, Header{magic, static_cast<uint32_t>(kind), static_cast<uint32_t>(body.size())});
  out_ += body;
}

void Connection::flush() {
  while (open() && !out_.empty()) {
    const ssize_t n = ::send(descriptor(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && only_later()) return;
    if (n < 0) {
      out_.clear();  // receive() finds that it is closed, behind what still can be read
      return;
    }
    out_.erase(0, static_cast<size_t>(n));
  }
  if (open() && ending_) ::shutdown(descriptor(), SHUT_WR);
}

void Connection::end_sending() { ending_ = true; }

void Connection::receive(size_t most_bytes) {
  std::array<char, 65536> part{};
  while (open() && in_.size() < sizeof(Header) + most_bytes) {
    const ssize_t n = ::recv(descriptor(), part.data(), part.size(), MSG_DONTWAIT);
    if (n < 0 && only_later()) return;
    if (n <= 0) return close();
    in_.append(part.data(), static_cast<size_t>(n));
    if (static_cast<size_t>(n) < part.size()) return;
  }
}

std::optional<Frame> Connection::next(size_t most_bytes) {
  // what begins otherwise is not waited for
  const uint32_t expected = magic;
  require(std::memcmp(in_.data(), &expected, std::min(in_.size(), sizeof expected)) == 0,
          "ranks: what arrived is no message of ebb's");
  if (in_.size() < sizeof(Header)) return {};
  const auto header = read<Header>(in_);
  require(header.kind < kinds && header.bytes <= most_bytes,
          "ranks: a message must be of a known kind and not too long (kind ", header.kind, ", ",
          header.bytes, " bytes)");
  if (in_.size() < sizeof header + header.bytes) return {};
  Frame out{static_cast<Kind>(header.kind), in_.substr(sizeof header, header.bytes)};
  in_.erase(0, sizeof header + header.bytes);
  return out;
}

}  // namespace ebb::ranks
