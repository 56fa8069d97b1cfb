#include "pipeline/tensor_cache.h"

#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

constexpr const char *text_key = "ebb.cache", *sum_key = "ebb.checksum";

std::string hex(uint64_t v) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(v));
  return digits;
}

std::string checksum(const NamedTensors& tensors) {
  uint64_t h = 0;
  for (const auto& [name, t] : tensors) {
    h = splitmix64(h ^ fnv1a(str(name, ' ', t.type())));
    h = splitmix64(h ^ fnv1a({static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes())}));
  }
  return hex(h);
}

}  // namespace

TensorCache::TensorCache(Options options) : options_(std::move(options)) {
  io::check_can_fill(options_.folder, "cache_dir");
}

std::string TensorCache::file_of(const std::string& text) const {
  return (fs::path(options_.folder) / (hex(fnv1a(text)) + ".safetensors")).string();
}

bool TensorCache::read(const std::string& text, NamedTensors& out) const {
  const std::string path = file_of(text);
  if (!fs::exists(path)) return false;
  std::string fault;
  try {
    const auto file = io::TensorFile::open(path);
    const auto said = [&](const char* key) {
      const auto it = file.metadata().find(key);
      return it == file.metadata().end() ? std::string() : it->second;
    };
    for (const io::TensorEntry& e : file.entries()) out[e.name] = file.load(e);
    if (said(text_key) != text)
      fault = "is of other settings";
    else if (said(sum_key) != checksum(out))
      fault = "is damaged";
  } catch (const Error& e) {
    fault = str("cannot be read (", e.what(), ")");
  }
  if (fault.empty()) return true;
  out.clear();
  if (options_.say) options_.say(str("cache: a file ", fault, " and is made again  ", path));
  return false;
}

NamedTensors TensorCache::get(const std::string& text, const std::function<NamedTensors()>& make) {
  if (const auto held = held_.find(text); held != held_.end()) return held->second;
  NamedTensors out;
  if (!read(text, out)) {
    out = make();
    write(text, out);
  }
  hold(text, out);
  return out;
}

void TensorCache::write(const std::string& text, const NamedTensors& tensors) {
  if (made_++ == 0) io::make_folder(options_.folder, "cache_dir");
  std::vector<io::NamedTensor> all;
  for (const auto& [name, t] : tensors) all.push_back({name, t});
  io::write_safetensors(file_of(text), all, {{text_key, text}, {sum_key, checksum(tensors)}});
}

void TensorCache::hold(const std::string& text, const NamedTensors& tensors) {
  auto bytes = std::ssize(text);
  for (const auto& [name, t] : tensors) bytes += std::ssize(name) + t.bytes();
  if (held_bytes_ + bytes > options_.memory) {
    holds_all_ = false;
    return;
  }
  held_bytes_ += bytes;
  held_.emplace(text, tensors);
}

std::string hash_text(const WeightStore& weights) {
  constexpr int64_t part = int64_t{1} << 24;
  uint64_t h = 0;
  std::vector<uint8_t> bytes;
  for (const auto& [name, w] : weights.weights()) {
    h = splitmix64(h ^ fnv1a(str(name, ' ', w.type)));
    for (int64_t at = 0; at < w.type.bytes(); at += part) {
      bytes.resize(static_cast<size_t>(std::min(part, w.type.bytes() - at)));
      w.read(at, bytes);
      h = splitmix64(h ^ fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    }
    w.forget();
  }
  return hex(h);
}

}  // namespace ebb
