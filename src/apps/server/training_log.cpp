#include "apps/server/training_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/parse_json.h"

namespace ebb::server {
namespace {

constexpr size_t longest_line = 1 << 16, block_bytes = 1 << 18;
constexpr size_t marks = 200;  // steps over which the speed is taken

// Whether the object has this number; 1e999 and null are none.
bool take(const nlohmann::json& line, const char* name, double& value) {
  const auto at = line.find(name);
  if (at == line.end() || !at->is_number()) return false;
  value = at->get<double>();
  return std::isfinite(value);
}

}  // namespace

void ThinCurve::add(int64_t step, double value) {
  if (!parts_.empty() && step <= parts_.back().step) return;
  if (parts_.empty() || parts_.back().values == values_a_part_) {
    if (parts_.size() == most) {
      for (size_t i = 0; i < most / 2; ++i) {
        const Part &a = parts_[2 * i], &b = parts_[2 * i + 1];
        parts_[i] = {b.step, (a.mean + b.mean) / 2, std::min(a.least, b.least),
                     std::max(a.greatest, b.greatest), a.values + b.values};
      }
      parts_.resize(most / 2);
      values_a_part_ *= 2;
    }
    parts_.push_back({step, 0, value, value, 0});
  }
  Part& p = parts_.back();
  p.step = step;
  p.mean += (value - p.mean) / static_cast<double>(++p.values);
  p.least = std::min(p.least, value), p.greatest = std::max(p.greatest, value);
}

void TrainingLog::read(const Descriptor& file, int64_t& budget) {
  struct stat facts {};
  if (!file || ::fstat(file.number(), &facts) != 0) {
    *this = TrainingLog();
    return;
  }
  if (facts.st_ino != inode_ || facts.st_dev != device_ || facts.st_size < read_) {
    *this = TrainingLog();
    inode_ = facts.st_ino, device_ = facts.st_dev;
  }
  size_ = facts.st_size;
  changed_ =
      static_cast<double>(facts.st_mtim.tv_sec) + static_cast<double>(facts.st_mtim.tv_nsec) * 1e-9;
  std::string block;
  while (read_ < size_ && budget > 0) {
    block.resize(
        static_cast<size_t>(std::min({size_ - read_, budget, static_cast<int64_t>(block_bytes)})));
    const ssize_t n = ::pread(file.number(), block.data(), block.size(), read_);
    if (n <= 0) return;
    read_ += n, budget -= n;
    add(std::string_view(block).substr(0, static_cast<size_t>(n)));
  }
}

void TrainingLog::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (begun_.size() + part.size() > longest_line) {
      too_long_ = true;
      begun_.clear();
    }
    if (!too_long_) begun_ += part;
    if (end == bytes.npos) return;
    if (too_long_) ++damaged_;
    if (!begun_.empty()) add_line(begun_);
    begun_.clear();
    too_long_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void TrainingLog::add_line(std::string_view text) {
  const auto line = parse_json<nlohmann::json>(text);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer() ||
      line["step"].get<int64_t>() < 0) {
    ++damaged_;
    return;
  }
  const int64_t step = line["step"].get<int64_t>();
  now_.step = std::max(now_.step, step);
  if (take(line, "validation/loss", now_.validation)) {
    now_.validation_step = step;
    validation_.add(step, now_.validation);
  }
  if (!take(line, "loss", now_.loss)) return;
  loss_.add(step, now_.loss);
  recent_.add(now_.loss);
  now_.smoothed_loss = recent_.mean();
  take(line, "lr", now_.lr);
  take(line, "grad_norm", now_.grad_norm);
  if (!take(line, "seconds", now_.seconds)) return;
  if (!lately_.empty() && (step <= lately_.back().step || now_.seconds < lately_.back().seconds))
    lately_.clear();
  lately_.push_back({step, now_.seconds});
  if (lately_.size() > marks) lately_.pop_front();
}

double TrainingLog::seconds_a_step() const {
  if (lately_.size() < 2) return 0;
  const Mark &a = lately_.front(), &b = lately_.back();
  return (b.seconds - a.seconds) / static_cast<double>(b.step - a.step);
}

double TrainingLog::share_read() const {
  return size_ > 0 ? static_cast<double>(read_) / static_cast<double>(size_) : 1;
}

}  // namespace ebb::server
