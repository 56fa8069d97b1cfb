# libFuzzer targets (tests/fuzz): fuzz_<name> from <name>_fuzz.cpp, and fuzz_seeds, which writes
# their first inputs. They link what the tests under sanitizers link. Needs clang; `scripts/fuzz`
# builds and runs them.
if(EBB_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  file(GLOB fuzz_targets CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cpp)
  add_custom_target(fuzz)
  foreach(source IN LISTS fuzz_targets)
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "_fuzz$" "" name ${stem})
    add_executable(fuzz_${name} ${source})
    target_include_directories(fuzz_${name} PRIVATE tests)
    target_link_libraries(fuzz_${name} PRIVATE ebb_low ebb_options)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz fuzz_${name})
  endforeach()
  add_executable(fuzz_seeds tests/fuzz/seeds.cpp)
  target_include_directories(fuzz_seeds PRIVATE tests)
  target_link_libraries(fuzz_seeds PRIVATE ebb_low ebb_options)
  add_dependencies(fuzz fuzz_seeds)
endif()

# fuzz_serve: hostile requests to the whole server, whose own sources have the sanitizers in any
# build; the engine behind them and what draws the requests are as they are. Where both have the
# same inline function, the linker takes the server's, which comes first. Checks of each pointer
# are left out: they take two thirds of what the sanitizers add to the time of compiling, and the
# address sanitizer sees what such pointers reach. `scripts/fuzz-serve` builds and runs it.
set(server_sources ${app_sources})
list(FILTER server_sources INCLUDE REGEX "/src/apps/server/")
add_executable(fuzz_serve EXCLUDE_FROM_ALL ${server_sources} tests/fuzz/serve.cpp)
target_include_directories(fuzz_serve PRIVATE tests ${BOOST_INCLUDE_DIR})
target_compile_options(fuzz_serve PRIVATE -O1 -fsanitize=address,undefined,float-cast-overflow
                                          -fno-omit-frame-pointer
                                          -fno-sanitize=null,alignment,vptr,object-size
                                          -fno-sanitize-recover=all -Wno-maybe-uninitialized)
set_source_files_properties(tests/fuzz/serve.cpp PROPERTIES COMPILE_OPTIONS -fno-sanitize=all)
target_link_options(fuzz_serve PRIVATE -fsanitize=address,undefined)
target_link_libraries(fuzz_serve PRIVATE ebb_apps ebb_options GTest::gtest fmt::fmt CLI11::CLI11
                                         ZLIB::ZLIB)
ebb_precompile(fuzz_serve <nlohmann/json.hpp>)
