// Line charts as inline SVG. Colours and fonts are the page's: elements have classes, and a style
// sheet decides (report_style.h).
#pragma once

#include <string>
#include <vector>

namespace ebb {

struct Series {
  std::string name;
  std::string style;  // class of what is drawn
  std::vector<double> x, y;
  bool scatter = false;  // noisy: where points are dense, the span between lowest and highest
  bool dots = false;     // few: marked one by one
  bool untold = false;   // the legend has no last value
};

struct Chart {
  std::string title, x_label;
  bool log_y = false;
  bool large = false;          // as wide as the page: its text is small beside it
  std::vector<Series> series;  // later ones lie above earlier ones
};

// A figure with title, legend (the last value of each series that does not scatter and is not
// untold) and the drawing. Points that are not finite (or not positive on a log axis) are left out;
// the axis leaves out the hundredth of a scattering series that lies lowest and highest. As large
// as a screen is wide, whatever the number of points.
std::string svg_chart(const Chart& chart);

// True if a chart would show one level line.
bool is_constant(const std::vector<double>& values);

// With `digits` significant digits: 0.0213, 1.5e-06, 128.
std::string short_number(double v, int digits = 4);

// Text for HTML and SVG.
std::string escape_html(const std::string& text);

}  // namespace ebb
