// The picture of a sampler at work: levels on the left, the ways of points in the plane on the
// right.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/error.h"
#include "base/fields.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/host_latents.h"
#include "pipeline/resolved_run.h"
#include "pipeline/sampler_facts.h"
#include "pipeline/svg.h"

namespace ebb {
namespace {

constexpr double width = 760, height = 424, panel = 314, top = 66, bottom = top + panel,
                 reach = 2.6;
constexpr double levels_left = 62, levels_wide = 300, plane_left = width - panel - 12;

struct Way {
  std::vector<double> sigmas;               // of the states
  std::vector<std::vector<double>> states;  // [points, 2]
};

// Pixels of a point of the plane. Noisy states are drawn as x / sqrt(1 + sigma^2) (flow: as they
// are), so that all of them fit.
struct Plane {
  bool flow;
  double x(double v, double sigma) const { return plane_left + panel / 2 + shown(v, sigma); }
  double y(double v, double sigma) const { return top + panel / 2 - shown(v, sigma); }
  double pixels(double length) const { return length / reach * panel / 2; }

 private:
  double shown(double v, double sigma) const {
    return std::clamp(pixels(flow ? v : v / std::hypot(1, sigma)), -panel / 2, panel / 2);
  }
};

ResolvedRun resolved(const PlotRequest& r) {
  return resolve_run({.command = "samplers",
                      .sampler = r.sampler,
                      .schedule = r.schedule,
                      .options = r.options,
                      .schedule_options = r.schedule_options,
                      .dialect = r.dialect,
                      .steps = r.steps,
                      .steps_given = r.steps_given,
                      .usual = r.flow ? "flow" : "karras"},
                     r.flow ? discretisation({.levels = "flow", .shift = 3}) : discretisation({}));
}

Way follow(const PlotRequest& r, const ResolvedRun& run) {
  const Blobs data = plane_of_blobs();
  const auto size = static_cast<size_t>(r.points) * 2;
  ImageKeys keys{.seed = r.seed, .images = {0}, .elements = r.points * 2};
  HostLatents<double> latents(
      size,
      [&](std::span<const double> x, double sigma, std::span<double> d, std::span<double> u) {
        r.flow ? data.denoise_flow(x, sigma, d) : data.denoise(x, sigma, d);
        std::copy(d.begin(), d.begin() + static_cast<int64_t>(u.size()), u.begin());
      },
      keyed_noise(keys));
  SampleCall call = run.call;
  std::vector<double> x = initial_noise(keys);
  const double spread = r.flow ? call.sigmas[0] : std::hypot(call.sigmas[0], 1.0);
  for (double& v : x) v *= spread;
  Way way{{call.sigmas[0]}, {x}};
  call.progress = [&](const Progress& p) {
    way.sigmas.push_back(p.sigma);
    way.states.push_back(latents.values(p.x));
    return true;
  };
  sample(run.sampler, latents, latents.put(x), call);
  return way;
}

// ---- levels --------------------------------------------------------------------------------

// Pixels of the levels, logarithmic, with room for 0 below.
struct LevelAxes {
  double low = 1e300, high = 0, last = 1;

  explicit LevelAxes(const std::vector<double>& sigmas) {
    for (const double s : sigmas)
      if (s > 0) low = std::min(low, s), high = std::max(high, s);
    if (high <= low) low = high / 10;
    last = std::max(static_cast<double>(sigmas.size()) - 1, 1.0);
  }
  double x(size_t step) const {
    return levels_left + levels_wide * static_cast<double>(step) / last;
  }
  double y(double s) const {
    return s > 0 ? top + (panel - 34) * std::log(high / s) / std::log(high / low) : bottom;
  }
};

struct Label {
  double x, y;
  const char* anchor;
};
void write(std::ostream& out, const Label& at, const std::string& text, const char* extra = "") {
  out << "<text x='" << at.x << "' y='" << at.y << "' text-anchor='" << at.anchor << "'" << extra
      << ">" << text << "</text>";
}

void draw_level_axes(std::ostream& out, const LevelAxes& axes, bool to_zero) {
  const auto line = [&](double y) {
    out << "<line x1='" << levels_left << "' x2='" << levels_left + levels_wide << "' y1='" << y
        << "' y2='" << y << "' stroke='#e4e4e7'/>";
  };
  for (double power = std::ceil(std::log10(axes.low)); power <= std::log10(axes.high); ++power) {
    const double y = axes.y(std::pow(10, power));
    line(y);
    write(out, {levels_left - 9, y + 5, "end"}, number_text(std::pow(10, power)));
  }
  line(bottom);
  if (to_zero) write(out, {levels_left - 9, bottom + 5, "end"}, "0");
  const auto steps = static_cast<size_t>(axes.last), every = std::max<size_t>((steps + 3) / 4, 1);
  for (size_t i = 0; i + every / 2 < steps; i += every)
    write(out, {axes.x(i), bottom + 19, "middle"}, std::to_string(i));
  write(out, {axes.x(steps), bottom + 19, "middle"}, std::to_string(steps));
  write(out, {levels_left + levels_wide / 2, bottom + 36, "middle"}, "step");
  write(out, {levels_left, top - 12, "start"}, "noise level sigma, logarithmic");
}

void draw_levels(std::ostream& out, const std::vector<double>& sigmas) {
  const LevelAxes axes(sigmas);
  const bool to_zero = sigmas.back() == 0;
  draw_level_axes(out, axes, to_zero);
  const size_t positive = sigmas.size() - (to_zero ? 1 : 0);
  out << "<polyline fill='none' stroke='#2563eb' stroke-width='2' points='";
  for (size_t i = 0; i < positive; ++i) out << axes.x(i) << ',' << axes.y(sigmas[i]) << ' ';
  out << "'/>";
  if (to_zero)  // which a logarithmic axis does not have
    out << "<line x1='" << axes.x(positive - 1) << "' y1='" << axes.y(sigmas[positive - 1])
        << "' x2='" << axes.x(positive) << "' y2='" << bottom
        << "' stroke='#2563eb' stroke-width='2' stroke-dasharray='3 4'/>";
  for (size_t i = 0; i < sigmas.size(); ++i)
    out << "<circle cx='" << axes.x(i) << "' cy='" << axes.y(sigmas[i])
        << "' r='3.5' fill='#2563eb'/>";
}

// ---- ways ----------------------------------------------------------------------------------

void draw_data(std::ostream& out, const Plane& plane) {
  const Blobs data = plane_of_blobs();
  out << "<rect x='" << plane_left << "' y='" << top << "' width='" << panel << "' height='"
      << panel << "' fill='none' stroke='#d4d4d8'/>";
  for (size_t k = 0; k < data.weights.size(); ++k)
    for (const double deviations : {2.0, 1.0})
      out << "<circle cx='" << plane.x(data.means[2 * k], 0) << "' cy='"
          << plane.y(data.means[2 * k + 1], 0) << "' r='" << plane.pixels(deviations * data.spread)
          << "' fill='#f59e0b' fill-opacity='0.28'/>";
  for (const double tick : {-2.0, 0.0, 2.0})
    write(out, {plane.x(tick, 0), bottom + 19, "middle"}, number_text(tick));
  write(out, {plane_left + panel / 2, bottom + 36, "middle"},
        plane.flow ? "orange: the data" : "x / sqrt(1 + sigma&#178;); orange: the data");
}

void draw_plane(std::ostream& out, const Way& way, const Plane& plane) {
  draw_data(out, plane);
  out << "<g fill='none' stroke='#3f3f46' stroke-opacity='0.5'>";
  for (size_t p = 0; p < way.states[0].size(); p += 2) {
    out << "<polyline points='";
    for (size_t i = 0; i < way.states.size(); ++i)
      out << plane.x(way.states[i][p], way.sigmas[i]) << ','
          << plane.y(way.states[i][p + 1], way.sigmas[i]) << ' ';
    out << "'/>";
  }
  out << "</g><g fill='#dc2626'>";
  for (size_t p = 0; p < way.states[0].size(); p += 2)
    out << "<circle r='3.5' cx='" << plane.x(way.states.back()[p], way.sigmas.back()) << "' cy='"
        << plane.y(way.states.back()[p + 1], way.sigmas.back()) << "'/>";
  out << "</g>";
  write(out, {plane_left, top - 12, "start"}, "points from noise to data (red)");
}

std::string title(const PlotRequest& r, const Way& way, const ResolvedRun& run) {
  const bool own_steps = run.sampler.sampler->adaptive;
  return str(escape_html(r.sampler), r.options.empty() ? "" : " (" + escape_html(r.options) + ")",
             ", ", escape_html(run.schedule), ", ", way.sigmas.size() - 1,
             own_steps ? " steps of its own" : " steps", r.flow ? ", flow model" : "");
}

// The same for all plots.
void begin(std::ostream& out) {
  out << std::fixed << std::setprecision(1)
      << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " << width << ' ' << height
      << "' font-family='sans-serif' font-size='15' fill='#3f3f46'><rect width='" << width
      << "' height='" << height << "' rx='8' fill='white'/>";
}

}  // namespace

std::string sampler_plot(const PlotRequest& r) {
  require(r.steps >= 1 && r.steps <= 1000, "plot: steps must be 1 to 1000 (", r.steps, ")");
  require(r.points >= 1 && r.points <= 1000, "plot: points must be 1 to 1000 (", r.points, ")");
  const ResolvedRun run = resolved(r);
  const Way way = follow(r, run);
  std::ostringstream out;
  begin(out);
  write(out, {14, 30, "start"}, title(r, way, run), " font-size='21' font-weight='bold'");
  draw_levels(out, way.sigmas);
  draw_plane(out, way, {r.flow});
  out << "</svg>\n";
  return out.str();
}

bool is_sampler_plot(std::string_view svg) {
  std::ostringstream out;
  begin(out);
  return svg.starts_with(out.str());
}

}  // namespace ebb
