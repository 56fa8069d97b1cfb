#include "pipeline/report.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "io/file.h"
#include "pipeline/svg.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string read_text(const fs::path& path) {
  return io::read_whole_file(path.string(), "report", int64_t{1} << 28);
}

std::string base64(const std::string& bytes) {
  static constexpr char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t v = 0;
    for (size_t k = 0; k < 3; ++k)
      v = v << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += k > bytes.size() - i ? '=' : digits[v >> (18 - 6 * k) & 63];
  }
  return out;
}

struct Metrics {
  std::vector<double> step, loss, smooth, lr, speed, seconds;
};

// The lines of metrics.jsonl; one that a crash cut short is passed over.
Metrics read_metrics(const fs::path& path) {
  Metrics m;
  std::istringstream in(read_text(path));
  for (std::string line; std::getline(in, line);) {
    const Json j = Json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("step") || !j.contains("loss") || !j["loss"].is_number())
      continue;
    const auto number = [&](const char* key) {
      return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0.0;
    };
    m.step.push_back(number("step"));
    m.loss.push_back(number("loss"));
    m.lr.push_back(number("lr"));
    m.speed.push_back(number("images_per_second"));
    m.seconds.push_back(number("seconds"));
    const double before = m.smooth.empty() ? m.loss.back() : m.smooth.back();
    m.smooth.push_back(before + 0.1 * (m.loss.back() - before));
  }
  require(!m.step.empty(), "report: no metrics in  ", path.string());
  return m;
}

void table(std::ostream& out, const Json& object) {
  out << "<table>";
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) continue;
    std::ostringstream number;
    if (value.is_number_float()) number << std::setprecision(4) << value.get<double>();
    const std::string text = value.is_number_float() ? number.str()
                             : value.is_string()     ? value.get<std::string>()
                                                     : value.dump();
    out << "<tr><td>" << escape_html(key) << "</td><td>" << escape_html(text) << "</td></tr>";
  }
  out << "</table>";
  for (const auto& [key, value] : object.items()) {
    if (!value.is_object()) continue;
    out << "<h3>" << escape_html(key) << "</h3>";
    table(out, value);
  }
}

void picture(std::ostream& out, const fs::path& path, const std::string& caption) {
  out << "<figure><img alt='" << escape_html(caption) << "' src='data:image/png;base64,"
      << base64(read_text(path)) << "'><figcaption>" << escape_html(caption)
      << "</figcaption></figure>";
}

std::vector<fs::path> grids(const fs::path& folder) {
  std::vector<fs::path> out;
  if (fs::is_directory(folder))
    for (const auto& e : fs::directory_iterator(folder))
      if (e.path().extension() == ".png") out.push_back(e.path());
  std::sort(out.begin(), out.end());
  if (out.size() <= 8) return out;
  std::vector<fs::path> some;  // eight, spread over the run
  for (size_t i = 0; i < 8; ++i) some.push_back(out[i * (out.size() - 1) / 7]);
  return some;
}

void section_if(std::ostream& out, const fs::path& json, const std::string& title) {
  if (!fs::exists(json)) return;
  const Json j = Json::parse(read_text(json), nullptr, false);
  out << "<section><h2>" << title << "</h2>";
  if (j.is_object())
    table(out, j);
  else
    out << "<p>" << escape_html(json.filename().string()) << " is not a JSON object.</p>";
  out << "</section>";
}

constexpr const char* style =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2rem auto;padding:0 1rem;"
    "color:#18181b}h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}h3{font-size:.95rem}"
    "svg{width:100%;max-width:640px;display:block;font:11px system-ui,sans-serif}"
    "svg .t{font-weight:600;font-size:13px}td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
    "td:first-child{color:#71717a}figure{display:inline-block;margin:0 1rem 1rem 0}"
    "img{image-rendering:pixelated;min-width:224px;max-width:100%}"
    "figcaption{color:#71717a;font-size:13px}";

}  // namespace

void write_report(const std::string& folder) {
  const fs::path dir(folder);
  require(fs::exists(dir / "metrics.jsonl"), "report: must be the folder of a run (there is no ",
          "metrics.jsonl in it)  ", folder);
  const Metrics m = read_metrics(dir / "metrics.jsonl");
  std::ostringstream out;
  const std::string name = fs::absolute(dir).lexically_normal().filename().string();
  out << "<!doctype html><html lang='en'><meta charset='utf-8'><title>ebb: " << escape_html(name)
      << "</title><style>" << style << "</style><h1>Training run " << escape_html(name)
      << "</h1><p>" << m.step.back() << " steps in " << static_cast<int64_t>(m.seconds.back())
      << " seconds, last loss " << m.smooth.back() << " (smoothed)</p>";
  section_if(out, dir / "eval.json", "Quality");
  section_if(out, dir / "eval_tenth.json", "Quality after a tenth of the training");
  if (fs::exists(dir / "samples.png")) {
    out << "<section><h2>Samples</h2>";
    picture(out, dir / "samples.png", "the last checkpoint");
    out << "</section>";
  }
  out << "<section><h2>Training</h2>"
      << svg_chart({.title = "loss",
                    .x_label = "step",
                    .series = {{"each step", "#d4d4d8", m.step, m.loss},
                               {"smoothed", "#2563eb", m.step, m.smooth}}})
      << svg_chart({.title = "learning rate",
                    .x_label = "step",
                    .series = {{"", "#059669", m.step, m.lr}}})
      << svg_chart({.title = "images per second",
                    .x_label = "step",
                    .series = {{"", "#d97706", m.step, m.speed}}})
      << "</section>";
  const std::vector<fs::path> pictures = grids(dir / "samples");
  if (!pictures.empty()) out << "<section><h2>Samples during training</h2>";
  for (const fs::path& p : pictures) picture(out, p, p.stem().string());
  if (!pictures.empty()) out << "</section>";
  section_if(out, dir / "config.json", "Settings");
  out << "</html>\n";
  io::AtomicFile file((dir / "report.html").string(), "report");
  file.write(out.str());
  file.commit();
}

}  // namespace ebb
