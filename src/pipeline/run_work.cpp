#include "pipeline/run_work.h"

#include <algorithm>
#include <map>
#include <set>

#include "passes/schedule/hoist.h"
#include "pipeline/component.h"
#include "pipeline/picture_dialect.h"
#include "pipeline/text_to_image.h"

namespace ebb {
namespace {

// What a prompt's encoding, and that of a picture to start from, are taken to be.
constexpr double work_of_text = 1, work_of_encoding = 1;

double flops_of(const Graph& g) {
  double sum = 0;
  for (const Node& n : g.nodes()) sum += cost_of(g.signature(n)).flops;
  return sum;
}

// Counts what is not known yet.
class Flops {
 public:
  explicit Flops(KnownFlops& known) : known_(known) {
    constexpr size_t most = 1000;
    if (known_.size() > most) known_.clear();
  }

  // Of one prediction. What is computed once a run for all of them, of texts and of the images of
  // control networks, is not in it.
  double evaluation(const LoadedModel& m, const std::set<size_t>& controls, const Shape& sample) {
    std::string key = str(&m, ' ', sample);
    for (const size_t c : controls) key += str(' ', c);
    return of(key, [&] {
      const Graph g = network_graph(m, controls, {.height = sample[0], .width = sample[1]});
      return hoist(
                 g,
                 [&](const Source& s) { return s.name != "x" && g.type(s.value).shape.rank() > 2; })
          .step;
    });
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

 private:
  double entry(const Component& c, const EntryCall& call) {
    return of(str(&c, ' ', call.entry, ' ', call.inputs.begin()->second),
              [&] { return entry_graph(*c.model, c.config, call); });
  }
  double of(const std::string& key, const auto& graph) {
    const auto at = known_.find(key);
    return at != known_.end() ? at->second : known_[key] = flops_of(graph());
  }

  KnownFlops& known_;
};

// The control networks that an evaluation of each step has.
std::vector<std::set<size_t>> controls_of(const LoadedModel& m, const RunPass& pass,
                                          const TextToImageRequest& q) {
  const ControlRun run = control_run(pass.run());
  const Discretisation levels = Precond(m.diffusion).levels();
  const bool late = picture_dialect(run.dialect).control_shares == ControlShares::begun_steps;
  std::vector<std::set<size_t>> out(std::max<size_t>(pass.request.call.sigmas.size(), 2) - 1);
  if (pass.refined) return out;
  std::set<size_t> any;
  for (size_t i = 0; i < out.size(); ++i)
    for (size_t k = 0; k < q.controls.size(); ++k) {
      const auto step = static_cast<int64_t>(i) + 1;
      if (takes_part(q.controls[k], late ? std::max<int64_t>(step - 1, 1) : step, run, levels))
        out[i].insert(k), any.insert(k);
    }
  // one plan for all steps
  if (!pass.request.rules.empty() || q.mask) std::ranges::fill(out, any);
  return out;
}

std::vector<double> steps_of(const LoadedModel& m, const RunPass& pass,
                             const ResolvedTextToImage& r, double unit, Flops& flops) {
  const ResolvedRequest& q = pass.request;
  const auto controls = controls_of(m, pass, r.request);
  const double each = static_cast<double>(std::max<int64_t>(q.counts.evaluations, 1)) /
                      static_cast<double>(controls.size()) * (q.guided ? 2 : 1) / unit;
  std::vector<double> out;
  for (const std::set<size_t>& with : controls)
    out.push_back(each * flops.evaluation(m, with, q.sample));
  return out;
}

}  // namespace

double PassWork::of_steps(double share) const {
  double sum = 0, left = share * static_cast<double>(steps.size());
  for (const double step : steps) sum += step * std::clamp(left--, 0.0, 1.0);
  return sum;
}

double RunWork::of_passes() const {
  double sum = 0;
  for (const PassWork& p : passes) sum += p.all();
  return sum;
}

StageWork RunWork::of_run(int64_t count, bool encodes) const {
  const auto n = static_cast<double>(count);
  StageWork out{};
  out[static_cast<size_t>(Stage::text)] = work_of_text;
  if (encodes) out[static_cast<size_t>(Stage::encoding)] = work_of_encoding;
  out[static_cast<size_t>(Stage::sampling)] = n * of_passes();
  out[static_cast<size_t>(Stage::decoding)] = n * decoding;
  return out;
}

RunWork run_work(const CheckpointParts& parts, const ResolvedTextToImage& r, KnownFlops& known) {
  Flops flops(known);
  const std::optional<Hires>& hires = r.request.hires;
  const Shape& s = r.first().sample;
  const double unit = flops.evaluation(parts.denoiser, {}, s) * (r.first().guided ? 2 : 1);
  const int64_t factor = parts.denoiser.model->latents(parts.denoiser.config)->factor;
  RunWork out;
  for (const RunPass& pass : r.passes) {
    PassWork& work = out.passes.emplace_back();
    work.steps = steps_of(pass.refined ? *parts.refiner : parts.denoiser, pass, r, unit, flops);
    if (hires && &pass != r.passes.data() && enlarges_pixels(*hires) && parts.autoencoder) {
      work.decoding = flops.decode(parts.autoencoder->component, s) / unit;
      work.encoding =
          flops.encode(parts.autoencoder->component, pass.request.sample, factor) / unit;
      if (hires->network && parts.hires_upscaler)
        work.enlarging =
            flops.enlarge(parts.hires_upscaler->component, s[0] * s[1] * factor * factor) / unit;
    }
  }
  if (!r.request.pixels) return out;
  const Shape& last = r.passes.back().request.sample;
  double work = flops.decode(parts.autoencoder->component, last);
  if (parts.upscaler)
    work += flops.enlarge(parts.upscaler->component, last[0] * last[1] * factor * factor);
  out.decoding = work / unit;
  return out;
}

}  // namespace ebb
