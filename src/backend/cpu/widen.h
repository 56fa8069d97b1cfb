// Kernels that know only f32, on tensors of narrower floats: inputs are widened into the workspace
// and results rounded on the way out. Correct on every processor; not fast.
#pragma once

#include "ir/kernel.h"

namespace ebb::cpu {

// `s` with f32 in place of every other float.
Signature widened(const Signature& s);

// `prepare` run on widened(s), between conversions.
Program prepare_widened(const Signature& s, Device& device,
                        Program (*prepare)(const Signature&, const Tune&, Device&));

// Kernel::cost of such: oneDNN's, and a pass over each tensor that is converted.
double widened_cost(const Signature& s, const Device& device);

// The note of such kernels, where they work on narrower floats.
std::string_view note_widened(const Signature& s);

// True if an input or output is a float that is not f32, so that widening makes a difference.
bool has_narrow_floats(const Signature& s);
// True if every input and output is one of f32 and, where oneDNN multiplies it here, bf16.
bool onednn_takes(const Signature& s);
// True if every input and output is a float.
bool all_floats(const Signature& s);

// `count` elements of a float dtype to f32, and back (rounded to nearest even). In parallel.
void widen(DType from, const void* in, float* out, int64_t count);
void narrow(DType to, const float* in, void* out, int64_t count);

}  // namespace ebb::cpu
