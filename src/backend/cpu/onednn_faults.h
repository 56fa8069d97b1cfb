// Where the oneDNN of Debian 12 (2.6) goes wrong, as facts about its code, for onednn.cpp to stay
// clear of. Found by comparing every convolution with sums in double (docs/lab/onednn.md).
#pragma once

#include <string_view>

#include "backend/cpu/onednn.h"

namespace ebb::cpu {

// The instruction sets that oneDNN may use, as bits of dnnl::cpu_isa. The first call fixes them
// for the process and must come before anything else is asked of oneDNN. A virtual machine may
// show AMX and hide the leaf of CPUID that describes its tiles; oneDNN would then configure none
// and the first product be an illegal instruction, so AMX is left out there. Where the environment
// has ONEDNN_MAX_CPU_ISA, that counts alone.
unsigned onednn_isa();

// True if the kernel of this name (of primitive_desc::impl_info_str()) is wrong for this gradient
// of weights; it must then not even be generated. Kernels of one more column are computed by other
// code in each of these cases:
// - AMX (`jit:avx512_core_amx...`), square kernels, where it could cut the image into bands of a
//   single row. A weight row whose taps all lie in the padding above the first band is not stepped
//   over, so that sums go to the row before and in the end outside of the tensor. Where one row is
//   larger than a band may be, generating the kernel does not end.
// - 1x1 (`jit_1x1`, `jit_bf16_1x1`) with a stride: pixels are gathered first, 16 channels at a
//   time, in scratch memory that is reckoned with the real number of channels.
bool weight_gradient_is_wrong(const ConvProblem& p, std::string_view kernel);

}  // namespace ebb::cpu
