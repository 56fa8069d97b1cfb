// A file that is cut short while its bytes are used in place (io/mapped_file.h) ends the program as
// other errors do: with one line and the exit code of a fault.
#pragma once

#include <string_view>

namespace ebb::cli {

// From then on; to be called by the thread that computes, before it uses such a file
// (MappedFile::before_first). Faults elsewhere end the process as they did.
void handle_file_faults();

// A line that stands before that of such a fault: what is written by then.
void tell_at_file_fault(std::string_view text);

}  // namespace ebb::cli
