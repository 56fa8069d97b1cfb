#include "pipeline/svg.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace ebb {
namespace {

constexpr double width = 720, height = 300, right = 14, top = 10;
constexpr size_t columns = 480;  // points of a line, at most

// Room for the text along the axes.
struct Margins {
  double left, bottom, ticks;  // ticks: from the drawing down to their numbers
};
constexpr Margins margins_of(const Chart& c) {
  return c.large ? Margins{44, 40, 17} : Margins{84, 58, 24};
}

// Maps values to the drawing: low to `from`, high to `to`.
struct Axis {
  double from, to;
  bool log = false;
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  bool shows(double v) const { return std::isfinite(v) && (!log || v > 0); }
  double scaled(double v) const { return log ? std::log10(v) : v; }
  void include(double v) {
    if (!shows(v)) return;
    low = std::min(low, scaled(v));
    high = std::max(high, scaled(v));
  }
  // Room where there is one value only, or none.
  void widen(double margin) {
    if (!(low <= high)) low = 0, high = 1;
    double reach = (high - low) * margin;
    if (high - low <= 1e-6 * std::fabs(high)) reach = log ? 0.1 : std::max(std::fabs(high), 1e-12);
    low -= reach;
    high += reach;
  }
  double at(double v) const {
    const double share = std::clamp((scaled(v) - low) / (high - low), 0.0, 1.0);
    return from + (to - from) * share;
  }
};

// 1, 2 or 5 times a power of ten, for about five ticks.
double tick_step(double span) {
  const double rough = span / 5, power = std::pow(10, std::floor(std::log10(rough)));
  const double m = rough / power;
  return (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10) * power;
}

std::vector<double> linear_ticks(double low, double high) {
  std::vector<double> out;
  const double step = tick_step(high - low);
  for (double v = std::ceil(low / step) * step; v <= high + 1e-9 * step; v += step)
    out.push_back(std::fabs(v) < step * 1e-9 ? 0 : v);
  return out;
}

// Of an axis in powers of ten: as many of 1 to 9 in a decade as there is room for.
std::vector<double> log_ticks(double low, double high) {
  const std::vector<std::vector<double>> ways = {{1}, {1, 3}, {1, 2, 5}, {1, 2, 3, 4, 5, 6, 8}};
  std::vector<double> out;
  for (const auto& way : ways) {
    std::vector<double> ticks;
    for (double decade = std::floor(low); decade <= high; ++decade)
      for (const double m : way)
        if (const double v = decade + std::log10(m); v >= low && v <= high)
          ticks.push_back(m * std::pow(10, decade));
    if (!out.empty() && ticks.size() > 7) break;
    out = std::move(ticks);
  }
  return out.size() >= 2 ? out : linear_ticks(std::pow(10, low), std::pow(10, high));
}

// 0.02, 8e-4, 20000.
std::string tick_text(double v) {
  std::string out = short_number(v, 6);
  if (v == 0 || std::fabs(v) >= 1e-3) return out;
  std::ostringstream s;
  s << std::scientific << std::setprecision(0) << v;
  out = s.str();
  const size_t zero = out.find("e-0");
  return zero == out.npos ? out : out.erase(zero + 2, 1);
}

void draw_axes(std::ostream& out, const Axis& x, const Axis& y, const Chart& chart) {
  const auto [left, bottom, ticks] = margins_of(chart);
  for (const double v : y.log ? log_ticks(y.low, y.high) : linear_ticks(y.low, y.high)) {
    const double at = y.at(v);
    out << "<line class='grid' x1='" << left << "' x2='" << width - right << "' y1='" << at
        << "' y2='" << at << "'/><text x='" << left - 8 << "' y='" << at
        << "' text-anchor='end' dominant-baseline='central'>" << tick_text(v) << "</text>";
  }
  for (const double v : linear_ticks(x.low, x.high))
    out << "<text x='" << x.at(v) << "' y='" << height - bottom + ticks << "' text-anchor='middle'>"
        << tick_text(v) << "</text>";
  out << "<text x='" << width - right << "' y='" << height - 6 << "' text-anchor='end'>"
      << escape_html(chart.x_label) << "</text>";
}

// The points that axes show, in columns of the drawing that have more than one each.
struct Columns {
  std::vector<double> x, last, low, high;
  bool dense = false;
};

Columns columns_of(const Series& s, const Axis& x, const Axis& y) {
  Columns out;
  double before = -1;
  for (size_t i = 0; i < s.x.size(); ++i) {
    if (!x.shows(s.x[i]) || !y.shows(s.y[i])) continue;
    const double column = std::floor((x.at(s.x[i]) - x.from) / (x.to - x.from) * columns);
    const bool same = s.x.size() > columns && !out.x.empty() && column == before;
    before = column;
    if (!same) {
      out.x.push_back(x.at(s.x[i]));
      for (auto* v : {&out.last, &out.low, &out.high}) v->push_back(s.y[i]);
      continue;
    }
    out.dense = true;
    out.last.back() = s.y[i];
    out.low.back() = std::min(out.low.back(), s.y[i]);
    out.high.back() = std::max(out.high.back(), s.y[i]);
  }
  return out;
}

void draw_series(std::ostream& out, const Series& s, const Axis& x, const Axis& y) {
  const Columns c = columns_of(s, x, y);
  const bool band = s.scatter && c.dense;
  out << (band ? "<polygon class='band " : "<polyline class='line ") << s.style << "' points='";
  for (size_t i = 0; i < c.x.size(); ++i)
    out << c.x[i] << ',' << y.at(band ? c.high[i] : c.last[i]) << ' ';
  for (size_t i = c.x.size(); band && i-- > 0;) out << c.x[i] << ',' << y.at(c.low[i]) << ' ';
  out << "'/>";
  for (size_t i = 0; s.dots && i < c.x.size() && c.x.size() <= 40; ++i)
    out << "<circle class='dot " << s.style << "' cx='" << c.x[i] << "' cy='" << y.at(c.last[i])
        << "' r='3'/>";
}

void include_values(Axis& y, const Series& s) {
  std::vector<double> shown;
  for (const double v : s.y)
    if (y.shows(v)) shown.push_back(v);
  if (shown.empty()) return;
  std::ranges::sort(shown);
  const size_t cut = s.scatter ? shown.size() / 100 : 0;
  y.include(shown[cut]);
  y.include(shown[shown.size() - 1 - cut]);
}

std::string legend(const Chart& chart) {
  std::string out;
  for (const Series& s : chart.series) {
    if (s.name.empty()) continue;
    out += "<span class='key " + s.style + "'>" + escape_html(s.name);
    if (!s.scatter && !s.untold && !s.y.empty()) out += " <b>" + short_number(s.y.back()) + "</b>";
    out += "</span>";
  }
  return out;
}

}  // namespace

std::string short_number(double v, int digits) {
  std::ostringstream s;
  s << std::setprecision(digits) << v;
  return s.str();
}

bool is_constant(const std::vector<double>& values) {
  if (values.empty()) return true;
  const auto [low, high] = std::ranges::minmax(values);
  return !(high - low > 1e-9 * std::fabs(high));
}

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

std::string svg_chart(const Chart& chart) {
  const Margins m = margins_of(chart);
  Axis x{.from = m.left, .to = width - right}, y{.from = height - m.bottom, .to = top};
  y.log = chart.log_y;
  for (const Series& s : chart.series) {
    for (const double v : s.x) x.include(v);
    include_values(y, s);
  }
  x.widen(0);
  y.widen(0.04);
  std::ostringstream out;
  const std::string title = escape_html(chart.title);
  out << std::fixed << std::setprecision(1) << "<figure class='chart"
      << (chart.large ? " large" : "") << "'><figcaption>"
      << (chart.large ? "" : "<b>" + title + "</b>") << legend(chart)
      << "</figcaption><svg viewBox='0 0 " << width << ' ' << height << "' role='img' aria-label='"
      << title << "'>";
  draw_axes(out, x, y, chart);
  for (const Series& s : chart.series) draw_series(out, s, x, y);
  out << "</svg></figure>";
  return out.str();
}

}  // namespace ebb
