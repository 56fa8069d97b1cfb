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
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
if(EBB_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1") # compiles in half the time
endif()
