#include "runtime/tuner.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/random.h"
#include "base/version.h"

namespace ebb {
namespace {

constexpr std::string_view separator = " | ";
constexpr int rounds = 5;
constexpr double hopeless = 1.25;  // times the best

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> out;
  for (size_t at = line.find(separator); at != std::string_view::npos; at = line.find(separator)) {
    out.emplace_back(line.substr(0, at));
    line.remove_prefix(at + separator.size());
  }
  out.emplace_back(line);
  return out;
}

// Never zeros: they run faster than real data.
Tensor random_tensor(const Type& type, uint64_t seed) {
  if (!is_float(type.dtype)) return Tensor(type);
  Tensor t(DType::f32, type.shape);
  fill_uniform({.seed = seed}, 0, t.span<float>());
  return t.to(type.dtype);
}

struct Candidate {
  Tune tune;
  Program program;
  Tensor workspace;
  double best = 1e30;  // seconds
};

double time_once(const Candidate& c, Call call, Device& device) {
  call.workspace = c.workspace.raw();
  const auto start = std::chrono::steady_clock::now();
  c.program.run(call);
  device.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Candidate fastest(std::vector<Candidate> candidates, const Call& call, Device& device) {
  for (Candidate& c : candidates) time_once(c, call, device);  // first runs load code and memory
  for (int r = 0; r < rounds && candidates.size() > 1; ++r) {
    for (Candidate& c : candidates) c.best = std::min(c.best, time_once(c, call, device));
    const double best =
        std::min_element(candidates.begin(), candidates.end(), [](auto& a, auto& b) {
          return a.best < b.best;
        })->best;
    std::erase_if(candidates, [&](const Candidate& c) { return c.best > hopeless * best; });
  }
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](auto& a, auto& b) { return a.best < b.best; });
}

}  // namespace

std::string tune_text(const Tune& tune) {
  std::string s;
  for (const auto& [name, value] : tune.values) s += str(s.empty() ? "" : " ", name, "=", value);
  return s.empty() ? "-" : s;
}

std::string cache_path(std::string_view name) {
  if (const char* x = std::getenv("XDG_CACHE_HOME"); x && *x) return str(x, "/ebb/", name);
  if (const char* h = std::getenv("HOME"); h && *h) return str(h, "/.cache/ebb/", name);
  return "";
}

Tuner::Tuner(std::string path) : path_(std::move(path)) {
  std::ifstream in(path_);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> part = split(line);
    require(part.size() == 5 && part[4].ends_with(" us"), "tuner: line ", number,
            " must have five parts, the last in us  ", path_);
    const double us = parse_number(part[4].substr(0, part[4].size() - 3), "tuner");
    choices_[str(part[0], separator, part[1], separator, part[2])] = {part[3], us};
  }
}

Tune Tuner::choose(const Kernel& kernel, const Signature& sig, Device& device) {
  const std::vector<Tune> space = kernel.space ? kernel.space(sig, device) : std::vector<Tune>{};
  if (space.empty()) return {};
  if (space.size() == 1) return space[0];
  const std::string key = str("ebb ", version, ", ", device.description(), separator, kernel.name,
                              separator, sig.text());
  if (const auto it = choices_.find(key); it != choices_.end())
    for (const Tune& t : space)
      if (tune_text(t) == it->second.tune) return t;
  std::vector<Tensor> memory;
  Call call;
  for (size_t i = 0; i < sig.in.size(); ++i)
    call.in.push_back(memory.emplace_back(random_tensor(sig.in[i], i + 1)).raw());
  for (const Type& t : sig.out) call.out.push_back(memory.emplace_back(t).raw());
  std::vector<Candidate> candidates;
  for (const Tune& t : space) {
    Candidate c{t, kernel.prepare(sig, t, device), {}};
    c.workspace = Tensor(DType::u8, Shape{std::max<int64_t>(c.program.workspace, 1)});
    candidates.push_back(std::move(c));
  }
  const Candidate winner = fastest(std::move(candidates), call, device);
  choices_[key] = {tune_text(winner.tune), winner.best * 1e6};
  ++measured_;
  return winner.tune;
}

void Tuner::save() {
  if (measured_ == saved_ || path_.empty()) return;
  const std::filesystem::path path(path_), temporary = str(path_, ".tmp-", ::getpid());
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream out(temporary);
  out << "# ebb's choices of kernel variants; delete lines to have them measured again\n";
  for (const auto& [key, c] : choices_)
    out << key << separator << c.tune << separator << std::fixed << std::setprecision(1) << c.us
        << " us\n";
  out.close();
  require(out.good(), "tuner: cannot write  ", temporary.string());
  std::filesystem::rename(temporary, path, error);
  require(!error, "tuner: cannot write  ", path_, " (", error.message(), ")");
  saved_ = measured_;
}

}  // namespace ebb
