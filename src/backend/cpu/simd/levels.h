// The tables that loops.cpp, panels.cpp and tiles.cpp are compiled into, one a level, and that of
// amx.cpp.
#pragma once

#include "backend/cpu/simd/amx.h"
#include "backend/cpu/simd/loops.h"
#include "backend/cpu/simd/panels.h"
#include "backend/cpu/simd/tiles.h"

namespace ebb::cpu {

extern const Loops loops_base;
extern const Loops loops_v3;  // AVX2 and FMA
extern const Loops loops_v4;  // AVX-512

extern const PanelKernels panels_base;
extern const PanelKernels panels_v3;
extern const PanelKernels panels_v4;

extern const TileKernels tiles_base;
extern const TileKernels tiles_v3;
extern const TileKernels tiles_v4;

extern const AmxKernels amx_v4;  // AVX-512 with bf16, and AMX

}  // namespace ebb::cpu
