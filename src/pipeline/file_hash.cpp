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

void keep(const std::string& cache, const std::string& line) {
  try {
    io::make_folder(fs::path(cache).parent_path().string(), "cache");
    io::AppendFile(cache, "cache").write(line + "\n");
  } catch (const Error&) {
    // A cache that cannot be written is no fault: the hash is computed again.
  }
}

}  // namespace

std::string sha256_of(const std::string& path, const std::stop_token& stop) {
  const io::ReadFile file = io::ReadFile::open(path, "hash");
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> sha(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool ok = sha && EVP_DigestInit_ex(sha.get(), EVP_sha256(), nullptr) == 1;
  std::vector<uint8_t> block(size_t{1} << 20);
  for (int64_t at = 0; ok && at < file.size(); at += static_cast<int64_t>(block.size())) {
    if (stop.stop_requested()) return "";
    const auto bytes = std::min(static_cast<size_t>(file.size() - at), block.size());
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

FileHash::FileHash(std::string path)
    : work_([this, path = std::move(path)](const std::stop_token& stop) {
        const std::string identity = identity_of(path), cache = cache_path("hashes.txt");
        if (identity.empty()) return;
        if (!cache.empty()) hex_ = kept(cache, identity);
        if (!hex_.empty()) return;
        try {
          hex_ = sha256_of(path, stop);
        } catch (const Error&) {
          return;  // whoever loads the file says why it cannot be read
        }
        if (!hex_.empty() && !cache.empty()) keep(cache, str(hex_, ' ', identity));
      }) {}

const std::string& FileHash::hex() {
  if (work_.joinable()) work_.join();
  return hex_;
}

}  // namespace ebb
