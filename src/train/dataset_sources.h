// The kinds of data sets behind open_dataset().
#pragma once

#include "io/image.h"
#include "train/dataset.h"

namespace ebb::train {

std::unique_ptr<Dataset> open_image_folder(const std::string& path, const DatasetOptions& options);
std::unique_ptr<Dataset> open_idx(const std::string& images_path, const DatasetOptions& options);
std::unique_ptr<Dataset> open_safetensors(const std::string& path, const DatasetOptions& options);

// The images that `limit` keeps of `count`, spread evenly, in order.
std::vector<int64_t> spread(int64_t count, int64_t limit);

// Crops, resizes and converts u8 [H,W,C] as the options say.
Tensor fit_image(const Tensor& image, const DatasetOptions& options);

}  // namespace ebb::train
