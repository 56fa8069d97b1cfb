// TensorBoard event files: TFRecord frames around the few protobuf fields that a scalar needs.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb::train {

// CRC-32C (Castagnoli), and as TFRecord stores it.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

// length u64, its masked CRC u32, data, its masked CRC u32; little-endian.
std::string tfrecord(std::string_view data);

struct NamedNumber {
  std::string_view name;
  double value = 0;
};

// Serialised Event messages (tensorflow/core/util/event.proto). `time` is in seconds since 1970.
std::string version_event(double time);
std::string start_event(double time, int64_t step);  // makes viewers drop what lies behind `step`
std::string scalars_event(double time, int64_t step, std::span<const NamedNumber> scalars);

// Appends events to a new file `<folder>/events.out.tfevents.<seconds>.<host>.<pid>`.
class TensorBoard {
 public:
  // `step` is the first one to come. Throws Error if the file cannot be written.
  TensorBoard(const std::string& folder, int64_t step);
  void scalars(int64_t step, std::span<const NamedNumber> scalars);
  // Throws Error when the disk is full.
  void flush();

 private:
  void write(const std::string& event);
  std::string path_;
  std::ofstream out_;
};

}  // namespace ebb::train
