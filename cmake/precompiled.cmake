# Headers of the standard library that most files include, precompiled: parsing them takes a third
# of the time of a small file. Each file still includes what it uses;
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without them.
function(ebb_precompile target)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return() # compiler caches do not find what another folder's precompiled headers went into
  endif()
  target_precompile_headers(
    ${target} PRIVATE <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem>
    <fstream> <functional> <map> <memory> <optional> <set> <span> <string> <string_view> <vector>
    ${ARGN})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes precompiled headers for the program's own, and reports what it suspects in them.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endfunction()
