// Texts in the EXIF data of JPEG and WebP files, where other programs of this field look for them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ebb::io {

// A TIFF file with these texts, UTF-8 by keyword, as PNG files hold them: `parameters` becomes the
// tag UserComment in UTF-16 (where the web UI of AUTOMATIC1111 and readers of its pictures look),
// `Software` the tag of that name, and the others one JSON object of strings in ImageDescription.
// EXIF 2.32, sections 4.6.4 A and 4.6.5 B.
std::vector<uint8_t> exif_of_text(const std::map<std::string, std::string>& text);

// What exif_of_text() wrote. An ImageDescription that is no such object is under `description`,
// graphs of ComfyUI in the tags Make and Model under `prompt` and `workflow`. Data that cannot be
// read are left out.
std::map<std::string, std::string> text_of_exif(std::span<const uint8_t> exif);

}  // namespace ebb::io
