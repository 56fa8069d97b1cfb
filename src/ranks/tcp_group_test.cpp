// Groups of threads: finding each other, and gathers. What ends processes is in
// tests/rank_processes_test.cpp.
#include "ranks/tcp_group.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "ranks/assemble.h"
#include "support/files.h"

namespace ebb::ranks {
namespace {

// A run of threads, each a rank of it.
class Threads {
 public:
  explicit Threads(int64_t ranks, double appear = 20, const std::string& address = "127.0.0.1")
      : listener_(listen_at(0, Reach::everyone)),
        launch_{.ranks = ranks, .addresses = {address}, .port = port_of(listener_), .token = "t"} {
    limits_.appear = appear;
    limits_.beat = 0.1;
  }
  Launch launch(int64_t rank) const {
    Launch out = launch_;
    out.rank = out.local_rank = rank;
    return out;
  }
  // Does `work` in one of the ranks; its error, "" if none.
  std::string rank(const Launch& as, const std::function<void(TcpGroup&)>& work) {
    return testing::error_of([&] {
      TcpGroup group(as, limits_, as.rank == 0 ? std::move(listener_) : Socket());
      work(group);
    });
  }
  // In all of them at once; their errors.
  std::vector<std::string> all(const std::function<void(TcpGroup&)>& work) {
    std::vector<std::string> errors(static_cast<size_t>(launch_.ranks));
    {
      std::vector<std::jthread> threads;
      for (int64_t r = 0; r < launch_.ranks; ++r)
        threads.emplace_back([&, r] { errors[static_cast<size_t>(r)] = rank(launch(r), work); });
    }
    return errors;
  }
  // A connection of a stranger.
  Socket stranger() const {
    std::string why;
    Socket s = connected_to("127.0.0.1", launch_.port, 5, why);
    EXPECT_TRUE(static_cast<bool>(s)) << why;
    return s;
  }

 private:
  Socket listener_;
  Launch launch_;
  Limits limits_;
};

TEST(tcp_group, gathers_of_1_2_and_5_ranks) {
  for (const int64_t ranks : {1, 2, 5}) {
    Threads run(ranks);
    const auto errors = run.all([&](TcpGroup& g) {
      EXPECT_EQ(g.ranks(), ranks);
      for (int time = 0; time < 20; ++time) {
        std::vector<std::string> expected;
        for (int64_t r = 0; r < ranks; ++r)
          expected.push_back(str("text ", time, " of ", r, std::string(size_t(r) * 1000, 'x')));
        EXPECT_EQ(g.gather(expected[static_cast<size_t>(g.rank())]), expected);
        g.report(time, Phase::step);
      }
      if (ranks > 1) {
        EXPECT_EQ(g.member(ranks - 1).pid, ::getpid());
      }
    });
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
}

TEST(tcp_group, ip_version_6) {
  Threads run(2, 20, "::1");
  for (const std::string& e : run.all([](TcpGroup& g) { g.gather("a"); })) {
    if (e.find("Cannot assign") != e.npos) GTEST_SKIP() << "this host has no IPv6";
    EXPECT_EQ(e, "");
  }
}

TEST(tcp_group, large_texts__and_too_large_ones) {
  Threads run(3);
  const std::string large(most_text, 'a');
  for (const std::string& e : run.all([&](TcpGroup& g) {
         EXPECT_EQ(g.gather(large)[2].size(), most_text);
         testing::expect_error([&] { g.gather(large + "b"); }, "a text must have at most");
       }))
    EXPECT_EQ(e, "");
}

TEST(tcp_group, after_goodbye__no_gather) {
  Threads run(2);
  for (const std::string& e : run.all([](TcpGroup& g) {
         g.gather("");
         g.goodbye();
         g.goodbye();
         testing::expect_error([&] { g.gather("a"); }, "has left the group");
       }))
    EXPECT_EQ(e, "");
}

TEST(tcp_group, strangers__change_nothing) {
  Threads run(2);
  // they are there first
  const Socket silent = run.stranger(), http = run.stranger(), noise = run.stranger(),
               long_one = run.stranger(), other_run = run.stranger(), short_one = run.stranger();
  const auto say = [](const Socket& s, std::string_view text) {
    ::send(s.descriptor(), text.data(), text.size(), MSG_NOSIGNAL);
  };
  say(http, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  say(noise, std::string(100000, '\xff'));
  say(long_one, std::string_view("ebbr\0\0\0\0\xff\xff\xff\xff", 12));
  say(short_one, std::string_view("ebbr\0\0\0\0\x08\0\0\0\x01\0\0\0\0\0\0\0", 20));
  Connection other{Socket(::dup(other_run.descriptor()))};
  other.send(Kind::hello,
             BodyWriter().number(1).text("another").number(1).number(2).text("h").number(1).body());
  other.flush();
  for (const std::string& e : run.all([](TcpGroup& g) { EXPECT_EQ(g.gather("a").size(), 2u); }))
    EXPECT_EQ(e, "");
}

TEST(tcp_group, queue_full_of_strangers__lets_ranks_in) {
  Threads run(2, 3);  // seconds: less than a stranger may be silent for
  std::string of_hub, of_rank;
  const auto gather = [](TcpGroup& g) { g.gather("a"); };
  {
    std::jthread hub([&] { of_hub = run.rank(run.launch(0), gather); });
    std::vector<Socket> strangers;
    for (int i = 0; i < 300; ++i) strangers.push_back(run.stranger());
    of_rank = run.rank(run.launch(1), gather);
  }
  EXPECT_EQ(of_hub, "");
  EXPECT_EQ(of_rank, "");
}

TEST(tcp_group, another_token__is_turned_away) {
  Threads run(2, 1);
  std::string of_stray, of_hub;
  {
    std::jthread hub([&] { of_hub = run.rank(run.launch(0), [](TcpGroup&) {}); });
    Launch stray = run.launch(1);
    stray.token = "another run's";
    of_stray = run.rank(stray, [](TcpGroup&) {});
  }
  EXPECT_NE(of_stray.find("rank 1 is turned away by rank 0"), std::string::npos) << of_stray;
  EXPECT_NE(of_stray.find("it is another run"), std::string::npos) << of_stray;
  EXPECT_NE(of_hub.find("1 of 2 are missing: 1;"), std::string::npos) << of_hub;
}

TEST(tcp_group, missing_ranks__are_named) {
  Threads run(5, 0.3);
  const std::string error = run.rank(run.launch(0), [](TcpGroup&) {});
  EXPECT_NE(error.find("all must be there within 0.3 s (4 of 5 are missing: 1, 2, 3, 4; rank 0 "
                       "listens on "),
            std::string::npos)
      << error;
}

TEST(tcp_group, missing_rank_0__is_named_with_its_place) {
  Launch l{.rank = 1, .ranks = 2, .addresses = {"127.0.0.1"}, .port = 1};
  Limits limits;
  limits.appear = 0.3;
  testing::expect_error([&] { const TcpGroup group(l, limits); },
                        "rank 1 of 2 must find rank 0 within 0.3 s (127.0.0.1, port 1: "
                        "Connection refused)");
}

TEST(tcp_group, a_port_that_is_taken__says_so) {
  const Socket taken = listen_at(0, Reach::everyone);
  testing::expect_error([&] { listen_at(port_of(taken), Reach::everyone); },
                        "rank 0 cannot listen at port");
}

TEST(tcp_group, what_answers_is_not_ebb__goes_on_looking_until_the_time_is_over) {
  const Socket other = listen_at(0, Reach::everyone);
  std::jthread server([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const Socket s = accepted_by(other);
      if (s) ::send(s.descriptor(), "HTTP/1.1 400\r\n", 14, MSG_NOSIGNAL);
      ::poll(nullptr, 0, 20);
    }
  });
  Launch l{.rank = 1, .ranks = 2, .addresses = {"127.0.0.1"}, .port = port_of(other)};
  Limits limits;
  limits.appear = 0.3;
  testing::expect_error([&] { const TcpGroup group(l, limits); }, "must find rank 0 within 0.3 s");
}

TEST(frames, whatever_arrives__bounded_and_whole) {
  testing::expect_error([] { BodyReader("abc").number(); }, "ends too early (8 bytes needed, 3");
  const std::string negative = BodyWriter().number(-5).body();
  testing::expect_error([&] { BodyReader(negative).text(); }, "negative length (-5)");
  const std::string beyond = BodyWriter().number(int64_t{1} << 62).body();
  testing::expect_error([&] { BodyReader(beyond).text(); }, "ends too early");
  testing::expect_error([] { BodyReader("a").finish(); }, "too long (1 bytes more)");
}

}  // namespace
}  // namespace ebb::ranks
