// Files of torch.save: a zip archive (since 1.6) or pickles one behind another with the storages
// after them. Both hold a pickled object that names its tensors' storages, offsets and strides.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "io/json_cursor.h"
#include "io/pickle.h"
#include "io/safetensors_header.h"
#include "io/tensor_header.h"
#include "io/torch_callables.h"
#include "io/torch_objects.h"
#include "io/zip_directory.h"

namespace ebb::io {
namespace {

using Kind = PickleNode::Kind;

constexpr int64_t pickle_limit = int64_t{64} << 20;
constexpr std::string_view zip_magic = "PK\x03\x04";
// The first object of the older format: torch's magic number.
constexpr std::string_view legacy_magic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

std::string head_of(const ReadFile& file, size_t size) {
  std::string out(std::min(size, static_cast<size_t>(file.size())), '\0');
  file.read(0, {reinterpret_cast<uint8_t*>(out.data()), out.size()});
  return out;
}

std::vector<uint8_t> bytes_of(const ReadFile& file, int64_t begin, int64_t end) {
  std::vector<uint8_t> out(static_cast<size_t>(end - begin));
  file.read(begin, out);
  return out;
}

TensorHeader header_of(const Pickle& pickle, const TorchStorages& storages, const ReadFile& file,
                       const TensorFileOptions& options) {
  check_callables(pickle, file.name());
  return torch_tensors(pickle, storages, file.name(), options);
}

// ---- zip -----------------------------------------------------------------------------------

TensorHeader read_zip(const ReadFile& file, const TensorFileOptions& options) {
  constexpr std::string_view object = "data.pkl";
  const std::vector<ZipEntry> entries = read_zip_directory(file);
  const ZipEntry* data = nullptr;
  for (const ZipEntry& e : entries) {
    const size_t slash = e.name.find('/');
    if (slash == std::string::npos || std::string_view(e.name).substr(slash + 1) != object)
      continue;
    require(!data, "torch: the archive must have one data.pkl  ", file.name());
    data = &e;
  }
  require(data, "torch: is a zip archive without the data.pkl of torch.save  ", file.name());
  require(data->end - data->begin <= pickle_limit, "torch: data.pkl must have at most ",
          pickle_limit, " bytes (", data->end - data->begin, ")  ", file.name());
  const std::string root = data->name.substr(0, data->name.size() - object.size());
  TorchStorages storages;
  for (const ZipEntry& e : entries) {
    if (e.name == root + "byteorder") {
      const std::vector<uint8_t> order = bytes_of(file, e.begin, std::min(e.end, e.begin + 16));
      require(std::string(order.begin(), order.end()) != "big",
              "torch: must be of a little-endian machine  ", file.name());
    }
    if (e.name.starts_with(root + "data/"))
      storages.emplace(e.name.substr(root.size() + 5), std::pair(e.begin, e.end));
  }
  return header_of(parse_pickle(bytes_of(file, data->begin, data->end), file.name()), storages,
                   file, options);
}

// ---- the older format ----------------------------------------------------------------------

// Objects one behind another from the file's beginning.
class Pickles {
 public:
  explicit Pickles(const ReadFile& file)
      : file_(file), bytes_(bytes_of(file, 0, std::min(file.size(), first_bytes))) {}

  Pickle next() {
    for (;;) {
      try {
        Pickle out = parse_pickle(std::span(bytes_).subspan(at_), file_.name());
        at_ += out.bytes;
        return out;
      } catch (const Error&) {  // it may be that more of the file has to be read
        const auto have = static_cast<int64_t>(bytes_.size());
        if (have == std::min(file_.size(), pickle_limit)) throw;
        bytes_ = bytes_of(file_, 0, std::min(file_.size(), pickle_limit));
      }
    }
  }
  int64_t place() const { return static_cast<int64_t>(at_); }

 private:
  static constexpr int64_t first_bytes = int64_t{2} << 20;
  const ReadFile& file_;
  std::vector<uint8_t> bytes_;
  size_t at_ = 0;
};

void check_system(const Pickle& system, const ReadFile& file) {
  const PickleNode& info = system[system.root];
  for (size_t i = 0; info.kind == Kind::dict && i + 1 < info.items.size(); i += 2)
    if (system[info.items[i]].text == "little_endian")
      require(system[info.items[i + 1]].integer == 1, "torch: must be of a little-endian machine  ",
              file.name());
}

// Behind the pickles stand, for each key, the number of elements and these.
TorchStorages legacy_storages(const Pickle& object, const Pickle& keys, int64_t at,
                              const ReadFile& file) {
  std::unordered_map<std::string, int64_t> sizes;  // of an element
  for (const PickleNode& n : object.nodes)
    if (n.kind == Kind::persistent) {
      const TorchStorage s = torch_storage(object, n, file.name());
      sizes.emplace(s.key, s.element);
    }
  TorchStorages out;
  const PickleNode& list = keys[keys.root];
  require(list.kind == Kind::list, "torch: must have a list of storages  ", file.name());
  for (const uint32_t item : list.items) {
    const std::string& key = keys[item].text;
    const auto size = sizes.find(key);
    require(size != sizes.end(), "torch: has a storage that no tensor has named  ", file.name());
    const std::vector<uint8_t> count = bytes_of(file, at, at + 8);
    int64_t bytes = 0;
    std::memcpy(&bytes, count.data(), sizeof bytes);
    at += 8;
    const bool fits = bytes >= 0 && !__builtin_mul_overflow(bytes, size->second, &bytes) &&
                      bytes <= file.size() - at;
    require(fits, "torch: storage ", shown(key), " must lie within the file (", file.size() - at,
            " bytes are left)  ", file.name());
    out.emplace(key, std::pair(at, at + bytes));
    at += bytes;
  }
  return out;
}

// Behind the magic number stands the protocol.
TensorHeader read_legacy(Pickles& pickles, const ReadFile& file, const TensorFileOptions& options) {
  pickles.next();
  check_system(pickles.next(), file);
  const Pickle object = pickles.next();
  check_callables(object, file.name());
  const Pickle keys = pickles.next();
  return header_of(object, legacy_storages(object, keys, pickles.place(), file), file, options);
}

}  // namespace

// A pickle's first bytes as the length of a safetensors header are more than any has.
bool is_torch(const ReadFile& file) {
  const std::string head = head_of(file, 8);
  if (head.starts_with(zip_magic)) return true;
  uint64_t length = 0;
  if (head.size() == sizeof length) std::memcpy(&length, head.data(), sizeof length);
  return length > uint64_t{safetensors_header_limit} && head[0] == '\x80' && head[1] <= 5;
}

TensorHeader read_torch(const ReadFile& file, const TensorFileOptions& options) {
  if (head_of(file, zip_magic.size()) == zip_magic) return read_zip(file, options);
  Pickles pickles(file);
  const Pickle first = pickles.next();
  if (first[first.root].text == legacy_magic) return read_legacy(pickles, file, options);
  // What is pickled without torch.save is shown to be harmful, if it is, before it is refused.
  check_callables(first, file.name());
  fail("torch: is a pickle of Python that torch.save has not written  ", file.name());
}

}  // namespace ebb::io
