// What a request may ask for at most, by whatever protocol: docs/server.md lists it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ebb::server {

constexpr int64_t most_steps = 1000, most_clip_skip = 64;
constexpr int64_t most_images = 256;  // of a job
constexpr int64_t most_batch = 16;    // of them at a time
constexpr int64_t most_rounds = 64;   // of batches, where a protocol counts these
constexpr int64_t most_side = 4096, most_pixels = 16'800'000;
constexpr int64_t most_pixels_out = 67'000'000;  // behind outpainting, second pass and upscalers
constexpr size_t most_pictures = 17;             // that one request brings along
constexpr int64_t most_scale = 16, most_upscaled_side = 16384;  // of what upscale jobs make
constexpr size_t most_map_bytes = size_t{8} << 20;  // of maps that an answer brings, base64
constexpr int64_t largest_seed = int64_t{1} << 53;  // that JSON holds without loss
constexpr int64_t size_multiple = 8;                // of sides, in pixels
constexpr size_t most_text = size_t{64} << 10, most_entries = 64;  // of lists

}  // namespace ebb::server
