// Line charts as inline SVG.
#pragma once

#include <string>
#include <vector>

namespace ebb {

struct Series {
  std::string name, colour;
  std::vector<double> x, y;
};

struct Chart {
  std::string title, x_label;
  bool log_y = false;
  std::vector<Series> series;
};

// Points that are not finite (or not positive on a log axis) are left out.
std::string svg_chart(const Chart& chart);

// Text for HTML and SVG.
std::string escape_html(const std::string& text);

}  // namespace ebb
