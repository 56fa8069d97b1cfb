#include "pipeline/loras.h"

#include <algorithm>
#include <filesystem>

#include "base/by_flag.h"
#include "base/error.h"
#include "base/file_and_numbers.h"
#include "base/names.h"
#include "base/strength.h"
#include "base/text.h"
#include "pipeline/file_purpose.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

// `who`: for errors.
LoraChoice parsed(std::string text, const std::string& who) {
  LoraChoice out{.file = {}, .named_by = who};
  const std::string whole = text;
  constexpr std::string_view blocks = ":lbw=";
  if (const size_t at = text.rfind(blocks); at != std::string::npos) {
    out.blocks = text.substr(at + blocks.size());
    static_cast<void>(adapters::BlockWeights(out.blocks));
    text.resize(at);
  }
  const FileAndNumbers said = file_and_numbers(text, 2, who, "strength");
  require(!said.file.empty(), who, ": must name a file  '", whole, "'");
  out.file = said.file;
  out.strength = said.number(0, out.strength);
  out.text_strength = said.number(1, out.strength);
  for (const double v : {out.strength, out.text_strength})
    require(is_strength(v), who, ": the strength must be a number from ", -most_strength, " to ",
            most_strength, " (got ", v, ")  ", whole);
  return out;
}

std::shared_ptr<const adapters::AdapterFile> opened(const LoraChoice& c) {
  io::TensorFile file = io::TensorFile::open(c.file);
  if (!adapters::is_adapter(file)) fail_kind(c.named_by, ModelKind::adapter, file, c.file);
  return adapters::AdapterFile::from(std::move(file), c.file);
}

bool is_lora_file(const fs::path& path) { return path.extension() == ".safetensors"; }

}  // namespace

std::vector<LoraChoice> parse_loras(std::string_view text, std::string_view flag) {
  std::vector<LoraChoice> out;
  for (const std::string_view one : parted(text, ";"))
    if (!one.empty()) out.push_back(parsed(std::string(one), str("lora: ", flag)));
  return out;
}

LoraChoice find_lora(const text::LoraTag& tag, const std::string& folder) {
  require(!folder.empty(), "lora: <lora:", tag.name, "> needs --lora-dir FOLDER");
  require(fs::is_directory(folder), "lora: --lora-dir is no folder  ", folder);
  std::vector<std::string> files, paths, stems;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied)) {
    std::error_code unreadable;  // of a link that leads nowhere or in a circle
    if (!is_lora_file(entry.path()) || !entry.is_regular_file(unreadable)) continue;
    files.push_back(entry.path().string());
    paths.push_back(entry.path().lexically_relative(folder).replace_extension().generic_string());
    stems.push_back(entry.path().stem().string());
  }
  size_t at = find_name(tag.name, paths);
  if (at == paths.size()) {
    at = find_name(tag.name, stems);
    for (size_t i = at + 1; i < stems.size(); ++i)
      require(stems[i] != stems[at], "lora: <lora:", tag.name, "> may be ",
              std::min(paths[at], paths[i]), " or ", std::max(paths[at], paths[i]),
              ": name it with its folder  ", folder);
  }
  require(at < files.size(), "lora: no file for <lora:", tag.name, ">", suggestion(tag.name, stems),
          "  ", folder);
  return {files[at], tag.strength, tag.text_strength, tag.block_weights,
          str("lora: <lora:", tag.name, ">")};
}

std::vector<adapters::AdapterUse> open_loras(const std::vector<LoraChoice>& choices) {
  std::vector<adapters::AdapterUse> out;
  for (const LoraChoice& c : choices)
    out.push_back({by_flag(c.named_by, [&] { return opened(c); }), c.strength, c.text_strength,
                   c.blocks.empty() ? adapters::BlockWeights() : adapters::BlockWeights(c.blocks)});
  return out;
}

std::vector<adapters::Network> networks_of(const LoadedModel& denoiser,
                                           const std::vector<EncoderRule>& encoders) {
  using Part = adapters::Network::Part;
  std::vector<adapters::Network> out = {
      {Part::denoiser, 1, denoiser.model, denoiser.config, denoiser.weights}};
  for (const EncoderRule& rule : encoders) {
    const Component& c = rule.encoder.component;
    out.push_back({Part::text, rule.reading.number, c.model, c.config, rule.encoder.weights});
  }
  return out;
}

std::vector<adapters::Network> refiner_networks(const CheckpointParts& parts,
                                                const std::vector<EncoderRule>& encoders,
                                                const std::vector<EncoderRule>& refiner_encoders) {
  std::vector<adapters::Network> out = networks_of(*parts.refiner, refiner_encoders);
  std::erase_if(out, [&](const adapters::Network& n) {
    return std::ranges::any_of(
        encoders, [&](const EncoderRule& rule) { return rule.encoder.weights == n.weights; });
  });
  return out;
}

}  // namespace ebb
