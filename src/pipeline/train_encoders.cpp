#include "pipeline/train_encoders.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/pixels.h"
#include "pipeline/text_in_loss.h"
#include "text/clip_vocabulary.h"
#include "text/python_text.h"
#include "train/loader.h"

namespace ebb {
namespace {

constexpr const char* cut_key = "cut";  // beside the conditions of a caption that was too long

const LoadedComponent& autoencoder_of(const CheckpointParts& parts) {
  require(parts.autoencoder.has_value(),
          "train: the checkpoint has no autoencoder that makes latents of pictures; --vae FILE "
          "names one");
  return *parts.autoencoder;
}

LatentScaling scaling_of(const CheckpointParts& parts) {
  return latent_scaling(*parts.denoiser.model, parts.denoiser.config);
}

std::string text_of(const LatentScaling& s) {
  std::string out = str(s.space.scale, ' ', s.space.shift);
  for (const double v : s.mean) out += str(" m", v);
  for (const double v : s.deviation) out += str(" d", v);
  return out;
}

// [1,h,w,c] as [h,w,c].
Tensor single(const Tensor& t) { return t.reshape(t.shape().slice(1, t.shape().rank())).clone(); }

// The files of a tokenizer that is not the built-in one.
std::string tokenizer_text(const std::string& folder) {
  if (folder.empty()) return "built-in";
  constexpr int64_t limit = 1 << 26;
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) files.insert(entry.path().string());
  uint64_t h = 0;
  for (const std::string& f : files)
    h = splitmix64(h ^ fnv1a(io::read_whole_file(f, "train", limit)));
  return str(h);
}

// What captions may name. The vectors' numbers are the loss's: tokens only say where they go.
text::EmbeddingFolder named(const NewVectors& vectors, const std::vector<EncoderRule>& rules) {
  text::EmbeddingFolder out;
  if (vectors.count == 0) return out;
  text::TextualInversion& of = out.embeddings[vectors.name];
  for (const EncoderRule& r : rules)
    of.vectors.emplace_back(DType::f32, Shape{vectors.count, r.width});
  return out;
}

}  // namespace

Tensor signed_pixels(const train::CaptionedPicture& picture, const train::Fit& fit, bool mirrored) {
  const Tensor bytes = train::fitted(train::decode(picture), fit);
  Tensor out(DType::f32, bytes.shape());
  io::signed_pixels(bytes.span<uint8_t>(), out.span<float>());
  if (mirrored) train::mirror(out.span<float>().data(), out.shape());
  return out.reshape({1, out.shape()[0], out.shape()[1], 3});
}

TrainLatents::TrainLatents(const CheckpointParts& parts, const Context& context, TensorCache& cache)
    : cache_(cache),
      encoder_(autoencoder_of(parts), scaling_of(parts), DType::f32, context),
      factor_(scaling_of(parts).space.factor),
      settings_(str("latents 1, ", autoencoder_of(parts).component.config.text(), ", weights ",
                    hash_text(*autoencoder_of(parts).weights), ", scale ",
                    text_of(scaling_of(parts)))) {}

NamedTensors TrainLatents::of(const train::CaptionedPicture& p, const train::Fit& fit,
                              bool mirrored) {
  const auto size = [](train::PictureSize s) { return str(s.width, 'x', s.height); };
  const std::string text =
      str(settings_, ", picture ", p.hash, ' ', p.bytes, ", scaled ", size(fit.scaled), ", crop ",
          size(fit.bucket), mirrored ? ", mirrored" : "");
  return cache_.get(text, [&] {
    const EncodedImage made = encoder_.encode(signed_pixels(p, fit, mirrored));
    NamedTensors out{{"mean", single(made.mean)}};
    if (made.deviation.defined()) out["deviation"] = single(made.deviation);
    return out;
  });
}

TrainTexts::TrainTexts(const CheckpointParts& parts, const Context& context, TensorCache& cache,
                       TextForm form, NewVectors vectors)
    : cache_(cache),
      form_(form),
      vectors_(std::move(vectors)),
      known_(parts.denoiser.model->conditions(parts.denoiser.config)),
      rules_(encoder_rules(*parts.denoiser.model, parts.denoiser.config, parts.text_encoders, {})) {
  const LoadedModel& m = parts.denoiser;
  settings_ = str("text 1, tokenizer ", tokenizer_text(parts.tokenizer));
  for (const EncoderRule& r : rules_)
    settings_ += str(", ", r.encoder.component.config.text(), ", weights ",
                     hash_text(*r.encoder.weights), ' ', r.states(), ' ', r.pad);
  for (const nn::Condition& c : known_) reads_sizes_ = reads_sizes_ || c.name == nn::size_numbers;
  stage_ = std::make_unique<TextStage>(*m.model, m.config, rules_,
                                       parts.tokenizer.empty()
                                           ? text::builtin_clip_vocabulary()
                                           : text::ClipVocabulary::open(parts.tokenizer),
                                       DType::f32, context, named(vectors_, rules_));
}

bool TrainTexts::gives(std::string_view condition) {
  return condition == nn::text_states || condition == nn::pooled_text ||
         condition == nn::size_numbers;
}

std::vector<nn::Condition> TrainTexts::conditions() const {
  std::vector<nn::Condition> out;
  if (form_ == TextForm::tokens) out = token_conditions(rules_, vectors_.count);
  for (const nn::Condition& c : known_)
    if (gives(c.name) && (form_ == TextForm::states || c.name == nn::size_numbers))
      out.push_back(c);
  return out;
}

NamedTensors TrainTexts::made(const std::string& caption, train::PictureSize size) {
  std::vector<std::string> warnings;
  const ImageSize of{.height = size.height, .width = size.width};
  NamedTensors out = form_ == TextForm::tokens ? stage_->tokens(caption, of, warnings)
                                               : stage_->caption(caption, of, warnings);
  if (!warnings.empty()) out.emplace(cut_key, scalar_tensor(int64_t{1}));
  return out;
}

NamedTensors TrainTexts::of(const std::string& caption, train::PictureSize size, bool kept) {
  const bool caches = kept && form_ == TextForm::states;
  NamedTensors out = caches ? cached(caption, size) : made(caption, size);
  if (out.erase(cut_key) > 0 && cut_.count++ == 0) cut_.first = text::shown(decode_utf8(caption));
  return out;
}

NamedTensors TrainTexts::cached(const std::string& caption, train::PictureSize size) {
  const std::string sized = reads_sizes_ ? str(", size ", size.width, 'x', size.height) : "";
  return cache_.get(str(settings_, sized, ", caption ", caption),
                    [&] { return made(caption, size); });
}

}  // namespace ebb
