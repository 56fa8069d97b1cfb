#include "adapters/facts.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "adapters/adapters.h"
#include "base/error.h"
#include "base/parse_json.h"
#include "base/text.h"
#include "models/family.h"
#include "train/model_weights.h"

namespace ebb::adapters {
namespace {

using nlohmann::json;

std::string range(const std::vector<double>& values) {
  if (values.empty()) return "";
  const auto [low, high] = std::ranges::minmax(values);
  return low == high ? str(low) : str(low, " to ", high);
}

std::string layers_of(const AdapterFile& file) {
  std::vector<std::pair<std::string, int>> counts;
  for (const FileModule& m : file.modules()) {
    std::string part = Targets::meant(m.module.stem());
    if (part.empty()) part = "a network by itself";
    const auto it = std::ranges::find(counts, part, [](const auto& c) { return c.first; });
    it == counts.end() ? void(counts.emplace_back(part, 1)) : void(++it->second);
  }
  std::vector<std::string> out;
  for (const auto& [part, n] : counts) out.push_back(str(n, " of ", part));
  return listed(out);
}

Network network(Network::Part part, int64_t number, const std::string& preset) {
  const NamedModel m = find_component(preset);
  return described_network(part, number, *m.model, m.config);
}

std::vector<Candidate> published() {
  std::vector<Candidate> out;
  for (const Family* f : all_families())
    for (const auto& [denoiser, name] : f->variants) {
      out.push_back({name, {network(Network::Part::denoiser, 1, denoiser)}});
      for (const FamilyText& t : f->texts)
        out.back().networks.push_back(network(Network::Part::text, t.number, t.encoder));
    }
  return out;
}

// None: it is for another network.
std::optional<Fit> fit_of(const AdapterFile& file, const std::vector<Network>& networks) {
  try {
    return fit_of(file, networks, Targets(networks));
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> fits_of(const AdapterFile& file, const std::vector<Candidate>& models) {
  std::vector<std::string> whole, part;
  for (const auto& [name, networks] : models) {
    const auto fit = fit_of(file, networks);
    if (!fit) continue;
    if (fit->unmatched.empty())
      whole.push_back(name);
    else
      part.push_back(str(name, " in part (", fit->matched, " of ",
                         fit->matched + fit->unmatched.size(), " layers)"));
  }
  return whole.empty() ? part : whole;
}

// The most frequent tags of the pictures that kohya's trainer saw: {"folder": {"tag": count}}.
std::vector<std::string> frequent_tags(const std::string& text) {
  constexpr size_t shown = 12;
  const json j = parse_json(text);
  std::map<std::string, int64_t> counts;
  if (j.is_object())
    for (const json& folder : j)
      if (folder.is_object())
        for (const auto& [tag, count] : folder.items())
          if (count.is_number()) counts[tag] += count.get<int64_t>();
  std::vector<std::pair<std::string, int64_t>> all(counts.begin(), counts.end());
  std::ranges::stable_sort(all, std::greater(), [](const auto& t) { return t.second; });
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min(shown, all.size()); ++i) out.push_back(all[i].first);
  return out;
}

// What the web UI keeps beside a file, as FILE.json.
json beside(const std::string& path) {
  std::ifstream in(std::filesystem::path(path).replace_extension(".json"));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  json j = parse_json(text);
  return j.is_object() ? std::move(j) : json::object();
}

}  // namespace

Network described_network(Network::Part part, int64_t number, const Model& model,
                          const ModelConfig& config) {
  return {part, number, &model, config, train::described_weights(weights_of(model, config))};
}

AdapterFacts facts_of(const AdapterFile& file, std::vector<Candidate> others) {
  AdapterFacts out{.kinds = file.kinds(), .layers = layers_of(file), .unknown = file.unknown()};
  std::vector<double> ranks, alphas;
  for (const FileModule& m : file.modules()) {
    for (const char* role : {"down", "w1_b", "w2_b", "a2"})
      if (m.module.has(role)) {
        ranks.push_back(static_cast<double>(m.module.size(role, 0)));
        break;
      }
    if (m.module.alpha) alphas.push_back(*m.module.alpha);
  }
  out.ranks = range(ranks);
  out.alphas = range(alphas);
  std::vector<Candidate> models = published();
  std::ranges::move(others, std::back_inserter(models));
  out.fits = fits_of(file, models);
  const auto said = [&](const char* key) {
    const auto it = file.metadata().find(key);
    return it == file.metadata().end() ? std::string() : it->second;
  };
  for (const char* key : {"modelspec.architecture", "ss_base_model_version", "ss_sd_model_name"})
    if (const std::string text = said(key); !text.empty())
      out.made_for += (out.made_for.empty() ? "" : ", ") + text;
  const json user = beside(file.path());
  if (const auto it = user.find("activation text"); it != user.end() && it->is_string())
    out.words = {it->get<std::string>()};
  else if (const std::string phrase = said("modelspec.trigger_phrase"); !phrase.empty())
    out.words = {phrase};
  else
    out.words = frequent_tags(said("ss_tag_frequency"));
  if (const auto it = user.find("preferred weight"); it != user.end() && it->is_number())
    out.strength = str(it->get<double>());
  return out;
}

std::vector<std::pair<std::string, std::string>> lines_of(const AdapterFacts& f) {
  std::vector<std::pair<std::string, std::string>> out = {
      {"adapter", f.kinds},
      {"rank", f.ranks.empty() || f.alphas.empty() ? f.ranks : str(f.ranks, ", alpha ", f.alphas)},
      {"layers", f.layers},
      {"fits", f.fits.empty() ? "no network that ebb knows" : listed(f.fits)},
      {"made for", f.made_for},
      {"words", listed(f.words)},
      {"strength", f.strength},
      {"unknown", f.unknown.empty()
                      ? ""
                      : str(f.unknown.size(), " tensors, the first is '", f.unknown[0], "'")}};
  std::erase_if(out, [](const auto& line) { return line.second.empty(); });
  return out;
}

}  // namespace ebb::adapters
