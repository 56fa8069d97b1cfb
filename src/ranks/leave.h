// The end of a process whose other threads may be blocked.
#pragma once

#include <string_view>

namespace ebb::ranks {

void say(std::string_view error);  // the line of an error, on standard error
// Ends the process at once, as a fault does.
[[noreturn]] void leave();

}  // namespace ebb::ranks
