// TextToImage::RunSetup: what belongs to one run.
#pragma once

#include <memory>

#include "pipeline/text_to_image.h"

namespace ebb {

// Plans it. What it tells of and is stopped by is no more there behind it.
struct TextToImage::RunSetup {
  RunSetup(TextToImage& of, ResolvedTextToImage& r, RunEvents events);
  RunSetup(const RunSetup&) = delete;
  RunSetup& operator=(const RunSetup&) = delete;
  RunReport reported(const TextToImage& of);  // in the end

  std::shared_ptr<void> ends;  // the first: it ends last, also where it does not begin
  ResolvedTextToImage& r;      // of all its pictures; where memory is short, fewer at a time
  RunEvents events;
  double count;  // of pictures
  RunMeter meter;
  RunMemory memory;
  RunReport report;
};

}  // namespace ebb
