// Fine-tuning: a training job on a checkpoint of text to image, of pictures with captions.
// docs/train-text-to-image.md shows the way of a batch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/checkpoint_training.h"
#include "pipeline/train_encoders.h"
#include "pipeline/train_samples.h"

namespace ebb {

class Finetune final : public CheckpointTraining {
 public:
  // Reads the checkpoint and the pictures and makes what of latents and texts is not kept yet.
  // Throws Error.
  Finetune(FinetuneRequest request, const Context& context);
  train::TrainJob job() override;

 private:
  void read_weights();
  void add_weights(const nn::Weights& weights, const WeightStore& store, const std::string& prefix,
                   bool trained);
  void add_adapter();
  void add_embedding();
  void add_control();
  void check_embedded_captions() const;
  std::map<std::string, double> rates() const;
  std::optional<std::string> name_in_loss(const CheckpointWeight& weight) const;
  train::CaptionOptions whole_captions() const;
  void encode_all();
  bool encode(size_t picture);
  std::vector<Graph> losses(const std::vector<train::PictureSize>& sizes, bool measured);
  std::string prefetch_obstacle() const;
  NamedTensors batch(const PictureBatch& of);
  void add_latents(NamedTensors& to, const PictureBatch& of);
  void add_texts(NamedTensors& to, const PictureBatch& of, int64_t row);
  void add_controls(NamedTensors& to, const PictureBatch& of);
  std::map<std::string, std::string> facts(
      const train::TrainState& state, const std::map<std::string, std::string>& metadata) const;
  void write_model(const std::string& path, const train::TrainState& state,
                   const std::map<std::string, std::string>& metadata);
  void begin_samples();
  void begin_samples_of_captions();
  void begin_samples(TrainSamples::What what);
  void write_embedding(const std::string& path, const train::TrainState& state,
                       const std::map<std::string, std::string>& metadata) const;

  FinetuneRequest request_;
  train::TrainConfig& c_;
  FinetuneConfig& f_;
  CheckpointParts parts_;
  nn::Weights weights_;
  NamedTensors given_;
  std::unique_ptr<adapters::TrainableAdapter> adapter_;
  TensorCache cache_;
  TrainPictures pictures_;
  std::vector<train::CaptionedPicture> control_images_;  // of each picture
  std::unique_ptr<TrainLatents> latents_;
  std::unique_ptr<TrainTexts> texts_;
  NamedTensors empty_;  // the conditions of the empty caption
  CheckpointWriter writer_;
  Context context_;
  std::unique_ptr<TrainSamples> samples_;
  std::mutex batches_;  // the next one, and one that is measured, are made at the same time
};

}  // namespace ebb
