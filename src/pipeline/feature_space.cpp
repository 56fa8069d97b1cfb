#include "pipeline/feature_space.h"

#include "base/error.h"
#include "io/safetensors.h"
#include "train/inception.h"

namespace ebb {
namespace {

constexpr std::string_view inception = "inception=";

// Images in a run: many where a device has many cores to fill; 64 take about 1 GB.
int64_t inception_batch(const Context& context) { return context.device->on_host() ? 8 : 64; }

}  // namespace

bool names_inception(std::string_view text) { return text.starts_with(inception); }

train::FeatureNet open_features(const std::string& text, const Shape& image,
                                const Context& context) {
  if (names_inception(text)) {
    const std::string path = text.substr(inception.size());
    require(!path.empty(), "eval: --features inception= must name a file");
    return train::load_inception(path, image, inception_batch(context), context);
  }
  require(!io::TensorFile::open(text).contains("Conv2d_1a_3x3.conv.weight"),
          "eval: the file has weights of Inception: --features inception=", text);
  train::FeatureNet net = train::FeatureNet::load(text, context);
  require(net.image_shape() == image, "eval: the network of --features takes images ",
          net.image_shape(), ", the model makes ", image, "  ", text);
  return net;
}

}  // namespace ebb
