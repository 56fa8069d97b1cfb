#include "train/model_weights.h"

#include <cmath>
#include <mutex>
#include <set>

#include "base/error.h"
#include "core/chunks.h"
#include "core/host_memory.h"
#include "core/not_finite.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "nn/storage.h"

namespace ebb::train {
namespace {

using io::TensorEntry;
using io::TensorFile;

float element(const Type& type, const void* data, int64_t at) {
  return visit_dtype(type.dtype, [&](auto zero) {
    return static_cast<float>(static_cast<const decltype(zero)*>(data)[at]);
  });
}

[[noreturn]] void fail_not_finite(const std::string& wrong, const std::string& path) {
  fail("checkpoint: weights must be finite (", wrong, ")  ", path);
}

std::string not_finite_text(const std::string& name, float value, int64_t at) {
  return str(name, " has ", std::isnan(value) ? NAN : value, " as element ", at);
}

// Tensors that are read as the file has them, one after another and each by several threads.
class FiniteCheck {
 public:
  FiniteCheck(const TensorFile& file, const std::string& path, int64_t all,
              const ByteProgress& progress)
      : file_(file), path_(path), all_(all), progress_(progress) {}

  void check(const TensorEntry& e) {
    constexpr int64_t chunk = int64_t{1} << 20;
    in_chunks(e.end - e.begin, chunk, [&](int64_t at, int64_t count) {
      thread_local std::vector<uint8_t> part(static_cast<size_t>(chunk));
      const std::span<uint8_t> bytes(part.data(), static_cast<size_t>(count));
      file_.read(e, at, bytes);
      const int64_t size = size_of(*e.dtype);
      const Type type{*e.dtype, {count / size}};
      const int64_t bad = find_not_finite(type, bytes.data());
      const std::scoped_lock lock(mutex_);
      if (bad >= 0)
        fail_not_finite(not_finite_text(e.name, element(type, bytes.data(), bad), at / size + bad),
                        path_);
      done_ += count;
      if (progress_) progress_(done_, all_);
    });
  }

 private:
  const TensorFile& file_;
  const std::string& path_;
  int64_t all_, done_ = 0;
  const ByteProgress& progress_;
  std::mutex mutex_;
};

nn::FileTensors tensors_of(const TensorFile& file, const TensorNames& names) {
  return {.shapes = shapes_of(file),
          .prefix = names.prefix,
          .ignored = names.ignored,
          .places = names.places,
          .alone = names.alone};
}

bool kept_as_stored(const TensorEntry& e) {
  return TensorFile::as_stored(e) && nn::storage_format(*e.dtype);
}

// Of a part of the rows, only these are read.
StoredWeight stored_in(const std::shared_ptr<const TensorFile>& file, const TensorEntry& e,
                       const nn::Weight& w, const nn::FilePlace& place) {
  StoredWeight out;
  const int64_t rows = place.parts > 1 ? e.shape[0] / place.parts : 0, first = place.part * rows;
  const auto part = [&](const Tensor& t) { return rows > 0 ? t.rows(first, first + rows) : t; };
  if (kept_as_stored(e)) {
    Type type{*e.dtype, e.shape};
    if (rows > 0) type.shape[0] = rows;
    const int64_t begin = place.part * type.bytes();
    const Tensor host = file->map(e);
    out = {.type = type,
           .read = [file, &e, begin](int64_t at,
                                     std::span<uint8_t> to) { file->read(e, begin + at, to); },
           .host = host.defined() ? part(host) : host};
    if (host.defined())
      out.forget = [mapped = out.host] { io::ReadFile::forget(mapped.raw(), mapped.bytes()); };
  } else {
    const Tensor read = file->load(e);
    out = stored_tensor(part(nn::storage_format(read.dtype()) ? read : read.to(DType::f32)));
  }
  out.transposed = place.transposed;
  out.decode = [w, turned = place.transposed](Value v) { return nn::decode(w, v, turned); };
  return out;
}

}  // namespace

std::string not_finite_in(const std::string& name, const Tensor& t) {
  const int64_t at = find_not_finite(t.type(), t.raw());
  return at < 0 ? "" : not_finite_text(name, element(t.type(), t.raw(), at), at);
}

void check_finite(const std::string& name, const Tensor& t, const std::string& path) {
  const std::string wrong = not_finite_in(name, t);
  if (!wrong.empty()) fail_not_finite(wrong, path);
}

Tensor rounded(const std::string& name, const Tensor& t, DType dtype, std::string_view subject) {
  if (t.dtype() == dtype) return t;
  Tensor out = t.to(dtype);
  const int64_t at = find_not_finite(out.type(), out.raw());
  require(at < 0 || !not_finite_in(name, t).empty(), subject, ": ", name, " has numbers beyond ",
          name_of(dtype), " (element ", at,
          at < 0 ? "" : str(" is ", element(t.type(), t.raw(), at)), ")");
  return out;
}

int64_t host_bytes(const nn::Weights& weights, int64_t copies) {
  int64_t bytes = 0;
  for (const nn::Weight& w : weights)
    bytes += (w.trained ? copies : 1) * Type{DType::f32, w.shape}.bytes();
  return bytes;
}

void check_host_memory(int64_t bytes, std::string_view what) {
  const int64_t free = free_host_memory();
  require(bytes <= free, what, " must fit into the machine's memory (", bytes / 1000000, " MB, ",
          free / 1000000, " MB are free)");
}

nn::FileShapes shapes_of(const TensorFile& file) {
  nn::FileShapes out;
  for (const TensorEntry& e : file.entries()) out.emplace(e.name, e.shape);
  return out;
}

NamedTensors load_model_weights(const std::string& path, const nn::Weights& weights,
                                const TensorNames& names) {
  const auto file = TensorFile::open(path);
  const nn::FileTensors tensors = tensors_of(file, names);
  nn::match_weights(weights, tensors);  // before memory is asked for
  check_host_memory(host_bytes(weights, 1), "checkpoint: weights");
  const auto load = [&](const std::string& name) { return file.load(name); };
  NamedTensors out;
  for (auto& [name, t] : nn::load_weights(weights, tensors, load)) {
    check_finite(name, t, path);
    out.emplace(name, std::move(t));
  }
  return out;
}

std::shared_ptr<WeightStore> described_weights(const nn::Weights& weights) {
  WeightStore::Weights out;
  for (const nn::Weight& w : weights)
    out[w.name] = {.type = {DType::f32, nn::file_shape(w)},
                   .read = [](int64_t, std::span<uint8_t>) { fail("weights: come from no file"); },
                   .host = {},
                   .decode = [w](Value v) { return nn::decode(w, v); }};
  return std::make_shared<WeightStore>(std::move(out));
}

std::shared_ptr<WeightStore> open_model_weights(const std::string& path, const nn::Weights& weights,
                                                const TensorNames& names,
                                                const ByteProgress& progress) {
  return open_model_weights(std::make_shared<const TensorFile>(TensorFile::open(path)), path,
                            weights, names, progress);
}

std::shared_ptr<WeightStore> open_model_weights(std::shared_ptr<const TensorFile> file,
                                                const std::string& path, const nn::Weights& weights,
                                                const TensorNames& names,
                                                const ByteProgress& progress) {
  const nn::FileTensors tensors = tensors_of(*file, names);
  WeightStore::Weights out;
  for (const nn::Weight* w : nn::match_weights(weights, tensors))
    out.emplace(w->name, stored_tensor(nn::initial_tensor(*w, 0)));
  std::set<const TensorEntry*> entries;
  int64_t all = 0;
  for (const nn::Weight& w : weights)
    if (!out.contains(w.name))
      if (const auto& e = file->find(tensors.place(w.name).name); entries.insert(&e).second)
        all += e.end - e.begin;
  FiniteCheck finite(*file, path, all, progress);
  for (const nn::Weight& w : weights) {
    if (out.contains(w.name)) continue;
    const nn::FilePlace place = tensors.place(w.name);
    const TensorEntry& e = file->find(place.name);
    StoredWeight stored = stored_in(file, e, w, place);
    if (!kept_as_stored(e))
      check_finite(e.name, stored.host, path);
    else if (entries.erase(&e) > 0)
      finite.check(e);
    out.emplace(w.name, std::move(stored));
  }
  return std::make_shared<WeightStore>(std::move(out));
}

}  // namespace ebb::train
