#include "pipeline/edit_image.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/fields.h"
#include "models/family.h"
#include "pipeline/init_image.h"

namespace ebb {
namespace {

constexpr Branch branches[] = {Branch::cond, Branch::uncond, Branch::partial};

bool reads_partial(const std::vector<RuleCall>& rules) {
  return std::ranges::any_of(rules, [](const RuleCall& r) {
    const std::vector<Branch>& extra = find_guidance_rule(r.rule).extra;
    return std::ranges::find(extra, Branch::partial) != extra.end();
  });
}

class EditMode : public RunMode {
 public:
  EditMode(Tensor pixels, const LatentSpace& space, bool partial)
      : pixels_(std::move(pixels)), space_(space), partial_(partial) {}

  void prepare(const RunTools& tools, RunInputs& inputs) const override {
    Tensor image = tools.encode(pixels_).mean;
    for (float& v : image.span<float>()) v = static_cast<float>(v / space_.scale + space_.shift);
    RunConditions& c = inputs.conditions;
    c.add(nn::concat_image, image);
    const Tensor none(DType::f32, image.shape());
    for (RunConditions::Steps& s : c.steps) {
      if (partial_) s.branches.push_back(s.negative());
      s.branches.at(1).insert_or_assign(std::string(nn::concat_image), none);
    }
    if (partial_) c.branches.push_back({Branch::partial});
  }

 private:
  Tensor pixels_;
  LatentSpace space_;
  bool partial_;  // a branch of the picture without the text
};

}  // namespace

bool edits_images(const LoadedModel& m) { return beside_of(m.config) == Beside::image; }

ResolvedRequest resolve_edit(const LoadedModel& model, GenerateRequest request,
                             const GenerateOptions& options, double image_guidance) {
  require(std::isfinite(image_guidance) && std::abs(image_guidance) <= 1000,
          "generate: --image-guidance must be a number (got ", image_guidance, ")");
  require(options.rules.empty() || image_guidance == default_image_guidance,
          "generate: give --image-guidance (", image_guidance, ") or --rules (", options.rules,
          "), not both: rules may hold dual_cfg:image_guidance_scale=", image_guidance);
  request.branches = {std::begin(branches), std::end(branches)};
  GenerateOptions o = options;
  if (options.rules.empty() && (options.guidance != 1 || image_guidance != 1)) {
    o.rules = str("dual_cfg:scale=", number_text(options.guidance),
                  ",image_guidance_scale=", number_text(image_guidance));
    o.guidance = 1;
  }
  ResolvedRequest out = resolve(model, request, o);
  out.options.rules = options.rules;
  out.options.guidance = options.guidance;
  return out;
}

std::shared_ptr<const RunMode> edit_mode(const Tensor& picture, const LoadedModel& model,
                                         const ResolvedRequest& request) {
  return std::make_shared<EditMode>(signed_pixels(picture), *model.model->latents(model.config),
                                    request.guided && reads_partial(request.rules));
}

}  // namespace ebb
