# libFuzzer targets (tests/fuzz): fuzz_<name> from <name>_fuzz.cpp, and fuzz_seeds, which writes
# their first inputs. Needs clang; `scripts/fuzz` builds and runs them.
if(EBB_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "EBB_FUZZ needs clang (-DCMAKE_CXX_COMPILER=clang++)")
  endif()
  # Only the folders that read files, so that the build takes seconds.
  file(GLOB fuzz_sources CONFIGURE_DEPENDS src/base/*.cpp src/core/*.cpp src/io/*.cpp
       src/text/*.cpp)
  list(FILTER fuzz_sources EXCLUDE REGEX "test\\.cpp$|bench\\.cpp$")
  set(fuzz_sanitizers address,undefined)
  add_library(ebb_fuzz STATIC ${fuzz_sources})
  target_compile_options(ebb_fuzz PUBLIC -fsanitize=fuzzer-no-link,${fuzz_sanitizers}
                                         -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_link_options(ebb_fuzz PUBLIC -fsanitize=${fuzz_sanitizers})
  target_include_directories(ebb_fuzz PUBLIC src ${WEBP_INCLUDE_DIR} ${UTF8PROC_INCLUDE_DIR}
                                            ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(ebb_fuzz PUBLIC ebb_options PNG::PNG JPEG::JPEG ZLIB::ZLIB fmt::fmt
                                        nlohmann_json::nlohmann_json ${WEBPMUX_LIBRARY}
                                        ${WEBP_LIBRARY}
                                        ${UTF8PROC_LIBRARY})

  file(GLOB fuzz_targets CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cpp)
  add_custom_target(fuzz)
  foreach(source IN LISTS fuzz_targets)
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "_fuzz$" "" name ${stem})
    add_executable(fuzz_${name} ${source})
    target_include_directories(fuzz_${name} PRIVATE tests)
    target_link_libraries(fuzz_${name} PRIVATE ebb_fuzz)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz fuzz_${name})
  endforeach()
  add_executable(fuzz_seeds tests/fuzz/seeds.cpp)
  target_include_directories(fuzz_seeds PRIVATE tests)
  target_link_libraries(fuzz_seeds PRIVATE ebb_fuzz)
  add_dependencies(fuzz fuzz_seeds)
endif()
