#include "train/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/parse_json.h"

namespace ebb::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t most_pending = 1 << 16;  // bytes

struct Kept {
  std::string lines;
  double seconds = 0;   // of the last of them
  int64_t damaged = 0;  // the number of the line that is, from 1
  RecentLoss recent;
};

// The lines of steps up to and with `step`; evaluations of earlier steps may stand behind later
// ones. A line that is no object with a step ends what is kept; it is no damage if a crash cut it
// short, the last one.
Kept lines_until(const std::string& path, int64_t step) {
  std::ifstream in(path);
  Kept out;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const Json j = parse_json<Json>(line);
    if (!j.is_object() || !j.contains("step") || !j["step"].is_number_integer()) {
      out.damaged = in.eof() && number > 1 ? 0 : number;
      break;
    }
    if (j["step"].get<int64_t>() > step) continue;
    if (j.contains("seconds") && j["seconds"].is_number()) out.seconds = j["seconds"].get<double>();
    if (j.contains("loss") && j["loss"].is_number()) out.recent.add(j["loss"].get<double>());
    out.lines += line + '\n';
  }
  return out;
}

// Gives the file another name, which it returns.
std::string put_aside(const std::string& path) {
  std::string aside = path + ".damaged";
  for (int n = 2; std::filesystem::exists(aside); ++n)
    aside = path + ".damaged-" + std::to_string(n);
  std::error_code error;
  std::filesystem::rename(path, aside, error);
  require(!error, "metrics: cannot rename to ", aside, " (", error.message(), ")  ", path);
  return aside;
}

}  // namespace

void RecentLoss::add(double loss) {
  losses_.push_back(loss);
  if (losses_.size() > window) losses_.pop_front();
}

double RecentLoss::mean() const {
  if (losses_.empty()) return 0;
  const double sum = std::accumulate(losses_.begin(), losses_.end(), 0.0);
  return sum / static_cast<double>(losses_.size());
}

std::string metrics_json(const StepMetrics& m) {
  Json j{{"step", m.step},
         {"loss", m.loss},
         {"lr", m.lr},
         {"grad_norm", m.grad_norm},
         {"images_per_second", m.images_per_second},
         {"seconds", m.seconds}};
  for (const NamedNumber& n : m.told) j[std::string(n.name)] = n.value;
  return j.dump();
}

std::string metrics_json(int64_t step, std::span<const NamedNumber> numbers) {
  Json j{{"step", step}};
  for (const NamedNumber& n : numbers) j[std::string(n.name)] = n.value;
  return j.dump();
}

std::string metrics_file(const std::string& folder) {
  return (std::filesystem::path(folder) / "metrics.jsonl").string();
}

void check_can_append_metrics(const std::string& folder) {
  const std::string path = metrics_file(folder);
  if (std::filesystem::exists(path)) io::AppendFile(path, "metrics");
}

void append_metrics(const std::string& folder, int64_t step, std::span<const NamedNumber> numbers) {
  const std::string path = metrics_file(folder);
  if (std::filesystem::exists(path))
    io::AppendFile(path, "metrics").write(metrics_json(step, numbers) + '\n');
}

MetricsLog::MetricsLog(const std::string& folder, int64_t step, bool tensorboard)
    : path_(metrics_file(folder)) {
  const Kept kept = lines_until(path_, step);
  seconds_before_ = kept.seconds;
  recent_ = kept.recent;
  if (kept.damaged > 0)
    warning_ = str("metrics: line ", kept.damaged,
                   " of metrics.jsonl is damaged: it goes on behind "
                   "the lines before, and the old file is kept as ",
                   put_aside(path_));
  io::AtomicFile file(path_, "metrics");
  file.write(kept.lines);
  file.commit();
  file_ = std::make_unique<io::AppendFile>(path_, "metrics");
  if (tensorboard) board_ = std::make_unique<TensorBoard>(folder, step + 1);
}

void MetricsLog::add(const StepMetrics& m) {
  add_line(metrics_json(m));
  recent_.add(m.loss);
  if (!board_) return;
  std::vector<NamedNumber> numbers = {{"train/loss", m.loss},
                                      {"train/lr", m.lr},
                                      {"train/grad_norm", m.grad_norm},
                                      {"train/images_per_second", m.images_per_second}};
  std::vector<std::string> names;
  for (const NamedNumber& n : m.told) names.push_back("train/" + std::string(n.name));
  for (size_t i = 0; i < names.size(); ++i) numbers.push_back({names[i], m.told[i].value});
  board_->scalars(m.step, numbers);
}

void MetricsLog::add(int64_t step, std::span<const NamedNumber> numbers) {
  add_line(metrics_json(step, numbers));
  if (board_) board_->scalars(step, numbers);
}

void MetricsLog::add_line(const std::string& line) {
  pending_ += line + '\n';
  if (pending_.size() > most_pending) write_pending();
}

void MetricsLog::write_pending() {
  file_->write(pending_);
  pending_.clear();
}

void MetricsLog::flush() {
  write_pending();
  if (board_) board_->flush();
}

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0, resident = 0;
  return in >> total >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / 86400, s / 3600 % 24);
}

std::string left_text(std::chrono::steady_clock::time_point start, double share) {
  if (share <= 0 || share >= 1) return "";
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return ", " + duration_text(spent.count() * (1 - share) / share) + " left";
}

std::string progress_line(const Progress& p) {
  std::string out = fmt::format("step {}", p.now.step);
  if (p.steps > 0) out += fmt::format("/{}", p.steps);
  const double rate = p.now.images_per_second;
  out += fmt::format("  loss {:.4f}", p.loss.mean());
  if (p.loss.steps() > 1) out += fmt::format(" (mean of {})", p.loss.steps());
  if (!std::isnan(p.validation.loss)) {
    out += fmt::format("  validation {:.4f}", p.validation.loss);
    if (p.validation.step != p.now.step) out += fmt::format(" (step {})", p.validation.step);
  }
  out += fmt::format("  grad {:.3g}  lr {:.3g}", p.now.grad_norm, p.now.lr);
  for (const NamedNumber& n : p.now.told) out += fmt::format("  {} {:.3g}", n.name, n.value);
  out += fmt::format("  {:.{}f} img/s", rate, rate < 10 ? 2 : 0);
  if (p.seconds_left >= 0) out += "  left " + duration_text(p.seconds_left);
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  out += fmt::format("  memory {:.0f} MB (plan {:.0f}",
                     megabytes(p.device_bytes > 0 ? p.device_bytes : resident_bytes()),
                     megabytes(p.plan_bytes));
  if (p.driver_bytes > 0) out += fmt::format(", driver {:.0f}", megabytes(p.driver_bytes));
  return out + ")";
}

}  // namespace ebb::train
