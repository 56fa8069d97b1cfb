// TCP sockets over IPv4 and IPv6 that never block.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace ebb::ranks {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// Listens at a port of all addresses of this host, or of its loopback alone; port 0: any that is
// free. Throws Error.
enum class Reach : uint8_t { everyone, this_host };
Socket listen_at(int64_t port, Reach reach);
// One that listens already, inherited. Throws Error for what is no socket.
Socket inherited_listener(int descriptor);
int64_t port_of(const Socket& listener);
// The next connection that waits; none: an empty one.
Socket accepted_by(const Socket& listener);
// Empty, with the reason in `why`, where no connection is made within the time.
Socket connected_to(const std::string& address, int64_t port, double seconds, std::string& why);

std::string host_name();

}  // namespace ebb::ranks
