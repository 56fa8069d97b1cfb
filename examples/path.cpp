// Follows one picture's number from noise to data with ebb's samplers from C++, and prints what the
// sampler does. Build: c++ -std=c++20 path.cpp $(pkg-config --cflags --libs ebb_samplers)
#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/sampler.h"

#include <cstdio>
#include <vector>

int main(int argc, char** argv) try {
  const std::string name = argc > 1 ? argv[1] : "euler_ancestral";
  // Normal data of mean 0.5 and standard deviation 0.1.
  const auto denoise = [](std::span<const double> x, double sigma, std::span<double> d,
                          std::span<double> uncond) {
    const double s2 = 0.01, v = s2 + sigma * sigma;
    for (size_t i = 0; i < x.size(); ++i) d[i] = (s2 * x[i] + sigma * sigma * 0.5) / v;
    std::copy(d.begin(), d.begin() + static_cast<long>(uncond.size()), uncond.begin());
  };
  const std::vector<double> first = ebb::initial_noise({.seed = 7, .images = {0}, .elements = 1});
  ebb::HostLatents<double> latents(1, denoise,
                                   ebb::keyed_noise({.seed = 7, .images = {0}, .elements = 1}));
  ebb::SampleCall call{.sigmas = {10, 5, 2, 1, 0.5, 0.2, 0.1, 0}};
  call.progress = [&](const ebb::Progress& p) {
    std::printf("step %lld of %lld  sigma %-4g  x %9.5f\n", static_cast<long long>(p.step),
                static_cast<long long>(p.steps), p.sigma, latents.values(p.x)[0]);
    return true;
  };
  const ebb::SampleCounts counts = ebb::count(name, call);
  std::printf("%s: %lld evaluations, %lld draws\n", name.c_str(),
              static_cast<long long>(counts.evaluations), static_cast<long long>(counts.draws));
  ebb::sample(name, latents, 10 * latents.put(first), call);
} catch (const ebb::Error& e) {
  std::fprintf(stderr, "path: %s\n", e.what());
  return 1;
}
