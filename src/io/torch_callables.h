// Which callables a file of torch.save may name. None of them is ever called: some say how data is
// to be read, others are left by training programs and mean nothing to us, and any other is a
// reason not to trust the file.
#pragma once

#include <string>
#include <string_view>

#include "io/pickle.h"

namespace ebb::io {

// Throws Error that names the callable, "torch: calls posix.system: refused", for the first one
// that is not known to be harmless.
void check_callables(const Pickle& pickle, const std::string& file);

// The dtype, as safetensors name it, of "torch FloatStorage" or "torch float8_e4m3fn"; "U8" of
// untyped storages; "" of others.
std::string_view torch_dtype(std::string_view callable);

}  // namespace ebb::io
