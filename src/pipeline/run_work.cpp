#include "pipeline/run_work.h"

#include <algorithm>
#include <numeric>

#include "pipeline/component.h"

namespace ebb {
namespace {

// What a prompt's encoding, and that of a picture to start from, are taken to be.
constexpr double work_of_text = 1, work_of_encoding = 1;

double flops_of(const Graph& g) {
  double sum = 0;
  for (const Node& n : g.nodes()) sum += cost_of(g.signature(n)).flops;
  return sum;
}

// Of one prediction; what is computed once a run for all of them is in it.
double evaluation(const LoadedModel& m, const Shape& sample) {
  Graph g;
  network_of(*m.model, m.config)(
      g, network_inputs(g, *m.model, m.config, 1, {.height = sample[0], .width = sample[1]}));
  return flops_of(g);
}

double entry(const Component& c, const EntryCall& call) {
  return flops_of(entry_graph(*c.model, c.config, call));
}

double decode(const Component& c, const Shape& s) {
  return entry(c, {"decode", {{"latents", {1, s[0], s[1], s[2]}}}, {"pixels"}});
}

double encode(const Component& c, const Shape& s, int64_t factor) {
  return entry(c, {"encode", {{"pixels", {1, s[0] * factor, s[1] * factor, 3}}}, {"mean"}});
}

// Convolutions alone: as many times as much as for a small picture as there are more pixels.
double enlarge(const Component& c, int64_t pixels) {
  constexpr int64_t side = 64;
  return entry(c, {"upscale", {{"pixels", {1, side, side, 3}}}, {"pixels"}}) *
         static_cast<double>(pixels) / (side * side);
}

}  // namespace

double RunWork::of_passes() const { return std::accumulate(passes.begin(), passes.end(), 0.0); }

StageWork RunWork::of_run(int64_t count, bool encodes) const {
  const auto n = static_cast<double>(count);
  StageWork out{};
  out[static_cast<size_t>(Stage::text)] = work_of_text;
  if (encodes) out[static_cast<size_t>(Stage::encoding)] = work_of_encoding;
  out[static_cast<size_t>(Stage::sampling)] = n * of_passes();
  out[static_cast<size_t>(Stage::decoding)] = n * decoding;
  return out;
}

RunWork run_work(const CheckpointParts& parts, const std::vector<RunPass>& passes,
                 const std::optional<Hires>& hires, bool pixels) {
  const ResolvedRequest& first = passes.at(0).request;
  const double unit = evaluation(parts.denoiser, first.sample) * (first.guided ? 2 : 1);
  const int64_t factor = parts.denoiser.model->latents(parts.denoiser.config)->factor;
  RunWork out;
  for (const RunPass& pass : passes) {
    const ResolvedRequest& r = pass.request;
    const LoadedModel& m = pass.refined ? *parts.refiner : parts.denoiser;
    double work = static_cast<double>(std::max<int64_t>(r.counts.evaluations, 1)) *
                  evaluation(m, r.sample) * (r.guided ? 2 : 1);
    if (hires && &pass != passes.data() && enlarges_pixels(*hires) && parts.autoencoder) {
      const Shape& s = first.sample;
      work += decode(parts.autoencoder->component, s);
      work += encode(parts.autoencoder->component, r.sample, factor);
      if (hires->network && parts.hires_upscaler)
        work += enlarge(parts.hires_upscaler->component, s[0] * s[1] * factor * factor);
    }
    out.passes.push_back(work / unit);
  }
  if (!pixels) return out;
  const Shape& last = passes.back().request.sample;
  double work = decode(parts.autoencoder->component, last);
  if (parts.upscaler)
    work += enlarge(parts.upscaler->component, last[0] * last[1] * factor * factor);
  out.decoding = work / unit;
  return out;
}

}  // namespace ebb
