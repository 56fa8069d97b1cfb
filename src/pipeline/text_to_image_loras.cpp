// The LoRAs of a request, in the weights that its networks share.
#include "pipeline/text_to_image.h"

namespace ebb {
namespace {

// Files that were open before stay so, and weights whose changes are the same are not touched.
void apply_changed(const std::vector<adapters::AdapterUse>& wanted,
                   std::vector<adapters::AdapterUse>& before,
                   const std::vector<adapters::Network>& networks, bool keep,
                   const Device& device) {
  if (wanted.empty() && before.empty()) return;
  std::vector<adapters::AdapterUse> uses = wanted;
  for (adapters::AdapterUse& use : uses)
    for (const adapters::AdapterUse& b : before)
      if (b.file->identity() == use.file->identity()) use.file = b.file;
  adapters::apply(uses, networks, keep);
  for (const adapters::Network& n : networks) n.weights->drop_outdated(device);
  before = std::move(uses);
}

}  // namespace

void TextToImage::apply_loras(const ResolvedTextToImage& r) {
  apply_changed(r.loras, loras_, networks_of(parts_.denoiser, r.encoders), options_.keeps_loras,
                *context_.device);
  if (refiner_ && r.request.refine)
    apply_changed(r.refiner_loras, refiner_loras_,
                  refiner_networks(parts_, r.encoders, r.refiner_encoders), options_.keeps_loras,
                  *context_.device);
}

void TextToImage::explain_loss(const ResolvedTextToImage& r, const std::string& error) const {
  const DType dtype = pipeline_.dtype_of(r.first());
  std::string why =
      adapters::overflow_of(r.loras, networks_of(parts_.denoiser, r.encoders), dtype, context_);
  if (why.empty() && !r.refiner_loras.empty())
    why = adapters::overflow_of(
        r.refiner_loras, refiner_networks(parts_, r.encoders, r.refiner_encoders), dtype, context_);
  if (!why.empty()) fail(error, "; ", why);
  std::string files;
  for (const auto* uses : {&r.loras, &r.refiner_loras})
    for (const adapters::AdapterUse& use : *uses)
      files += str(files.empty() ? "" : ", ", use.file->path(), ':', use.strength);
  fail(error, "; smaller strengths of LoRAs may mend that  ", files);
}

}  // namespace ebb
