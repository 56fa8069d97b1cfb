// --preview: a small picture of a run that goes on, in a file or on the terminal.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "pipeline/preview.h"
#include "pipeline/run_inputs.h"

namespace ebb::cli {

// "FILE[:k]" or "terminal[:k]": every k steps. Throws Error.
struct PreviewTarget {
  std::string file;  // a picture; "": the terminal
  int64_t every = 1;
};
PreviewTarget parse_preview(const std::string& text);

class PreviewOutput {
 public:
  PreviewOutput(PreviewTarget target, Preview preview)
      : target_(std::move(target)), preview_(std::move(preview)) {}
  // The pictures of a batch as a grid. A file is replaced as a whole; on a terminal the picture
  // before is overwritten. Where one cannot be made or written there is a warning, and no more are
  // made. `telling` is held while it writes, not while the picture is made. Throws Cancelled.
  void show(const StepView& step, std::mutex& telling);
  // Behind the run: a warning where it had too few steps for any.
  void check_shown() const;

 private:
  Tensor picture_of(const StepView& step) const;
  void write(const Tensor& picture);
  PreviewTarget target_;
  Preview preview_;
  bool ended_ = false, shown_ = false;
  int64_t rows_ = 0;  // on the terminal, of the picture before
};

}  // namespace ebb::cli
