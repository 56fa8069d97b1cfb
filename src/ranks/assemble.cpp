#include "ranks/assemble.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "base/error.h"
#include "ranks/leave.h"

namespace ebb::ranks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t protocol = 1;
constexpr size_t most_hello = 4096, most_pending = 256;
constexpr double hello_seconds = 5, connect_seconds = 2, pause_seconds = 0.1;
constexpr int poll_milliseconds = 100;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string hello_of(const Launch& l) {
  return BodyWriter()
      .number(protocol)
      .text(l.token)
      .number(l.rank)
      .number(l.ranks)
      .text(host_name())
      .number(::getpid())
      .body();
}

std::string welcome_of(const std::vector<Member>& members) {
  BodyWriter out;
  for (const Member& m : members) out.text(m.host).number(m.pid);
  return out.body();
}

std::vector<Member> members_of(std::string_view welcome, int64_t ranks) {
  std::vector<Member> out;
  BodyReader in(welcome);
  for (int64_t r = 0; r < ranks; ++r) {
    out.push_back({.rank = r, .host = in.text()});
    out.back().pid = in.number();
  }
  in.finish();
  return out;
}

Member self(const Launch& l) { return {.rank = l.rank, .host = host_name(), .pid = ::getpid()}; }

// ---- rank 0 --------------------------------------------------------------------------------

class Inviter {
 public:
  Inviter(const Launch& launch, const Limits& limits, Socket listener)
      : launch_(launch), limits_(limits), listener_(std::move(listener)) {
    members_.emplace(0, self(launch));
  }

  Assembly run() {
    while (static_cast<int64_t>(members_.size()) < launch_.ranks) {
      wait();
      accept();
      for (Pending& p : pending_) hear(p);
      std::erase_if(pending_, [](const Pending& p) {
        return !p.connection.open() || seconds_since(p.since) > hello_seconds;
      });
      forget_closed();
      require_time_left();
    }
    Assembly out;
    for (auto& [rank, member] : members_) out.members.push_back(member);
    out.connections.emplace_back(Socket());
    for (auto& [rank, connection] : connections_) out.connections.push_back(std::move(connection));
    const std::string welcome = welcome_of(out.members);
    for (Connection& c : out.connections) c.send(Kind::welcome, welcome);
    return out;
  }

 private:
  struct Pending {
    Connection connection;
    Clock::time_point since = Clock::now();
  };

  void wait() {
    std::vector<pollfd> all{{.fd = listener_.descriptor(), .events = POLLIN, .revents = 0}};
    for (const Pending& p : pending_)
      all.push_back({.fd = p.connection.descriptor(), .events = POLLIN, .revents = 0});
    ::poll(all.data(), all.size(), poll_milliseconds);
  }

  // Of too many the oldest goes, which has said nothing yet. A rank speaks at once, and comes
  // again.
  void accept() {
    for (size_t i = 0; i < most_pending; ++i) {
      Socket s = accepted_by(listener_);
      if (!s) return;
      if (pending_.size() == most_pending) pending_.erase(pending_.begin());
      pending_.push_back({.connection = Connection(std::move(s))});
    }
  }

  // Turns away what is no rank of this run.
  void hear(Pending& p) {
    try {
      p.connection.receive(most_hello);
      const std::optional<Frame> frame = p.connection.next(most_hello);
      if (!frame) return;
      require(frame->kind == Kind::hello, "ranks: a hello comes first");
      take(p.connection, frame->body);
    } catch (const Error&) {
      p.connection.close();
    }
    if (!fault_.empty()) end_all(fault_);
  }

  void take(Connection& connection, std::string_view hello) {
    BodyReader in(hello);
    const int64_t version = in.number();
    const std::string token = in.text();
    Member m{.rank = in.number()};
    const int64_t ranks = in.number();
    m.host = in.text();
    m.pid = in.number();
    in.finish();
    if (token != launch_.token) return dismiss(connection, Kind::refused, "it is another run");
    if (version != protocol)
      fault_ = str("ranks: all ranks must be of one version of ebb (", m, " speaks protocol ",
                   version, ", rank 0 ", protocol, ")");
    else if (ranks != launch_.ranks)
      fault_ = str("ranks: all must know the same number of ranks (", ranks, " on ", m, ", ",
                   launch_.ranks, " on ", self(launch_), ")");
    else if (m.rank < 0 || m.rank >= ranks || members_.contains(m.rank))
      fault_ = str("ranks: each must have a number of its own, below ", ranks, " (", m,
                   members_.contains(m.rank) ? str(" and ", members_.at(m.rank)) : "", ")");
    if (!fault_.empty()) return dismiss(connection, Kind::end, "");
    members_.emplace(m.rank, m);
    connection.send(Kind::accepted);
    connection.flush();
    connections_.emplace(m.rank, std::move(connection));
  }

  static void dismiss(Connection& connection, Kind kind, std::string_view why) {
    connection.send(kind, why);
    connection.flush();
    connection.close();
  }

  // One that goes before all are there may come again.
  void forget_closed() {
    for (auto& [rank, connection] : connections_) {
      connection.receive(0);
      if (!connection.open()) members_.erase(rank);
    }
    std::erase_if(connections_, [](const auto& c) { return !c.second.open(); });
  }

  void require_time_left() {
    if (seconds_since(start_) < limits_.appear) return;
    std::string missing;
    int64_t count = 0;
    constexpr int64_t named = 8;
    for (int64_t r = 0; r < launch_.ranks; ++r)
      if (!members_.contains(r) && ++count <= named) missing += str(missing.empty() ? "" : ", ", r);
    if (count > named) missing += ", ...";
    end_all(str("ranks: all must be there within ", limits_.appear, " s (", count, " of ",
                launch_.ranks, " are missing: ", missing, "; rank 0 listens on ", host_name(),
                ", port ", port_of(listener_), ")"));
  }

  // Those that are there end without a word of their own.
  [[noreturn]] void end_all(const std::string& error) {
    for (auto& [rank, connection] : connections_) {
      connection.send(Kind::end);
      connection.end_sending();
      connection.flush();
    }
    fail(error);
  }

  const Launch& launch_;
  const Limits& limits_;
  Socket listener_;
  Clock::time_point start_ = Clock::now();
  std::vector<Pending> pending_;
  std::map<int64_t, Member> members_;
  std::map<int64_t, Connection> connections_;
  std::string fault_;
};

// ---- the others ----------------------------------------------------------------------------

class Spoke {
 public:
  Spoke(const Launch& launch, const Limits& limits) : launch_(launch), limits_(limits) {}

  Assembly run() {
    while (true) {
      for (const std::string& address : launch_.addresses)
        if (auto out = try_at(address)) return std::move(*out);
      require(seconds_since(start_) < limits_.appear, "ranks: rank ", launch_.rank, " of ",
              launch_.ranks, " must find rank 0 within ", limits_.appear, " s (", where(), ": ",
              why_, ")");
      std::this_thread::sleep_for(std::chrono::duration<double>(pause_seconds));
    }
  }

 private:
  std::string where() const {
    std::string out;
    for (const std::string& a : launch_.addresses) out += str(out.empty() ? "" : ", ", a);
    return str(out, ", port ", launch_.port);
  }

  std::optional<Assembly> try_at(const std::string& address) try {
    Socket socket = connected_to(address, launch_.port, connect_seconds, why_);
    if (!socket) return {};
    Connection c(std::move(socket));
    c.send(Kind::hello, hello_of(launch_));
    c.flush();
    if (wait(c, hello_seconds).kind != Kind::accepted) fail("what answers there is not ebb");
    // rank 0 gives up first, and says who is missing
    const Frame all = wait(c, limits_.appear + hello_seconds);
    require(all.kind == Kind::welcome, "what answers there is not ebb");
    Assembly out;
    out.members = members_of(all.body, launch_.ranks);
    out.connections.push_back(std::move(c));
    return out;
  } catch (const Refused& e) {
    fail("ranks: rank ", launch_.rank, " is turned away by rank 0 (", address, ", port ",
         launch_.port, "): ", e.what());
  } catch (const Error& e) {
    why_ = e.what();
    return {};
  }

  struct Refused : Error {
    using Error::Error;
  };

  static Frame wait(Connection& c, double seconds) {
    const auto start = Clock::now();
    while (true) {
      c.receive(most_texts);
      if (std::optional<Frame> f = c.next(most_texts)) {
        if (f->kind == Kind::end) leave();
        if (f->kind == Kind::refused) throw Refused(f->body);
        return std::move(*f);
      }
      require(c.open(), "rank 0 closed the connection");
      require(seconds_since(start) < seconds, "no answer");
      pollfd in{.fd = c.descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&in, 1, poll_milliseconds);
    }
  }

  const Launch& launch_;
  const Limits& limits_;
  Clock::time_point start_ = Clock::now();
  std::string why_ = "no answer";
};

}  // namespace

Assembly assemble(const Launch& launch, const Limits& limits, Socket listener) {
  if (launch.rank == 0) return Inviter(launch, limits, std::move(listener)).run();
  return Spoke(launch, limits).run();
}

Socket listener_of(const Launch& launch) {
  if (launch.listener >= 0) return inherited_listener(launch.listener);
  return listen_at(launch.port, Reach::everyone);
}

}  // namespace ebb::ranks
