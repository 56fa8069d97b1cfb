#include "runtime/tuner.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/version.h"
#include "runtime/tune_bench.h"

namespace ebb {
namespace {

constexpr std::string_view separator = " | ";

constexpr std::string_view kernels =
#include "ebb/gen/kernel_pack.inc"
    ;
constexpr const char* presets[] = {
#include "ebb/gen/presets.inc"
    ""};

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> out;
  for (size_t at = line.find(separator); at != std::string_view::npos; at = line.find(separator)) {
    out.emplace_back(line.substr(0, at));
    line.remove_prefix(at + separator.size());
  }
  out.emplace_back(line);
  return out;
}

std::string key_of(std::string_view prefix, const Device& device, const Signature& sig) {
  return str(prefix, ", ", device.description(), separator, sig.text());
}

}  // namespace

std::vector<Choice> candidates_of(std::span<const Kernel* const> kernels, const Signature& sig,
                                  const Device& device) {
  std::vector<Choice> all;
  for (const Kernel* k : kernels) {
    std::vector<Tune> space = k->space ? k->space(sig, device) : std::vector<Tune>{};
    if (space.empty()) space.push_back({});
    for (Tune& t : space) all.push_back({k, std::move(t)});
  }
  return all;
}

std::string choice_text(const Choice& choice) {
  std::string s(choice.kernel->name);
  for (const auto& [name, value] : choice.tune.values) s += str(" ", name, "=", value);
  return s;
}

std::string tuning_key(const Device& device, const Signature& sig) {
  return key_of(str("ebb ", version, "+", kernels), device, sig);
}

std::string cache_path(std::string_view name) {
  if (const char* x = std::getenv("XDG_CACHE_HOME"); x && *x) return str(x, "/ebb/", name);
  if (const char* h = std::getenv("HOME"); h && *h) return str(h, "/.cache/ebb/", name);
  return "";
}

Tuner::Tuner(std::string path, Effort effort) : path_(std::move(path)), effort_(effort) {
  for (const char* text : presets) {
    std::istringstream in(text);
    read(in, "preset");
  }
  std::ifstream in(path_);
  read(in, path_);
}

void Tuner::read(std::istream& in, const std::string& name) {
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> part = split(line);
    require(part.size() == 4 && part[3].ends_with(" us"), "tuner: line ", number,
            " must have four parts, the last in us  ", name);
    const double us = parse_number(part[3].substr(0, part[3].size() - 3), "tuner");
    kept_[str(part[0], separator, part[1])] = {part[2], us};
  }
}

Choice Tuner::choose(std::span<const Kernel* const> kernels, const Signature& sig, Device& device) {
  const std::vector<Choice> all = candidates_of(kernels, sig, device);
  if (all.size() == 1) return all[0];
  const std::string key = tuning_key(device, sig);
  std::vector<std::string> known = {key};
  if (effort_ != Effort::full) known.push_back(key_of("preset", device, sig));
  for (const std::string& k : known)
    if (const auto it = kept_.find(k); it != kept_.end())
      for (const Choice& c : all)
        if (choice_text(c) == it->second.choice) return c;
  if (effort_ == Effort::none) return all[0];
  const Winner w =
      race(all, sig, device, effort_ == Effort::fast ? RaceOptions{} : RaceOptions{12, 1.6});
  kept_[key] = {choice_text(w.choice), w.us};
  ++measured_;
  return w.choice;
}

void Tuner::save() {
  if (measured_ == saved_ || path_.empty()) return;
  const std::filesystem::path path(path_), temporary = str(path_, ".tmp-", ::getpid());
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream out(temporary);
  out << "# ebb's choices of kernel variants; delete lines to have them measured again\n";
  for (const auto& [key, c] : kept_)
    if (!key.starts_with("preset"))
      out << key << separator << c.choice << separator << std::fixed << std::setprecision(1) << c.us
          << " us\n";
  out.close();
  require(out.good(), "tuner: cannot write  ", temporary.string());
  std::filesystem::rename(temporary, path, error);
  require(!error, "tuner: cannot write  ", path_, " (", error.message(), ")");
  saved_ = measured_;
}

}  // namespace ebb
