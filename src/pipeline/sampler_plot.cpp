// The picture of a sampler at work: levels on the left, the ways of points in the plane on the
// right.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/error.h"
#include "base/fields.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/host_latents.h"
#include "pipeline/sampler_facts.h"
#include "pipeline/svg.h"

namespace ebb {
namespace {

constexpr double width = 760, height = 400, panel = 330, top = 48, reach = 2.6;

struct Way {
  std::vector<double> sigmas;               // of the states
  std::vector<std::vector<double>> states;  // [points, 2]
};

// Pixels of a point of the plane. Noisy states are drawn as x / sqrt(1 + sigma^2) (flow: as they
// are), so that all of them fit.
struct Plane {
  bool flow;
  double x(double v, double sigma) const { return width - panel / 2 - 10 + shown(v, sigma); }
  double y(double v, double sigma) const { return top + panel / 2 - shown(v, sigma); }
  double pixels(double length) const { return length / reach * panel / 2; }

 private:
  double shown(double v, double sigma) const {
    return std::clamp(pixels(flow ? v : v / std::hypot(1, sigma)), -panel / 2, panel / 2);
  }
};

Way follow(const PlotRequest& r, const Discretisation& levels) {
  const Blobs data = plane_of_blobs();
  const auto size = static_cast<size_t>(r.points) * 2;
  ImageKeys keys{.seed = static_cast<uint64_t>(r.seed), .images = {0}, .elements = r.points * 2};
  HostLatents<double> latents(
      size,
      [&](std::span<const double> x, double sigma, std::span<double> d, std::span<double> u) {
        r.flow ? data.denoise_flow(x, sigma, d) : data.denoise(x, sigma, d);
        std::copy(d.begin(), d.begin() + static_cast<int64_t>(u.size()), u.begin());
      },
      keyed_noise(keys));
  SampleCall call{.sigmas = noise_levels(r.schedule, levels, {.steps = r.steps}),
                  .options = parse_options(r.options, "plot"),
                  .space = levels.space,
                  .dialect = r.dialect};
  call.table = levels.sigmas;
  std::vector<double> x = initial_noise(keys);
  const double spread = r.flow ? call.sigmas[0] : std::hypot(call.sigmas[0], 1.0);
  for (double& v : x) v *= spread;
  Way way{{call.sigmas[0]}, {x}};
  call.progress = [&](const Progress& p) {
    way.sigmas.push_back(p.sigma);
    way.states.push_back(latents.values(p.x));
    return true;
  };
  sample(r.sampler, latents, latents.put(x), call);
  return way;
}

void draw_levels(std::ostream& out, const std::vector<double>& sigmas) {
  double low = 1e300, high = 0;
  for (const double s : sigmas)
    if (s > 0) low = std::min(low, s), high = std::max(high, s);
  if (high <= low) low = high / 10;
  const double left = 56, wide = panel - 40, last = static_cast<double>(sigmas.size() - 1);
  const auto at_x = [&](size_t i) {
    return left + wide * static_cast<double>(i) / std::max(last, 1.0);
  };
  const auto at_y = [&](double s) {
    return s > 0 ? top + (panel - 30) * std::log(high / s) / std::log(high / low) : top + panel;
  };
  for (double power = std::ceil(std::log10(low)); power <= std::log10(high); ++power) {
    const double tick = std::pow(10, power);
    out << "<line x1='" << left << "' x2='" << left + wide << "' y1='" << at_y(tick) << "' y2='"
        << at_y(tick) << "' stroke='#e4e4e7'/><text x='" << left - 8 << "' y='" << at_y(tick) + 4
        << "' text-anchor='end'>" << number_text(tick) << "</text>";
  }
  if (sigmas.back() == 0)
    out << "<text x='" << left - 8 << "' y='" << top + panel + 4 << "' text-anchor='end'>0</text>";
  out << "<polyline fill='none' stroke='#2563eb' stroke-width='1.5' points='";
  for (size_t i = 0; i < sigmas.size(); ++i) out << at_x(i) << ',' << at_y(sigmas[i]) << ' ';
  out << "'/>";
  for (size_t i = 0; i < sigmas.size(); ++i)
    out << "<circle cx='" << at_x(i) << "' cy='" << at_y(sigmas[i]) << "' r='2.5' fill='#2563eb'/>";
  out << "<text x='" << left << "' y='" << top - 10 << "' class='q'>noise level after each step"
      << "</text>";
}

void draw_plane(std::ostream& out, const Way& way, const Plane& plane) {
  const Blobs data = plane_of_blobs();
  for (size_t k = 0; k < data.weights.size(); ++k)
    for (const double deviations : {2.0, 1.0})
      out << "<circle cx='" << plane.x(data.means[2 * k], 0) << "' cy='"
          << plane.y(data.means[2 * k + 1], 0) << "' r='" << plane.pixels(deviations * data.spread)
          << "' fill='#f59e0b' fill-opacity='0.18'/>";
  for (size_t p = 0; p < way.states[0].size(); p += 2) {
    out << "<polyline fill='none' stroke='#3f3f46' stroke-opacity='0.45' stroke-width='0.8' "
           "points='";
    for (size_t i = 0; i < way.states.size(); ++i)
      out << plane.x(way.states[i][p], way.sigmas[i]) << ','
          << plane.y(way.states[i][p + 1], way.sigmas[i]) << ' ';
    out << "'/><circle r='2.6' fill='#dc2626' cx='"
        << plane.x(way.states.back()[p], way.sigmas.back()) << "' cy='"
        << plane.y(way.states.back()[p + 1], way.sigmas.back()) << "'/>";
  }
  out << "<text x='" << width - panel - 10 << "' y='" << top - 10
      << "' class='q'>from noise to data (dots: where they end)</text>";
}

}  // namespace

std::string sampler_plot(const PlotRequest& r) {
  require(r.steps >= 1 && r.steps <= 1000, "plot: steps must be 1 to 1000 (", r.steps, ")");
  require(r.points >= 1 && r.points <= 1000, "plot: points must be 1 to 1000 (", r.points, ")");
  const Discretisation levels =
      r.flow ? discretisation({.levels = "flow", .shift = 3}) : discretisation({});
  const Way way = follow(r, levels);
  std::ostringstream out;
  out << std::fixed << std::setprecision(1)
      << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " << width << ' ' << height
      << "' font-family='sans-serif' font-size='11' fill='#3f3f46'><style>.q{fill:#71717a}"
         ".t{font-size:15px;font-weight:bold}</style><rect width='"
      << width << "' height='" << height << "' fill='white'/><text x='14' y='22' class='t'>"
      << escape_html(r.sampler) << (r.options.empty() ? "" : " (" + escape_html(r.options) + ")")
      << ", " << escape_html(r.schedule) << ", " << r.steps << " steps" << (r.flow ? ", flow" : "")
      << "</text>";
  draw_levels(out, way.sigmas);
  draw_plane(out, way, {r.flow});
  out << "</svg>\n";
  return out.str();
}

}  // namespace ebb
