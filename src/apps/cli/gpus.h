// --gpus: how many GPUs of this host compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/cli/terminal.h"

namespace ebb::cli {

// Of "all" or a number. Throws Error where there are none, or not so many.
int64_t number_of_gpus(const std::string& gpus);

// The flag of commands that divide their images among the GPUs.
inline constexpr const char* gpus_help =
    "all or a number of the GPUs of this host, each of which makes some of the images";

// How many devices such a command may use: 1 without the flag. Throws Error.
size_t devices_of(const std::string& gpus, const CommonOptions& o);
// The first ones of them, as open_device(), where `gpus` names them never a processor; what they
// log alike is logged once. Warns where they are of several kinds.
std::vector<Context> open_devices(CommonOptions o, const std::string& gpus, size_t count);

}  // namespace ebb::cli
