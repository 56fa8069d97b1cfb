#include "apps/cli/preview_output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/fields.h"
#include "base/file_and_numbers.h"
#include "base/names.h"
#include "diffusion/solver/run.h"
#include "io/file.h"
#include "io/image.h"
#include "io/picture_file.h"
#include "pipeline/decoder.h"

namespace ebb::cli {
namespace {

int64_t terminal_columns() {
  constexpr int64_t usual = 80;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return usual;
  return size.ws_col;
}

}  // namespace

PreviewTarget parse_preview(const std::string& text) {
  const FileAndNumbers said = file_and_numbers(text, 1, "generate: --preview", "number of steps");
  PreviewTarget out{.file = said.file};
  if (!said.numbers.empty()) {
    const double every = said.numbers[0];
    require(every >= 1 && every < 100000 && every == std::floor(every),
            "generate: --preview: a picture every ", number_text(every),
            " steps: it must be 1 to 99999 (got '", text, "')");
    out.every = static_cast<int64_t>(every);
  }
  if (out.file == "terminal") {
    out.file.clear();
    return out;
  }
  require(io::picture_format(out.file).has_value(),
          "generate: --preview must be FILE[:steps] with a .png, .jpg or .webp file, or "
          "terminal[:steps] (got '",
          text, "')");
  io::check_can_write(out.file, "generate: --preview");
  return out;
}

// The picture that the run is for is worth more.
void PreviewOutput::show(const StepView& step, std::mutex& telling) {
  if (ended_ || step.step % target_.every != 0) return;
  shown_ = true;
  try {
    const Tensor picture = picture_of(step);
    const std::lock_guard lock(telling);
    write(picture);
  } catch (const Cancelled&) {
    throw;
  } catch (const Error& e) {
    ended_ = true;
    const std::lock_guard lock(telling);
    if (isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);  // the line of progress
    std::fprintf(stderr, "warning: --preview: %s; goes on without previews\n",
                 printable(e.what()).c_str());
  }
}

void PreviewOutput::check_shown() const {
  if (!shown_)
    std::fprintf(stderr, "warning: --preview has no effect: the run has fewer than %lld steps\n",
                 static_cast<long long>(target_.every));
}

Tensor PreviewOutput::picture_of(const StepView& step) const {
  const Tensor bytes = to_pixels(preview_(step.denoised()));
  std::vector<Tensor> images;
  for (int64_t i = 0; i < bytes.shape()[0]; ++i) images.push_back(image_at(bytes, i));
  const auto columns = static_cast<int64_t>(std::ceil(std::sqrt(std::ssize(images))));
  return images.size() == 1 ? images[0] : io::image_grid(images, columns, 1);
}

void PreviewOutput::write(const Tensor& image) {
  if (!target_.file.empty()) return io::write_picture(target_.file, image, {});
  const std::string text = terminal_text(image, terminal_columns() - 1);
  // over the line of progress and, on a terminal, the picture before
  if (isatty(STDERR_FILENO) != 0) {
    std::fputs("\r\033[K", stderr);
    if (rows_ > 0) std::fprintf(stderr, "\033[%lldA", static_cast<long long>(rows_));
  }
  rows_ = std::ranges::count(text, '\n');
  std::fputs(text.c_str(), stderr);
}

}  // namespace ebb::cli
