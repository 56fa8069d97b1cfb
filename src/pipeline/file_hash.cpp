#include "pipeline/file_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "base/error.h"
#include "io/file.h"
#include "runtime/tuner.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

// Path, size and time of the last change: what a line of the cache holds for. "" where there is no
// such file.
std::string identity_of(const std::string& path) {
  std::error_code bad;
  const fs::path whole = fs::canonical(path, bad);
  if (bad || !fs::is_regular_file(whole, bad)) return "";
  const auto bytes = fs::file_size(whole, bad);
  const auto changed = fs::last_write_time(whole, bad).time_since_epoch().count();
  return bad ? "" : str(bytes, ' ', changed, ' ', whole.string());
}

// The last line wins: the file only grows.
std::string kept(const std::string& cache, const std::string& identity) {
  std::ifstream in(cache);
  std::string out;
  constexpr size_t digits = 64;
  for (std::string line; std::getline(in, line);)
    if (line.size() == digits + 1 + identity.size() && line.ends_with(identity))
      out = line.substr(0, digits);
  return out;
}

// Of a safetensors file: its length, and the 8 bytes that say it.
int64_t header_bytes(const std::string& path) {
  const io::ReadFile file = io::ReadFile::open(path, "hash");
  std::array<uint8_t, 8> length{};
  if (file.size() < std::ssize(length)) return 0;
  file.read(0, length);
  uint64_t bytes = 0;
  for (size_t i = length.size(); i-- > 0;) bytes = bytes << 8 | length[i];
  return bytes > static_cast<uint64_t>(file.size()) - length.size()
             ? 0
             : static_cast<int64_t>(bytes + length.size());
}

void keep(const std::string& cache, const std::string& line) {
  try {
    io::make_folder(fs::path(cache).parent_path().string(), "cache");
    io::AppendFile(cache, "cache").write(line + "\n");
  } catch (const Error&) {
    // A cache that cannot be written is no fault: the hash is computed again.
  }
}

}  // namespace

std::string sha256_of(const std::string& path, const std::stop_token& stop, int64_t from,
                      int64_t most) {
  const io::ReadFile file = io::ReadFile::open(path, "hash");
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> sha(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool ok = sha && EVP_DigestInit_ex(sha.get(), EVP_sha256(), nullptr) == 1;
  std::vector<uint8_t> block(size_t{1} << 20);
  const int64_t end = from + std::min(most, std::max<int64_t>(file.size() - from, 0));
  for (int64_t at = from; ok && at < end; at += static_cast<int64_t>(block.size())) {
    if (stop.stop_requested()) return "";
    const auto bytes = std::min(static_cast<size_t>(end - at), block.size());
    file.read(at, {block.data(), bytes});
    ok = EVP_DigestUpdate(sha.get(), block.data(), bytes) == 1;
  }
  std::array<uint8_t, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  ok = ok && EVP_DigestFinal_ex(sha.get(), digest.data(), &length) == 1;
  require(ok, "hash: libcrypto computes no SHA-256  ", path);
  std::string out;
  for (unsigned int i = 0; i < length; ++i)
    for (const int digit : {digest[i] >> 4, digest[i] & 15}) out += "0123456789abcdef"[digit];
  return out;
}

namespace {

// "" where `stop` asked for the end, and of what cannot be read.
std::string kept_or_computed(const std::string& path, HashOf part, const std::stop_token& stop) {
  std::string identity = identity_of(path);
  const std::string cache = cache_path("hashes.txt");
  if (identity.empty()) return "";
  if (part == HashOf::tensors) identity += " tensors";
  std::string hex = cache.empty() ? "" : kept(cache, identity);
  if (!hex.empty()) return hex;
  try {
    hex = sha256_of(path, stop, part == HashOf::tensors ? header_bytes(path) : 0);
  } catch (const Error&) {
    return "";  // whoever loads the file says why it cannot be read
  }
  if (!hex.empty() && !cache.empty()) keep(cache, str(hex, ' ', identity));
  return hex;
}

}  // namespace

FileHash::FileHash(std::string path, HashOf part)
    : work_([this, path = std::move(path), part](const std::stop_token& stop) {
        hex_ = kept_or_computed(path, part, stop);
        done_ = true;
      }) {}

const std::string& FileHash::hex() {
  if (work_.joinable()) work_.join();
  return hex_;
}

}  // namespace ebb
