#include "ranks/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace ebb::ranks {
namespace {

std::string reason() { return std::strerror(errno); }

void set(int descriptor, int level, int option, int value) {
  setsockopt(descriptor, level, option, &value, sizeof value);
}

// Small messages go at once.
Socket prepared(int descriptor) {
  if (descriptor >= 0) set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  return Socket(descriptor);
}

constexpr int no_wait = SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr int waiting_connections = 1024;

// Empty where the host has no such addresses, or the port is not free.
Socket listen_at(const sockaddr* address, socklen_t size) {
  Socket s(::socket(address->sa_family, SOCK_STREAM | no_wait, 0));
  if (!s) return s;
  set(s.descriptor(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set(s.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(s.descriptor(), address, size) != 0) return {};
  if (::listen(s.descriptor(), waiting_connections) != 0) return {};
  return s;
}

// Waits until the connection that was begun stands. False: it does not.
bool stands(int descriptor, double seconds) {
  constexpr double milliseconds = 1e3;
  pollfd out{.fd = descriptor, .events = POLLOUT, .revents = 0};
  if (::poll(&out, 1, static_cast<int>(seconds * milliseconds)) <= 0) {
    errno = ETIMEDOUT;
    return false;
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  errno = error;
  return error == 0;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket listen_at(int64_t port, Reach reach) {
  const auto number = htons(static_cast<uint16_t>(port));
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = number;
  six.sin6_addr = in6addr_any;
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_port = number;
  four.sin_addr.s_addr = htonl(reach == Reach::everyone ? INADDR_ANY : INADDR_LOOPBACK);
  Socket s;
  if (reach == Reach::everyone) s = listen_at(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (!s) s = listen_at(reinterpret_cast<const sockaddr*>(&four), sizeof four);
  require(static_cast<bool>(s), "ranks: rank 0 cannot listen at port ", port, " (", reason(),
          "); MASTER_PORT chooses another");
  return s;
}

Socket inherited_listener(int descriptor) {
  int listens = 0;
  socklen_t size = sizeof listens;
  require(getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0,
          "ranks: descriptor ", descriptor, " must be a socket that listens");
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
  return Socket(descriptor);
}

int64_t port_of(const Socket& listener) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  require(getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) == 0,
          "ranks: asking for a port (", reason(), ")");
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

Socket accepted_by(const Socket& listener) {
  const int descriptor = ::accept4(listener.descriptor(), nullptr, nullptr, no_wait);
  require(descriptor >= 0 || (errno != EMFILE && errno != ENFILE),
          "ranks: rank 0 needs a connection to each of the others (", reason(), "; ulimit -n)");
  return prepared(descriptor);
}

Socket connected_to(const std::string& address, int64_t port, double seconds, std::string& why) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    why = gai_strerror(status);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  for (const addrinfo* a = all.get(); a != nullptr; a = a->ai_next) {
    Socket s = prepared(::socket(a->ai_family, SOCK_STREAM | no_wait, 0));
    if (!s) continue;
    if (::connect(s.descriptor(), a->ai_addr, a->ai_addrlen) == 0) return s;
    if (errno == EINPROGRESS && stands(s.descriptor(), seconds)) return s;
    why = reason();
  }
  return {};
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

}  // namespace ebb::ranks
