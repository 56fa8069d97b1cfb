// `ebb train` on small checkpoints, with three pictures and their captions.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "io/image.h"
#include "support/generate_program.h"

namespace ebb::testing {

class TrainProgram : public GenerateProgram {
 protected:
  // Three pictures of two ratios, with captions.
  std::string data() const {
    const std::string folder = folder_ / "data";
    std::filesystem::create_directories(folder);
    const Shape sizes[] = {{64, 64, 3}, {64, 64, 3}, {64, 96, 3}};
    for (int i = 0; i < 3; ++i) {
      const std::string picture_file = str(folder, "/", i, ".png");
      if (std::filesystem::exists(picture_file)) continue;
      Tensor picture(DType::u8, sizes[i]);
      for (size_t k = 0; k < picture.span<uint8_t>().size(); ++k)
        picture.span<uint8_t>()[k] = static_cast<uint8_t>(50 * i + static_cast<int>(k) % 150);
      io::write_png(picture_file, picture);
      put_file(str(folder, "/", i, ".txt"), str("a fox, number ", i, ", in snow"));
    }
    return folder;
  }
  std::string train_of(const std::string& checkpoint, const std::string& out,
                       const std::string& flags) const {
    return train_from(checkpoint, data(), out, flags);
  }
  std::string train_from(const std::string& checkpoint, const std::string& pictures,
                         const std::string& out, const std::string& flags) const {
    return str("train --device cpu --model ", checkpoint, " --data ", pictures,
               " --resolution 64 --bucket-min 32 --bucket-max 128 --bucket-step 32 --dtype f32 "
               "--seed 5 --out ",
               folder_ / out, " ", flags);
  }
  std::string train(const std::string& out, const std::string& flags) const {
    return train_of(whole(), out, flags);
  }
  std::string model(const std::string& out, int step) const {
    return folder_ / str(out, "/model-0000000", step, ".safetensors");
  }
  std::string state(const std::string& out, int step) const {
    return folder_ / str(out, "/state-0000000", step, ".safetensors");
  }
  // `train` with the flags stopped behind `first` of `steps` and resumed in "twice" writes the bits
  // of one that was not stopped, in "once": model and state.
  void expect_same_when_resumed(const std::string& flags, int first, int steps) const {
    const auto run = [&](const char* out, int last) {
      return run_program(train(out, str(flags, " --steps ", last))).code;
    };
    ASSERT_EQ(run("once", steps), 0);
    ASSERT_EQ(run("twice", first), 0);
    const Output on =
        run_program(str("train --resume --steps ", steps, " --out ", folder_ / "twice"));
    ASSERT_EQ(on.code, 0) << on.text;
    expect_same_tensors(model("once", steps), model("twice", steps));
    expect_same_tensors(state("once", steps), state("twice", steps));
  }
  static void expect_same_tensors(const std::string& a, const std::string& b) {
    const auto one = io::TensorFile::open(a), other = io::TensorFile::open(b);
    ASSERT_EQ(one.entries().size(), other.entries().size());
    for (const io::TensorEntry& e : one.entries()) {
      const Tensor x = one.load(e), y = other.load(other.find(e.name));
      ASSERT_EQ(x.type(), y.type()) << e.name;
      EXPECT_EQ(std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())), 0) << e.name;
    }
  }
};

}  // namespace ebb::testing
