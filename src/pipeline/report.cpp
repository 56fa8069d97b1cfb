#include "pipeline/report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/median.h"
#include "base/version.h"
#include "io/file.h"
#include "io/image.h"
#include "pipeline/report_data.h"
#include "pipeline/report_style.h"
#include "pipeline/svg.h"
#include "train/metrics.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// ---- text ----------------------------------------------------------------------------------

// 1234567 as 1,234,567.
std::string grouped(int64_t n) {
  std::string out = std::to_string(n);
  for (auto at = static_cast<int64_t>(out.size()) - 3; at > (n < 0 ? 1 : 0); at -= 3)
    out.insert(static_cast<size_t>(at), ",");
  return out;
}

// 1.23 million, 296 million, 12,345.
std::string large(int64_t n) {
  const auto v = static_cast<double>(n);
  if (n >= 1'000'000'000) return short_number(v * 1e-9, 3) + " billion";
  if (n >= 1'000'000) return short_number(v * 1e-6, 3) + " million";
  return grouped(n);
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

// ---- pictures ------------------------------------------------------------------------------

constexpr int64_t small_side = 760;  // pixels: a grid below is shown several times as large

struct Picture {
  std::string bytes;
  int64_t width = 0, height = 0;
  std::map<std::string, std::string> text;  // what was written into it
};

// A picture that is broken is shown as broken.
Picture read_picture(const fs::path& path) {
  Picture p{.bytes = io::read_whole_file(path.string(), "report", int64_t{1} << 28), .text = {}};
  const auto* const data = reinterpret_cast<const uint8_t*>(p.bytes.data());
  if (p.bytes.size() < 24) return p;
  const auto number = [&](size_t at) {
    return int64_t{data[at]} << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3];
  };
  p.width = number(16);
  p.height = number(20);
  try {
    p.text = io::png_text({data, p.bytes.size()}, path.string());
  } catch (const Error&) {
  }
  return p;
}

// `most`: how wide it may become; 0: as wide as the page has room for.
void image(std::ostream& out, const Picture& p, int64_t most, const std::string& alt) {
  const int64_t times =
      p.width > 0 ? std::max<int64_t>(std::min(most, small_side) / p.width, 1) : 1;
  out << "<img" << (p.width < small_side ? " class='small'" : "");
  if (most > 0) out << " width='" << p.width * times << "' height='" << p.height * times << "'";
  out << " alt='" << escape_html(alt) << "' src='data:image/png;base64," << base64(p.bytes) << "'>";
}

std::vector<std::string> row_names(const Picture& p) {
  const auto rows = p.text.find("rows");
  if (rows == p.text.end()) return {};
  try {
    return strings_from_json(rows->second, "rows");
  } catch (const Error&) {
    return {};
  }
}

// "heun, 18 steps, guidance 1, seed 1", of what `ebb sample` wrote into its picture.
std::string how_sampled(const Picture& p) {
  std::string out;
  const auto add = [&](const char* key, const std::string& before, const std::string& behind) {
    if (const auto it = p.text.find(key); it != p.text.end())
      out += (out.empty() ? "" : ", ") + before + it->second + behind;
  };
  add("checkpoint_step", "step ", "");
  add("step", "step ", "");
  add("sampler", "", "");
  add("steps", "", " steps");
  add("guidance", "guidance ", "");
  add("seed", "seed ", "");
  return out;
}

void samples_section(std::ostream& out, const Picture& p) {
  const std::vector<std::string> rows = row_names(p);
  out << "<section><h2>Samples</h2><figure" << (rows.empty() ? ">" : " class='samples'><ol>");
  for (const std::string& name : rows) out << "<li>" << escape_html(name) << "</li>";
  if (!rows.empty()) out << "</ol>";
  image(out, p, small_side, "samples of the model");
  if (const std::string how = how_sampled(p); !how.empty())
    out << "<figcaption>" << escape_html(how) << "</figcaption>";
  out << "</figure></section>";
}

std::vector<fs::path> grids(const fs::path& folder) {
  std::vector<fs::path> out;
  if (fs::is_directory(folder))
    for (const auto& e : fs::directory_iterator(folder))
      if (e.path().extension() == ".png") out.push_back(e.path());
  std::ranges::sort(out);
  return out;
}

// `count` of them, spread over the run.
std::vector<fs::path> some_of(const std::vector<fs::path>& all, size_t count) {
  if (all.size() <= count) return all;
  std::vector<fs::path> out;
  for (size_t i = 0; i < count; ++i) out.push_back(all[i * (all.size() - 1) / (count - 1)]);
  return out;
}

void film_section(std::ostream& out, const std::vector<fs::path>& pictures) {
  if (pictures.empty()) return;
  out << "<section><h2>During training</h2><div class='film'>";
  for (const fs::path& path : some_of(pictures, 8)) {
    const Picture p = read_picture(path);
    const auto step = p.text.find("step");
    const std::string title = step == p.text.end() ? path.stem().string() : "step " + step->second;
    out << "<figure>";
    image(out, p, 0, "samples at " + title);
    out << "<figcaption>" << escape_html(title) << "</figcaption></figure>";
  }
  out << "</div><p class='note'>The same noise each time.</p></section>";
}

// ---- quality -------------------------------------------------------------------------------

struct Metric {
  std::string_view key, title;
  int better = 0;  // 1: higher, -1: lower
  double scale = 1;
  std::string_view unit = "";
};
constexpr Metric metrics[] = {
    {"features", "distances in the features of"},
    {"fid", "FID", -1},
    {"kid", "KID", -1},
    {"frechet_distance", "Fréchet distance", -1},
    {"kernel_distance", "kernel distance", -1},
    {"class_accuracy", "class accuracy of samples", 1, 100, " %"},
    {"classifier_accuracy", "the classifier on real images", 0, 100, " %"},
    {"n", "samples measured"},
    {"held_out", "real images compared with"},
};

std::string cell(const Metric& m, const Json& values) {
  const auto it = values.find(m.key);
  if (it != values.end() && it->is_string()) return escape_html(it->get<std::string>());
  if (it == values.end() || !it->is_number()) return "–";
  if (it->is_number_integer()) return grouped(it->get<int64_t>());
  return short_number(it->get<double>() * m.scale, 4) + std::string(m.unit);
}

// "better by 12 %", where both evaluations have the number and it has a direction.
std::string change(const Metric& m, const Json& before, const Json& after) {
  const auto a = before.find(m.key), b = after.find(m.key);
  if (m.better == 0 || a == before.end() || b == after.end() || !a->is_number() || !b->is_number())
    return "";
  const double was = a->get<double>(), is = b->get<double>(), gain = (is - was) * m.better;
  if (gain == 0 || was == 0) return "";
  const std::string by = m.unit.empty()
                             ? short_number(100 * std::fabs(is - was) / std::fabs(was), 2) + " %"
                             : short_number(std::fabs(is - was) * m.scale, 3) + " points";
  return gain > 0 ? "<span class='better'>better by " + by + "</span>"
                  : "<span class='worse'>worse by " + by + "</span>";
}

// The first evaluation and the last.
void quality_section(std::ostream& out, const RunRecord& run) {
  if (run.measured.empty()) return;
  const Measured &before = run.measured.front(), &after = run.measured.back();
  const bool two = run.measured.size() > 1;
  out << "<section><h2>Quality</h2><div class='scroll'><table><tr><th></th>";
  if (two) out << "<th>" << escape_html(before.title) << "</th>";
  out << "<th>" << escape_html(after.title) << "</th>" << (two ? "<th></th>" : "") << "</tr>";
  for (const Metric& m : metrics) {
    if (!after.values.contains(m.key) && !(two && before.values.contains(m.key))) continue;
    out << "<tr><td>" << m.title
        << (m.better > 0   ? " <span class='usual'>↑ higher is better</span>"
            : m.better < 0 ? " <span class='usual'>↓ lower is better</span>"
                           : "")
        << "</td>";
    if (two) out << "<td>" << cell(m, before.values) << "</td>";
    out << "<td class='new'>" << cell(m, after.values) << "</td>";
    if (two) out << "<td>" << change(m, before.values, after.values) << "</td>";
    out << "</tr>";
  }
  out << "</table></div>";
  for (const std::string& w : run.warnings) out << "<p class='note'>" << escape_html(w) << "</p>";
  out << "</section>";
}

// ---- charts --------------------------------------------------------------------------------

Series series(const std::string& name, const std::string& style, const Curve& c) {
  return {.name = name, .style = style, .x = c.step, .y = c.value};
}

void small_chart(std::ostream& out, const RunRecord& run, const char* key, const char* title,
                 bool log) {
  const Curve& c = run.curve(key);
  if (c.value.size() < 2 || is_constant(c.value)) return;
  Series s = series("", "other", c);
  s.scatter = std::string_view(key) != "lr";
  out << svg_chart({.title = title, .x_label = "step", .log_y = log, .series = {s}});
}

// Whether it is what a run's loss or optimiser tells, and no number of every run.
bool is_told(std::string_view key) {
  constexpr std::string_view usual[] = {"loss", "smoothed", "lr", "grad_norm", "images_per_second"};
  return std::ranges::find(usual, key) == std::end(usual) && key.find('/') == key.npos;
}

void loss_section(std::ostream& out, const RunRecord& run) {
  out << "<section><h2>Loss</h2>";
  Series each = series("each step", "loss", run.curve("loss"));
  each.scatter = true;
  Series smooth = series("smoothed", "smooth", run.curve("smoothed"));
  smooth.untold = true;  // of another number of steps than the loss of the header
  Chart chart{
      .title = "loss", .x_label = "step", .log_y = true, .large = true, .series = {each, smooth}};
  const Curve& held = run.curve("validation/loss");
  if (!held.step.empty()) {
    chart.series.push_back(series("held-out images", "held", held));
    chart.series.back().dots = true;
  }
  out << svg_chart(chart);
  if (!held.step.empty())
    out << "<p class='note'>Held-out images are not trained on. Their loss is that of the averaged "
           "weights, with the same noise each time: where it rises while the other falls, the "
           "model learns its images by heart.</p>";
  out << "<div class='pair'>";
  small_chart(out, run, "lr", "learning rate", false);
  small_chart(out, run, "grad_norm", "gradient norm", true);
  small_chart(out, run, "images_per_second", "images per second", false);
  for (const auto& [key, curve] : run.curves)
    if (is_told(key)) small_chart(out, run, key.c_str(), key.c_str(), false);
  out << "</div></section>";
}

// ---- the rest ------------------------------------------------------------------------------

std::string fact(const RunRecord& run, const char* key) {
  if (!run.facts.is_object() || !run.facts.contains(key)) return "";
  const Json& v = run.facts[key];
  return v.is_string() ? v.get<std::string>() : v.is_number_integer() ? grouped(v) : v.dump();
}

// A large number; "" if there is none.
std::string count(const RunRecord& run, const char* key) {
  const bool counted = run.facts.is_object() && run.facts.contains(key);
  return counted && run.facts[key].is_number_integer() ? large(run.facts[key].get<int64_t>()) : "";
}

std::string setting(const RunRecord& run, std::string_view section, std::string_view name) {
  for (const Setting& s : run.settings)
    if (s.section == section && s.name == name) return s.value;
  return "";
}

// "344,064, as adapter lora", where not all parameters are trained; else "".
std::string trained(const RunRecord& run) {
  const std::string number = count(run, "trained_parameters"),
                    adapter = setting(run, "network", "adapter");
  if (number.empty() || adapter.empty() || adapter == "none") return number;
  const bool decomposed = setting(run, "network", "decompose") == "true";
  return str(number, ", as adapter ", adapter, decomposed ? ", decomposed" : "");
}

// What lines of text set apart by two spaces, which a page shows as one.
std::string with_dots(std::string text) {
  for (size_t at = text.find("  "); at != text.npos; at = text.find("  ", at))
    text.replace(at, 2, " · ");
  return text;
}

void header(std::ostream& out, const RunRecord& run) {
  out << "<header><h1>" << escape_html(run.name) << "</h1>";
  const std::string data = fact(run, "data"), device = fact(run, "device");
  if (!data.empty()) out << "<p>" << escape_html(with_dots(data)) << "</p>";
  if (!device.empty()) out << "<p>" << escape_html(device) << "</p>";
  out << "<dl class='facts'>";
  const auto show = [&](const char* title, const std::string& value) {
    if (!value.empty())
      out << "<div><dt>" << title << "</dt><dd>" << escape_html(value) << "</dd></div>";
  };
  show("model", setting(run, "train", "model"));
  show("parameters", count(run, "parameters"));
  show("trained", trained(run));
  show("steps", grouped(run.steps));
  show("training time", train::duration_text(run.seconds));
  show("images per second", short_number(median(run.curve("images_per_second").value), 3));
  show("loss",
       str(short_number(run.recent_loss.mean()), " (mean of ", run.recent_loss.steps(), ")"));
  if (const Curve& held = run.curve("validation/loss"); !held.value.empty())
    show("loss, held-out", short_number(held.value.back(), 3));
  show("matrix work in", fact(run, "dtype"));
  show("started", fact(run, "started"));
  show("ebb", fact(run, "ebb"));
  out << "</dl></header>";
}

void settings_table(std::ostream& out, const RunRecord& run, const std::string& section) {
  out << "<h3>" << escape_html(section) << "</h3><table class='settings'>";
  for (const Setting& s : run.settings)
    if (s.section == section)
      out << "<tr><td>" << escape_html(s.name) << "</td><td>" << escape_html(s.value)
          << "</td></tr>";
  out << "</table>";
}

void settings_section(std::ostream& out, const RunRecord& run) {
  if (run.settings.empty()) return;
  out << "<section><h2>Settings</h2>";
  if (std::ranges::any_of(run.settings, &Setting::differs)) {
    out << "<table class='settings'><tr><th>not the default</th><th></th><th>default</th></tr>";
    for (const Setting& s : run.settings)
      if (s.differs)
        out << "<tr><td>" << escape_html(s.name) << "</td><td><b>" << escape_html(s.value)
            << "</b></td><td class='usual'>" << escape_html(s.usual) << "</td></tr>";
    out << "</table>";
  }
  out << "<details><summary>all " << run.settings.size() << " settings</summary>";
  std::string last;
  for (const Setting& s : run.settings)
    if (s.section != last) settings_table(out, run, last = s.section);
  out << "</details></section>";
}

}  // namespace

std::vector<std::string> write_report(const std::string& folder) {
  const fs::path dir(folder);
  const RunRecord run = read_run(folder);
  std::ostringstream out;
  out << "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
         "content='width=device-width,initial-scale=1'><title>"
      << escape_html(run.name) << " · ebb</title><style>" << report_style
      << "</style></head><body><main>";
  header(out, run);
  for (const std::string& fault : run.faults)
    out << "<p class='note'>" << escape_html(fault) << "</p>";
  std::vector<fs::path> pictures = grids(dir / "samples");
  if (fs::exists(dir / "samples.png"))
    samples_section(out, read_picture(dir / "samples.png"));
  else if (!pictures.empty())
    samples_section(out, read_picture(pictures.back()));
  quality_section(out, run);
  loss_section(out, run);
  film_section(out, pictures);
  settings_section(out, run);
  out << "<footer>Written by ebb " << version << "; <code>ebb report " << escape_html(folder)
      << "</code> writes it anew.</footer></main></body></html>\n";
  io::write_whole_file((dir / "report.html").string(), out.str(), "report");
  return run.faults;
}

}  // namespace ebb
