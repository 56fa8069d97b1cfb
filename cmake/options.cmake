# Compiler options of everything that is ours.
add_library(ebb_options INTERFACE)
# Designated initialisers that name only some fields are how structs are made here.
target_compile_options(
  ebb_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror
                        -Wno-missing-field-initializers -fno-math-errno -fno-trapping-math>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # `omp simd` asks; without optimisation there is no vectorizer to do it.
  target_compile_options(ebb_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-pass-failed>)
endif()
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
# The inner loops of src/backend/cpu/simd/ are always compiled with -O3. A build to be tested and
# thrown away takes least time in all at -O1, as tests of the engine's files at -O0 take a third
# longer; tests and what mostly computes little (models, training, pipelines, commands, the server)
# compile in half the time.
option(EBB_QUICK_BUILD "Optimise less, and compile files together" OFF)
set(level 2)
set(ebb_optimize_tests -O1) # compiles in two thirds of the time
if(EBB_SANITIZE OR EBB_QUICK_BUILD)
  set(level 1)
endif()
if(EBB_QUICK_BUILD)
  set(ebb_optimize_tests -O0)
  set(ebb_optimize_apps -O0)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O${level}")

# Of an inline function's copies the linker keeps the first, for all: in a quick build those of the
# libraries that are optimised, given before a program's own objects. Tests take a seventh less.
# Without a list: those of the engine.
function(ebb_link_first target)
  set(libraries ${ARGN})
  if(NOT libraries)
    set(libraries ebb_compute ebb_engine ebb_samplers_static)
  endif()
  if(EBB_QUICK_BUILD AND NOT EBB_SANITIZE)
    list(TRANSFORM libraries REPLACE "(.+)" "$<TARGET_FILE:\\1>")
    target_link_options(${target} PRIVATE LINKER:--whole-archive ${libraries}
                                          LINKER:--no-whole-archive)
  endif()
endfunction()
