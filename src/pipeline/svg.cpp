#include "pipeline/svg.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

namespace ebb {
namespace {

constexpr double width = 640, height = 260, left = 64, right = 12, top = 28, bottom = 40;

// Maps values to pixels.
struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool log = false;
  bool shows(double v) const { return std::isfinite(v) && (!log || v > 0); }
  double value(double v) const { return log ? std::log10(v) : v; }
  void include(double v) {
    low = std::min(low, value(v));
    high = std::max(high, value(v));
  }
  // One value only: from 0 to twice it.
  void widen() {
    if (!(low <= high)) low = 0, high = 1;
    if (high - low > 1e-6 * std::fabs(high)) return;
    const double reach = std::max(std::fabs(high), 1e-12);
    low -= reach;
    high += reach;
  }
  double share(double v) const { return (value(v) - low) / (high - low); }
};

// 1, 2 or 5 times a power of ten, for about five ticks.
double tick_step(double span) {
  const double rough = span / 5, power = std::pow(10, std::floor(std::log10(rough)));
  const double m = rough / power;
  return (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10) * power;
}

std::string tick_text(double v) {
  std::ostringstream s;
  s << std::setprecision(4) << (std::fabs(v) < 1e-15 ? 0 : v);
  return s.str();
}

void draw_y_axis(std::ostream& out, const Axis& y) {
  const double step = tick_step(y.high - y.low), plot = height - top - bottom;
  for (double v = std::ceil(y.low / step) * step; v <= y.high + 1e-9; v += step) {
    const double at = top + plot * (1 - (v - y.low) / (y.high - y.low));
    out << "<line x1='" << left << "' x2='" << width - right << "' y1='" << at << "' y2='" << at
        << "' stroke='#e4e4e7'/><text x='" << left - 6 << "' y='" << at + 4
        << "' text-anchor='end'>" << tick_text(y.log ? std::pow(10, v) : v) << "</text>";
  }
}

void draw_x_axis(std::ostream& out, const Axis& x, const std::string& label) {
  const double step = tick_step(x.high - x.low), plot = width - left - right;
  for (double v = std::ceil(x.low / step) * step; v <= x.high + 1e-9; v += step) {
    const double at = left + plot * (v - x.low) / (x.high - x.low);
    out << "<text x='" << at << "' y='" << height - bottom + 16 << "' text-anchor='middle'>"
        << tick_text(v) << "</text>";
  }
  out << "<text x='" << (left + width - right) / 2 << "' y='" << height - 6
      << "' text-anchor='middle' fill='#71717a'>" << escape_html(label) << "</text>";
}

}  // namespace

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
  Axis x, y{.log = chart.log_y};
  for (const Series& s : chart.series)
    for (size_t i = 0; i < s.x.size(); ++i) {
      if (!x.shows(s.x[i]) || !y.shows(s.y[i])) continue;
      x.include(s.x[i]);
      y.include(s.y[i]);
    }
  x.widen();
  y.widen();
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << "<svg viewBox='0 0 " << width << ' ' << height
      << "' role='img' aria-label='" << escape_html(chart.title) << "'><text x='" << left
      << "' y='18' class='t'>" << escape_html(chart.title) << "</text>";
  draw_y_axis(out, y);
  draw_x_axis(out, x, chart.x_label);
  for (const Series& line : chart.series) {
    out << "<polyline fill='none' stroke-width='1.5' stroke='" << line.colour << "' points='";
    for (size_t i = 0; i < line.x.size(); ++i)
      if (x.shows(line.x[i]) && y.shows(line.y[i]))
        out << left + (width - left - right) * x.share(line.x[i]) << ','
            << top + (height - top - bottom) * (1 - y.share(line.y[i])) << ' ';
    out << "'/>";
  }
  double legend = width - right;
  for (auto line = chart.series.rbegin(); chart.series.size() > 1 && line != chart.series.rend();
       ++line) {
    out << "<text x='" << legend << "' y='18' text-anchor='end' fill='" << line->colour << "'>"
        << escape_html(line->name) << "</text>";
    legend -= 12 + 7 * static_cast<double>(line->name.size());
  }
  out << "</svg>";
  return out.str();
}

}  // namespace ebb
