# Compiler options of everything that is ours.
add_library(ebb_options INTERFACE)
# Designated initialisers that name only some fields are how structs are made here.
target_compile_options(
  ebb_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror
                        -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math>)
if(EBB_SANITIZE)
  target_compile_definitions(ebb_options INTERFACE EBB_SANITIZE)
  target_compile_options(ebb_options INTERFACE -fsanitize=address,undefined
                                               -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(ebb_options INTERFACE -fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang") # the fuzzers link the same objects
    target_compile_options(ebb_options INTERFACE -fsanitize=fuzzer-no-link -gline-tables-only)
  else()
    target_compile_options(ebb_options INTERFACE -g)
  endif()
endif()
# The inner loops of src/backend/cpu/simd/ are always compiled with -O3, tests a level lower.
set(level 2)
if(EBB_SANITIZE)
  set(level 1)
endif()
set(EBB_OPTIMIZE ${level} CACHE STRING "Level of optimisation: 1 compiles in 3/4 of the time of 2")
set(CMAKE_CXX_FLAGS_RELEASE "-O${EBB_OPTIMIZE}")
