#include "ranks/connect.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>

#include "base/error.h"
#include "ranks/frames.h"
#include "ranks/mpi_library.h"

namespace ebb::ranks {
namespace {

// The addresses by which other hosts may reach this one, and its name, which they may not know.
std::vector<std::string> own_addresses() {
  std::vector<std::string> out{host_name()};
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return out;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, freeifaddrs);
  for (const ifaddrs* a = all.get(); a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || (a->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = a->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(a->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      out.emplace_back(text.data());
  }
  return out;
}

std::string encoded(const Launch& l) {
  BodyWriter out;
  out.text(l.token).number(l.port).number(static_cast<int64_t>(l.addresses.size()));
  for (const std::string& a : l.addresses) out.text(a);
  return out.body();
}

void decode(std::string_view text, Launch& l) {
  BodyReader in(text);
  l.token = in.text();
  l.port = in.number();
  l.addresses.resize(static_cast<size_t>(in.number()));
  for (std::string& a : l.addresses) a = in.text();
}

// What rank 0 has, for all.
void broadcast(MpiLibrary& mpi, std::string& text) {
  int64_t bytes = static_cast<int64_t>(text.size());
  mpi.broadcast({reinterpret_cast<uint8_t*>(&bytes), sizeof bytes});
  text.resize(static_cast<size_t>(bytes));
  mpi.broadcast({reinterpret_cast<uint8_t*>(text.data()), text.size()});
}

std::shared_ptr<MpiLibrary> open_mpi(const Launch& l) try {
  auto mpi = MpiLibrary::open();
  require(mpi->rank() == l.rank && mpi->ranks() == l.ranks, "ranks: MPI must count as ", l.how,
          " does (rank ", mpi->rank(), " of ", mpi->ranks(), " by ", mpi->description(), ", ",
          l.rank, " of ", l.ranks, " by ", l.how, "): is it another MPI?");
  return mpi;
} catch (const Error& e) {
  fail("ranks: ", l.how,
       " does not say where rank 0 is: MPI has to, or MASTER_ADDR and MASTER_PORT (", e.what(),
       ")");
}

}  // namespace

std::string random_token() {
  std::array<uint8_t, 16> bytes{};
  require(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
          "ranks: no random numbers");
  std::string out;
  for (const uint8_t b : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    out += digits[b >> 4];
    out += digits[b & 15];
  }
  return out;
}

std::unique_ptr<TcpGroup> connect(const Launch& launch, const Limits& limits) {
  if (!launch.addresses.empty() || launch.ranks == 1)
    return std::make_unique<TcpGroup>(launch, limits);
  const std::shared_ptr<MpiLibrary> mpi = open_mpi(launch);
  Launch found = launch;
  Socket listener;
  std::string text;
  if (launch.rank == 0) {
    const bool one_host = launch.local_ranks == launch.ranks;
    listener = listen_at(launch.port, one_host ? Reach::this_host : Reach::everyone);
    found.port = port_of(listener);
    found.addresses = one_host ? std::vector<std::string>{"127.0.0.1"} : own_addresses();
    found.token = random_token();
    text = encoded(found);
  }
  broadcast(*mpi, text);
  decode(text, found);
  return std::make_unique<TcpGroup>(found, limits, std::move(listener), mpi);
}

}  // namespace ebb::ranks
