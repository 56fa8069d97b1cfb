#include "train/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/error.h"

namespace ebb::train {
namespace {

constexpr std::array<uint32_t, 256> crc_table = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82f63b78u : 0u);
    table[i] = c;
  }
  return table;
}();

template <class T>
std::string little_endian(T v) {
  static_assert(std::endian::native == std::endian::little);
  std::string out(sizeof v, '\0');
  std::memcpy(out.data(), &v, sizeof v);
  return out;
}

// ---- protobuf: a field is (number << 3 | wire type), then the value -------------------------

std::string varint(uint64_t v) {
  std::string out;
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  return out + static_cast<char>(v);
}

std::string key(int field, int wire) { return varint(static_cast<uint64_t>(field << 3 | wire)); }
std::string varint_field(int field, uint64_t v) { return key(field, 0) + varint(v); }
std::string double_field(int field, double v) { return key(field, 1) + little_endian(v); }
std::string float_field(int field, float v) { return key(field, 5) + little_endian(v); }
std::string bytes_field(int field, std::string_view v) {
  return key(field, 2) + varint(v.size()) + std::string(v);
}

std::string event(double time, int64_t step) {
  return double_field(1, time) + varint_field(2, static_cast<uint64_t>(step));
}

double now() {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "host";
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t c = 0xffffffffu;
  for (const char b : bytes) c = (c >> 8) ^ crc_table[(c ^ static_cast<unsigned char>(b)) & 0xff];
  return ~c;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string tfrecord(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  return length + little_endian(masked_crc32c(length)) + std::string(data) +
         little_endian(masked_crc32c(data));
}

std::string version_event(double time) {
  return double_field(1, time) + bytes_field(3, "brain.Event:2");
}

std::string start_event(double time, int64_t step) {
  constexpr uint64_t start = 1;  // SessionLog::START
  return event(time, step) + bytes_field(7, varint_field(1, start));
}

std::string scalars_event(double time, int64_t step, std::span<const NamedNumber> scalars) {
  std::string values;
  for (const NamedNumber& s : scalars)
    values += bytes_field(1, bytes_field(1, s.name) + float_field(2, static_cast<float>(s.value)));
  return event(time, step) + bytes_field(5, values);
}

TensorBoard::TensorBoard(const std::string& folder, int64_t step)
    : path_(str(folder, "/events.out.tfevents.", static_cast<int64_t>(now()), ".", host_name(), ".",
                ::getpid())),
      out_(path_, std::ios::binary | std::ios::app) {
  require(out_.is_open(), "tensorboard: cannot create (", std::strerror(errno), ")  ", path_);
  write(version_event(now()));
  write(start_event(now(), step));
  flush();
}

void TensorBoard::scalars(int64_t step, std::span<const NamedNumber> scalars) {
  write(scalars_event(now(), step, scalars));
}

void TensorBoard::write(const std::string& event) { out_ << tfrecord(event); }

void TensorBoard::flush() {
  out_.flush();
  require(out_.good(), "tensorboard: cannot write (", std::strerror(errno), ")  ", path_);
}

}  // namespace ebb::train
