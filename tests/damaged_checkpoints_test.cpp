// Checkpoints whose container is whole and whose networks are not: a clear error each, before any
// work. What is damaged is drawn from a seed.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "io/safetensors.h"
#include "pipeline/checkpoint_parts.h"
#include "support/files.h"
#include "support/generate_program.h"
#include "support/torch_file.h"

namespace ebb::testing {
namespace {

using Tensors = std::vector<io::NamedTensor>;

class DamagedCheckpoints : public GenerateProgram {};

// Something that the networks cannot do without, or have no use for.
void damage(Tensors& tensors, std::mt19937& random) {
  const size_t at = random() % tensors.size();
  io::NamedTensor& t = tensors[at];
  switch (random() % 5) {
    case 0: tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: t.name += str(".", random() % 100); break;
    case 2: {
      std::vector<int64_t> sizes = t.tensor.shape().sizes();
      sizes[random() % sizes.size()] += 1 + static_cast<int64_t>(random() % 7);
      t.tensor = Tensor(DType::f32, Shape(sizes));
      break;
    }
    case 3: {
      t.tensor = t.tensor.clone();
      const auto values = t.tensor.span<float>();
      values[random() % values.size()] = random() % 2 ? NAN : INFINITY;
      break;
    }
    default: t.tensor = Tensor(DType::f32, {}); break;
  }
}

}  // namespace

TEST_F(DamagedCheckpoints, networks__are_an_error_each_that_names_file_or_tensor) {
  const std::string good = whole();
  const auto open = io::TensorFile::open(good);
  Tensors tensors;
  for (const io::TensorEntry& e : open.entries()) tensors.push_back({e.name, open.load(e)});
  std::mt19937 random(20);
  for (int i = 0; i < 80; ++i) {
    Tensors changed = tensors;
    damage(changed, random);
    const bool torch = i % 4 == 0;
    const std::string path = folder_ / (torch ? "m.ckpt" : "m.safetensors");
    if (torch)
      put_file(path, torch_text(changed, "state_dict"));
    else
      io::write_safetensors(path, changed);
    const std::string error = error_of([&] {
      const CheckpointParts parts = load_parts({.model = path});
      require(parts.text_encoders.size() == 1 && parts.autoencoder.has_value(),
              "a part is not recognised any more  ", path);
    });
    EXPECT_NE(error.find("m."), std::string::npos) << "file " << i << ": " << error;
    EXPECT_NE(error.find(": "), std::string::npos) << "file " << i << ": " << error;
  }
}

}  // namespace ebb::testing
