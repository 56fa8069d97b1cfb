// A rank of a run, or what starts its ranks, for tests: rank_program [copies=N] SCENARIO [rank=R]
// [limits as silence=1.5]. Its ranks work in steps whose collective part ends when all are there.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "core/device.h"
#include "ranks/agree.h"
#include "ranks/connect.h"
#include "ranks/spawn.h"

// Without the tables of ops and kernels, which no collective needs.
namespace ebb::backend::cpu {
std::shared_ptr<Device> open(const DeviceOptions& options);
}

namespace {

using namespace ebb;         // NOLINT: a program
using namespace ebb::ranks;  // NOLINT

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}
[[noreturn]] void block() {
  while (true) ::pause();
}

struct Words {
  std::string scenario;
  std::map<std::string, std::string> values;
  double number(const std::string& name, double otherwise) const {
    const auto it = values.find(name);
    return it == values.end() ? otherwise : std::atof(it->second.c_str());
  }
};

Words words_of(int argc, char** argv) {
  Words out;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == word.npos)
      out.scenario = word;
    else
      out.values[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return out;
}

// Quick, but longer than what a busy machine keeps a process waiting.
Limits limits_of(const Words& w) {
  Limits l;
  l.appear = w.number("appear", 20);
  l.silence = w.number("silence", 10);
  l.batch = w.number("batch", 10);
  l.step = w.number("step", 10);
  l.settle = w.number("settle", 0.3);
  l.beat = w.number("beat", 0.1);
  return l;
}

// Steps of which `at` happens in the third. A rank that waits there waits for ever, as in a
// collective.
void work(TcpGroup& group, const std::function<void()>& at) {
  constexpr int64_t eventful = 3;
  for (int64_t step = 1; step <= eventful; ++step) {
    group.report(step, Phase::batch);
    if (step == eventful) at();
    group.report(step, Phase::step);
    if (step == eventful) block();
    group.gather("");
  }
}

using Scenario = void (*)(TcpGroup&, const Words&, bool chosen);

const std::map<std::string, Scenario> scenarios = {
    {"gather",
     [](TcpGroup& g, const Words& w, bool) {
       std::string all;
       for (int i = 0; i < static_cast<int>(w.number("times", 1)); ++i)
         for (const std::string& text : g.gather(str("of ", g.rank(), " the ", i, ". ")))
           all += text;
       if (g.rank() == g.ranks() - 1) std::printf("%s\n", all.c_str());
     }},
    {"kill",
     [](TcpGroup& g, const Words&, bool chosen) {
       work(g, [&] {
         if (chosen) std::raise(SIGKILL);
       });
     }},
    {"stop",
     [](TcpGroup& g, const Words&, bool chosen) {
       work(g, [&] {
         if (chosen) std::raise(SIGSTOP);
       });
     }},
    {"hang",
     [](TcpGroup& g, const Words&, bool chosen) {
       work(g, [&] {
         if (chosen) block();
       });
     }},
    {"link",
     [](TcpGroup& g, const Words&, bool chosen) {
       work(g, [&] {
         if (!chosen) return;
         g.watch_link([] { return std::string("toy: the cable is out"); });
         block();  // in a collective, for ever
       });
     }},
    {"kill_with_link",
     [](TcpGroup& g, const Words&, bool chosen) {
       work(g, [&] {
         if (chosen) std::raise(SIGKILL);
         g.watch_link([] { return std::string("toy: the other end is gone"); });
       });
     }},
    {"hang_all",
     [](TcpGroup& g, const Words& w, bool) {
       g.report(0, Phase::step);  // the first one is slow
       sleep_for(w.number("first", 0));
       work(g, [] {});
     }},
    {"fail",
     [](TcpGroup& g, const Words&, bool chosen) {
       work(g, [&] {
         if (chosen) g.fail("toy: must be right (1, not 2)");
       });
     }},
    {"fail_all", [](TcpGroup& g, const Words&, bool) { g.fail("toy: nobody is right"); }},
    {"throw",
     [](TcpGroup& g, const Words&, bool chosen) {
       work(g, [&] {
         if (chosen) fail("toy: thrown");
       });
     }},
    {"leave",
     [](TcpGroup&, const Words& w, bool chosen) {
       if (!chosen) sleep_for(w.number("seconds", 1));  // nobody is missed
     }},
    {"leave_early",
     [](TcpGroup& g, const Words&, bool chosen) {
       if (chosen) return;
       g.gather("");
     }},
    {"write",  // rank 0 writes a file while another dies
     [](TcpGroup& g, const Words& w, bool chosen) {
       g.gather("");
       g.report(7, Phase::alone);
       if (chosen) std::raise(SIGKILL);
       if (g.rank() != 0) block();
       sleep_for(1.5);
       std::ofstream(w.values.at("file")) << "whole";
       g.report(8, Phase::batch);
       block();
     }},
    {"signal", [](TcpGroup&, const Words&, bool) { block(); }},
    {"agree",
     [](TcpGroup& g, const Words&, bool chosen) {
       try {
         check_equal(g, {{"version", "1"}, {"config", chosen ? R"({"lr":2})" : R"({"lr":1})"}});
       } catch (const Error& e) {
         g.fail(e.what());
       }
     }},
};

// ---- collectives ---------------------------------------------------------------------------

// What element i of rank r is: small whole numbers, exact in every dtype, and numbers of which
// 16 bits lose much if they round each sum.
float element(int64_t r, int64_t i) {
  constexpr int64_t period = 7;
  if (i % period == 0) return r == 0 ? 256.0f : 0.75f;
  return static_cast<float>((i % period - 3) * (r + 1));
}

template <class T>
std::vector<T> elements(int64_t rank, int64_t count) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(T(element(rank, i)));
  return out;
}

template <class T>
T sum_of(int64_t ranks, int64_t i) {
  float sum = 0;
  for (int64_t r = 0; r < ranks; ++r) sum += static_cast<float>(T(element(r, i)));
  return T(sum);
}

template <class T>
void check_values(std::string_view what, const std::vector<T>& got, auto expected) {
  for (size_t i = 0; i < got.size(); ++i)
    require(static_cast<float>(got[i]) == static_cast<float>(expected(static_cast<int64_t>(i))),
            what, " of ", dtype_of<T>, ": element ", i, " of ", got.size(), " is ",
            static_cast<float>(got[i]), ", not ", static_cast<float>(expected(int64_t(i))));
}

template <class T>
void check_collectives(Communicator& c, int64_t count) {
  const int64_t n = c.ranks(), rank = c.rank();
  const auto sum = [&](int64_t i) { return sum_of<T>(n, i); };
  const std::vector<T> in = elements<T>(rank, count), all = elements<T>(rank, count * n);
  std::vector<T> out(in.size()), in_place = in, rows(all.size()), few(in.begin(), in.begin() + 1);
  const auto operand = [&](const std::vector<T>& from, std::vector<T>& to, int64_t elements) {
    return Communicator::Operand{from.data(), to.data(), elements, dtype_of<T>};
  };
  std::vector<Communicator::Operand> o = {operand(in, out, count),
                                          operand(in_place, in_place, count), operand(few, few, 1),
                                          operand(few, few, 0)};
  c.all_reduce(o);
  check_values("all_reduce", out, sum);
  check_values("all_reduce in place", in_place, sum);
  check_values("a small all_reduce", few, sum);
  o = {operand(all, out, count)};
  c.reduce_scatter(o);
  check_values("reduce_scatter", out, [&](int64_t i) { return sum(rank * count + i); });
  o = {operand(in, rows, count)};
  c.all_gather(o);
  check_values("all_gather", rows, [&](int64_t i) { return T(element(i / count, i % count)); });
  std::vector<T> from = in;
  o = {operand(from, from, count), operand(in, out, count)};
  c.broadcast(o);
  check_values("broadcast in place", from, [](int64_t i) { return T(element(0, i)); });
  check_values("broadcast", out, [](int64_t i) { return T(element(0, i)); });
}

void collectives(TcpGroup& group) try {
  const auto device = backend::cpu::open({.threads = 1});
  device->join(group);
  Communicator& c = *device->communicator();
  for (const int64_t count : {1, 5, 1000}) {
    check_collectives<float>(c, count);
    check_collectives<bf16>(c, count);
    check_collectives<f16>(c, count);
  }
  check_collectives<float>(c, (1 << 20) + 3);  // more than is sent at a time
  std::vector<uint8_t> bytes(static_cast<size_t>(group.ranks()));
  const auto own = static_cast<uint8_t>(group.rank());
  const std::vector<Communicator::Operand> o = {{&own, bytes.data(), 1, DType::u8}};
  c.all_gather(o);
  for (size_t r = 0; r < bytes.size(); ++r) require(bytes[r] == r, "all_gather of bytes");
  if (group.rank() == 0)
    std::printf("%lld ranks agree%s\n", static_cast<long long>(c.ranks()),
                c.description().empty() ? "" : ".");
} catch (const Error& e) {
  group.fail(e.what());
}

int run(int argc, char** argv) {
  Words words = words_of(argc, argv);
  const std::optional<Launch> launch = launch_of(environment());
  if (!launch && words.values.contains("copies")) {
    Copies copies{.ranks = static_cast<int64_t>(words.number("copies", 2))};
    copies.arguments.assign(argv, argv + argc);
    copies.grace = words.number("grace", 20);
    return run_copies(copies);
  }
  const auto group = connect(launch.value_or(Launch{}), limits_of(words));
  const bool chosen = group->rank() == static_cast<int64_t>(words.number("rank", 1));
  if (words.scenario == "collectives")
    collectives(*group);
  else
    scenarios.at(words.scenario)(*group, words, chosen);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ebb: error: %s\n", e.what());
    return 2;
  }
}
