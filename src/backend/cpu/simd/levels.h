// The tables that loops.cpp is compiled into, one a level.
#pragma once

#include "backend/cpu/simd/loops.h"

namespace ebb::cpu {

extern const Loops loops_base;
extern const Loops loops_v3;  // AVX2 and FMA
extern const Loops loops_v4;  // AVX-512

}  // namespace ebb::cpu
