#include "runtime/tuner.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/temporary.h"
#include "base/version.h"
#include "core/out_of_memory.h"
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

std::string key_of(std::string_view prefix, const Device& device, std::string_view signature) {
  return str(prefix, ", ", device.description(), separator, signature);
}

std::string own_prefix() { return str("ebb ", version, "+", kernels); }

// The likeliest few of each kernel's candidates, as its model orders them; fewer of kernels that
// come later, which serve what the first ones do not or do badly.
std::vector<Choice> likeliest(const std::vector<Choice>& all) {
  constexpr int of_first = 6, of_others = 2;
  std::map<const Kernel*, int> kept;
  std::vector<Choice> out;
  for (const Choice& c : all)
    if (kept[c.kernel]++ < (c.kernel == all[0].kernel ? of_first : of_others)) out.push_back(c);
  return out;
}

// The signature with no more of its expressions than inputs, results and the magnitude of their
// work: uses that share it take the same time by the same kernel, about.
std::string class_text(const Signature& sig) {
  const std::string text = sig.text();
  std::string_view rest = text;
  std::string out;
  for (size_t open; (open = rest.find('<')) != std::string_view::npos;) {
    const size_t end = rest.find('>', open) + 1;
    Expr e;
    e.parse(rest.substr(open, end - open));
    const double work = std::exp2(std::ilogb(e.flops() + 1));
    out += str(rest.substr(0, open), '<', e.inputs(), '|', e.results().size(), '|', work, '>');
    rest.remove_prefix(end);
  }
  out += rest;
  // nor does it matter which columns of an operand are read
  for (const std::string_view columns : {"[columns=", ",columns="})
    if (const size_t at = out.find(columns); at != std::string::npos)
      out.erase(at, out.find(']', at) - at + (columns[0] == '[' ? 1 : 0));
  return out;
}

// Whether it fits into memory for measuring, next to the largest others that fit.
bool fits(const Signature& sig, const Device& device) {
  int64_t bytes = 0;
  for (const Type& t : sig.in) bytes += t.bytes();
  for (const Type& t : sig.out) bytes += t.bytes();
  return bytes < device.free_memory() / 4;
}

// Products of f16 and of bf16 take the same time: what was measured in one, as all presets in bf16
// were, holds for the other.
std::string in_bf16(std::string text) {
  for (size_t at = text.find("f16"); at != std::string::npos; at = text.find("f16", at + 4))
    if (at == 0 || text[at - 1] != 'b') text.insert(at, 1, 'b');
  return text;
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
  return key_of(own_prefix(), device, class_text(sig));
}

std::string cache_path(std::string_view name) {
  if (const char* x = std::getenv("XDG_CACHE_HOME"); x && *x) return str(x, "/ebb/", name);
  if (const char* h = std::getenv("HOME"); h && *h) return str(h, "/.cache/ebb/", name);
  return "";
}

Tuner::Tuner(std::string path, Effort effort) : path_(std::move(path)), effort_(effort) {
  std::ifstream in(path_);
  read(in, path_);
}

std::pair<std::string, Tuner::Kept> Tuner::parsed(std::string_view line, int64_t number,
                                                  const std::string& name) {
  const std::vector<std::string> part = split(line);
  require(part.size() == 4 && part[3].ends_with(" us"), "tuner: line ", number,
          " must have four parts, the last in us  ", name);
  const double us = parse_number(part[3].substr(0, part[3].size() - 3), "tuner");
  return {str(part[0], separator, part[1]), {part[2], us}};
}

// Most processes have one device, and none of most presets.
void Tuner::read_presets(const Device& device) {
  const std::string prefix = key_of("preset", device, "");
  if (!with_presets_.insert(prefix).second) return;
  for (std::string_view left : presets)
    while (!left.empty()) {
      const std::string_view line = left.substr(0, left.find('\n'));
      if (line.starts_with(prefix)) kept_.insert(parsed(line, 0, "presets"));
      left.remove_prefix(std::min(line.size() + 1, left.size()));
    }
}

bool Tuner::read(std::istream& in, const std::string& name) {
  bool changed = false;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    auto [key, read] = parsed(line, number, name);
    Kept& kept = kept_[std::move(key)];
    changed = changed || kept.choice != read.choice;
    kept = std::move(read);
  }
  return changed;
}

std::optional<Choice> Tuner::known(const std::vector<Choice>& all, const Signature& sig,
                                   const Device& device) const {
  std::vector<std::string> prefixes = {own_prefix()};
  std::vector<std::string> signatures = {sig.text(), class_text(sig)};
  if (effort_ != Effort::full) {
    prefixes.emplace_back("preset");
    for (size_t i = 0; i < 2; ++i) signatures.push_back(in_bf16(signatures[i]));
  }
  for (const std::string& prefix : prefixes)
    for (const std::string& signature : signatures)
      if (const auto it = kept_.find(key_of(prefix, device, signature)); it != kept_.end())
        for (const Choice& c : all)
          if (choice_text(c) == it->second.choice) return c;
  return {};
}

std::vector<Choice> Tuner::choose(std::span<const Use> uses, Device& device,
                                  const std::function<void()>& poll) {
  const std::lock_guard lock(choosing_);
  read_presets(device);
  std::map<std::string, Choice> chosen;   // by signature
  std::map<std::string, size_t> waiting;  // by signature: the contest
  std::map<std::string, size_t> alike;    // by what contests have in common
  std::vector<Contest> contests;
  std::vector<std::string> texts;
  for (const Use& use : uses) {
    const std::string& text = texts.emplace_back(use.sig.text());
    if (chosen.contains(text) || waiting.contains(text)) continue;
    std::vector<Choice> all = candidates_of(use.kernels, use.sig, device);
    if (all.size() > 1) {
      if (auto kept = known(all, use.sig, device)) all = {*kept};
    }
    if (effort_ == Effort::fast) all = likeliest(all);
    if (all.size() == 1 || effort_ == Effort::none || !fits(use.sig, device)) {
      chosen[text] = all[0];
      continue;
    }
    std::string common = class_text(use.sig);
    for (const Choice& c : all) common += str(separator, choice_text(c));
    const auto [it, fresh] = alike.try_emplace(common, contests.size());
    if (fresh) contests.push_back({std::move(all), use.sig});
    waiting[text] = it->second;
  }
  const std::vector<Choice> best = winners(contests, device, poll);
  for (const auto& [text, contest] : waiting) chosen[text] = best[contest];
  std::vector<Choice> out;
  for (const std::string& text : texts) out.push_back(chosen.at(text));
  return out;
}

std::vector<Choice> Tuner::winners(const std::vector<Contest>& contests, Device& device,
                                   const std::function<void()>& poll) {
  std::vector<Choice> out;
  if (contests.empty()) return out;
  RaceOptions options = effort_ == Effort::fast ? RaceOptions{} : RaceOptions{12, 1.6};
  options.poll = poll;
  std::vector<Winner> won;
  try {
    won = race(contests, device, options, costs_);
  } catch (const OutOfMemory&) {
    effort_ = Effort::none;  // what is known and the best guesses take no memory
    throw;
  }
  for (size_t i = 0; i < contests.size(); ++i) {
    const Signature& sig = contests[i].sig;
    std::string key = tuning_key(device, sig);
    // of another use of the same class, whose kernels offer other candidates
    if (kept_.contains(key)) key = key_of(own_prefix(), device, sig.text());
    kept_[key] = {choice_text(won[i].choice), won[i].us};
    saved_ = false;
    out.push_back(won[i].choice);
  }
  return out;
}

std::string Tuner::choices_for(const Device& device) const {
  const std::lock_guard lock(choosing_);
  std::ostringstream out;
  write(out, key_of(own_prefix(), device, ""));
  return out.str();
}

bool Tuner::adopt(const std::string& lines) {
  const std::lock_guard lock(choosing_);
  std::istringstream in(lines);
  if (!read(in, "another rank's choices")) return false;
  saved_ = false;
  save_locked();
  return true;
}

void Tuner::save() {
  const std::lock_guard lock(choosing_);
  save_locked();
}

// Those whose keys begin with `prefix`.
void Tuner::write(std::ostream& out, std::string_view prefix) const {
  for (const auto& [key, c] : kept_)
    if (key.starts_with(prefix) && !key.starts_with("preset"))
      out << key << separator << c.choice << separator << std::fixed << std::setprecision(1) << c.us
          << " us\n";
}

void Tuner::save_locked() {
  if (saved_ || path_.empty()) return;
  const std::filesystem::path path(path_), temporary = temporary_name(path_);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream out(temporary);
  out << "# ebb's choices of kernel variants; delete lines to have them measured again\n";
  write(out, "");
  out.close();
  require(out.good(), "tuner: cannot write  ", temporary.string());
  std::filesystem::rename(temporary, path, error);
  require(!error, "tuner: cannot write  ", path_, " (", error.message(), ")");
  saved_ = true;
}

}  // namespace ebb
