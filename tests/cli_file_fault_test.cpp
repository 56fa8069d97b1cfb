// Checkpoints that are cut short, or written to, while their weights are used in place.
#include <gtest/gtest.h>

#include "support/generate_program.h"

namespace ebb {
namespace {

using testing::Output;
using testing::run_command;

class CliFileFault : public testing::GenerateProgram {
 protected:
  // Runs the words in the background, and the command when the folder has the first picture.
  Output with_during(const std::string& words, const std::string& command,
                     const std::string& first) {
    return run_command(str("{ '", testing::program_path(), "' ", words,
                           " & run=$!; for i in $(seq 600); do sleep .05; test -e '", first,
                           "' && break; done; ", command, "; wait $run; }"));
  }
};

TEST_F(CliFileFault, checkpoint_cut_short__is_an_error_that_tells_what_is_written) {
  const std::string file = whole(), out = folder_ / "out/";
  const auto size = std::filesystem::file_size(file);
  const Output o =
      with_during(str("generate --device cpu --dtype f32 --model ", file,
                      " --prompt fox --steps 4 --size 64 --n 500 --batch 1 --out ", out),
                  "cp /dev/null " + file, out + "00000.png");
  EXPECT_EQ(o.code, 2) << o.text;
  EXPECT_NE(o.text.find(str("ebb: error: safetensors: file was cut short while it was read (0 of ",
                            size, " bytes left)  ", file, "\n")),
            o.text.npos)
      << o.text;
  EXPECT_NE(o.text.find(" of 500 images written to " + out + "\n"), o.text.npos) << o.text;
}

TEST_F(CliFileFault, checkpoint_that_is_written_to__is_told_once) {
  const std::string file = whole(), out = folder_ / "out/";
  const Output o =
      with_during(str("generate --device cpu --dtype f32 --model ", file,
                      " --prompt fox --steps 4 --size 64 --n 30 --batch 1 --out ", out),
                  str("head -c 4096 ", file, " > ", folder_ / "head", "; dd if=", folder_ / "head",
                      " of=", file, " conv=notrunc status=none"),
                  out + "00000.png");
  EXPECT_EQ(o.code, 0) << o.text;
  const std::string rule = "warning: the file was written to while its weights are used: ";
  const size_t at = o.text.find(rule);
  ASSERT_NE(at, o.text.npos) << o.text;
  EXPECT_EQ(o.text.find(rule, at + 1), o.text.npos) << o.text;
  EXPECT_NE(o.text.find("than it had  " + file + "\n"), o.text.npos) << o.text;
}

}  // namespace
}  // namespace ebb
