// A text-to-image request on several devices of this process. docs/many-gpus.md says why so.
#pragma once

#include <memory>
#include <span>

#include "pipeline/text_to_image.h"

namespace ebb {

// The request with batches for so many devices, where nothing says how many pictures are made at a
// time.
ResolvedTextToImage divided(const ResolvedTextToImage& r, size_t devices);

// TextToImage::run() of one checkpoint on several devices: each batch on whichever is free, with
// the same bits, in the dtype that `auto` means on the first. The events are called on several
// threads, one at a time; pictures as soon as they are ready, in any order. `step` is called for
// the first device alone, by its thread and beside the others' calls. The report has the longest
// times and the most memory of a device.
RunReport run_on(std::span<const std::unique_ptr<TextToImage>> devices,
                 const ResolvedTextToImage& r, const RunEvents& events = {});

}  // namespace ebb
