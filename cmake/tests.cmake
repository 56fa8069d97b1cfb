# Tests: every test.cpp and *_test.cpp under src/ and all of tests/ in one program, and the checks
# of the source in tools/.
find_package(GTest REQUIRED)
find_package(Python3 COMPONENTS Interpreter)
include(GoogleTest)

# Tests run side by side: threads that wait must sleep, not spin.
set(test_environment OMP_WAIT_POLICY=passive)

set(support ${CMAKE_SOURCE_DIR}/tests/support)
set(support_sources ${support}/source_folder.cpp ${support}/golden_file.cpp)
# Paths are compiled into one file each: all other objects are the same in every clone.
set_source_files_properties(${support}/source_folder.cpp PROPERTIES COMPILE_DEFINITIONS
                            EBB_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
set_source_files_properties(
  ${support}/program.cpp PROPERTIES COMPILE_DEFINITIONS
  "EBB_PROGRAM=\"$<TARGET_FILE:ebb>\";EBB_RANK_PROGRAM=\"$<TARGET_FILE:rank_program>\"")

function(ebb_test_program name engine)
  add_executable(${name} ${ARGN} ${support_sources})
  target_include_directories(${name} PRIVATE tests)
  target_compile_options(${name} PRIVATE ${ebb_optimize_tests})
  target_link_libraries(${name} PRIVATE ${engine} ebb_options GTest::gtest_main
                                        nlohmann_json::nlohmann_json)
  ebb_precompile(${name} <gtest/gtest.h> <nlohmann/json.hpp>)
  ebb_compile_together(${name})
  # For `ctest -R`, a process each; scripts/test runs them in a few processes instead.
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_FILTER "-cuda/*"
                       PROPERTIES ENVIRONMENT "${test_environment}" LABELS unit)
endfunction()

# A process takes a while to open a GPU: its tests run in a few shards, and those that fill it by
# themselves. `scripts/gpu-test` says more about them.
function(ebb_cuda_tests name)
  set(alone cuda/AloneOnDevice.*)
  set(without_gpu "there is no CUDA device")
  add_test(NAME cuda.alone COMMAND ${name} --gtest_filter=${alone} --gtest_brief=1)
  set_tests_properties(cuda.alone PROPERTIES RUN_SERIAL TRUE ENVIRONMENT "${test_environment}"
                                             SKIP_REGULAR_EXPRESSION ${without_gpu})
  set(shards 4)
  foreach(shard RANGE 1 ${shards})
    math(EXPR index "${shard} - 1")
    set(test cuda.shard_${shard}_of_${shards})
    add_test(NAME ${test} COMMAND ${name} --gtest_filter=cuda/*-${alone} --gtest_brief=1)
    set_tests_properties(
      ${test} PROPERTIES SKIP_REGULAR_EXPRESSION ${without_gpu} ENVIRONMENT
      "${test_environment};GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS src/*/test.cpp src/*_test.cpp tests/*.cpp)
list(FILTER test_sources EXCLUDE REGEX "/tests/fuzz/")
list(REMOVE_ITEM test_sources ${support_sources} ${support}/stand_in_torch.cpp
     ${support}/rank_program.cpp ${support}/fake_nccl.cpp)
if(NOT EBB_CUDA)
  list(FILTER test_sources EXCLUDE REGEX "${ebb_cuda_files}")
endif()
if(EBB_SANITIZE)
  # What reads bytes of others and the graphs made of them; the rest would double the build.
  set(low "/src/(core|ir|io|text)/")
  list(FILTER test_sources INCLUDE REGEX "${low}|${ebb_sampler_folders}")
  # but how accurate samplers are in the limit of many steps
  list(FILTER test_sources EXCLUDE REGEX "/solver/(moments|order)_test")
  list(FILTER engine_sources INCLUDE REGEX ${low})
  # and what reads requests of the server
  set(server ${CMAKE_SOURCE_DIR}/src/apps/server)
  add_library(ebb_low STATIC EXCLUDE_FROM_ALL ${engine_sources} ${server}/base64.cpp
              ${server}/guard.cpp ${server}/json_body.cpp ${server}/multipart.cpp
              ${server}/target.cpp src/pipeline/infotext.cpp)
  get_target_property(engine_libraries ebb_engine LINK_LIBRARIES)
  list(REMOVE_ITEM engine_libraries ebb_compute)
  target_link_libraries(ebb_low PUBLIC ${engine_libraries} ebb_samplers_static Threads::Threads
                                       OpenMP::OpenMP_CXX)
  ebb_precompile(ebb_low)
  target_include_directories(ebb_low PUBLIC src ${WEBP_INCLUDE_DIR} ${UTF8PROC_INCLUDE_DIR}
                                            ${CMAKE_BINARY_DIR}/generated)
  ebb_test_program(ebb_tests_low ebb_low ${test_sources})
elseif(test_sources)
  set(sampler_tests ${test_sources})
  list(FILTER sampler_tests INCLUDE REGEX ${ebb_sampler_folders})
  list(FILTER sampler_tests EXCLUDE REGEX "/src/base/")
  list(REMOVE_ITEM test_sources ${sampler_tests})
  ebb_test_program(ebb_sampler_tests ebb_samplers_static ${sampler_tests})
  ebb_link_first(ebb_sampler_tests ebb_samplers_static)
  set(app_tests ${test_sources})
  list(FILTER app_tests INCLUDE REGEX "/src/apps/")
  list(REMOVE_ITEM test_sources ${app_tests})
  ebb_test_program(ebb_app_tests ebb_apps ${app_tests} ${support}/program.cpp)
  ebb_link_first(ebb_app_tests)
  add_dependencies(ebb_app_tests ebb)
  ebb_test_program(ebb_tests ebb_runs ${test_sources})
  ebb_link_first(ebb_tests)
  ebb_precompile(ebb_tests PROJECT models/model.h pipeline/text_to_image.h train/loop.h)
  add_dependencies(ebb_tests ebb stand_in_torch fake_nccl rank_program)
  if(EBB_CUDA)
    ebb_cuda_tests(ebb_tests)
  endif()
endif()

if(NOT EBB_SANITIZE)
  # A library of the name by which torch's is found.
  add_library(stand_in_torch SHARED ${support}/stand_in_torch.cpp)
  target_include_directories(stand_in_torch PRIVATE src)
  target_link_libraries(stand_in_torch PRIVATE ebb_options)
  set_target_properties(stand_in_torch PROPERTIES OUTPUT_NAME torch_cpu LIBRARY_OUTPUT_DIRECTORY
                                                  ${CMAKE_BINARY_DIR}/stand_in)
  set_source_files_properties(
    ${CMAKE_SOURCE_DIR}/src/torch/torch_test.cpp
    PROPERTIES COMPILE_DEFINITIONS EBB_STAND_IN_TORCH="$<TARGET_FILE:stand_in_torch>")

  add_library(fake_nccl SHARED ${support}/fake_nccl.cpp)
  target_link_libraries(fake_nccl PRIVATE ebb_options)
  set_source_files_properties(
    ${CMAKE_SOURCE_DIR}/src/backend/cuda/nccl/nccl_test.cpp
    PROPERTIES COMPILE_DEFINITIONS EBB_FAKE_NCCL="$<TARGET_FILE:fake_nccl>")

  # What tests run as several ranks.
  add_executable(rank_program ${support}/rank_program.cpp)
  target_include_directories(rank_program PRIVATE tests)
  target_link_libraries(rank_program PRIVATE ebb_compute ebb_options)
endif()

# A check is a script that lists violations and that knows, with --self-test, a tree that has some.
function(ebb_check name)
  set(command ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/check_${name}.py)
  add_test(NAME check.${name} COMMAND ${command} ${ARGN})
  add_test(NAME check.${name}__sees_violations COMMAND ${command} --self-test)
  set_tests_properties(check.${name} check.${name}__sees_violations PROPERTIES SKIP_RETURN_CODE 77)
endfunction()

if(Python3_FOUND AND NOT EBB_SANITIZE)
  ebb_check(layers)
  ebb_check(budgets)
  ebb_check(format)
  ebb_check(docs)
  ebb_check(python_pages)
  add_test(NAME tools.box
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tools/box/box_test.py)
  set_tests_properties(tools.box PROPERTIES SKIP_RETURN_CODE 77)
  ebb_check(sampler_pages --ebb $<TARGET_FILE:ebb>)
  ebb_check(headers --compiler ${CMAKE_CXX_COMPILER} --include ${CMAKE_BINARY_DIR}/generated
            --include ${CMAKE_SOURCE_DIR}/include)
  set(page_budget ${CMAKE_SOURCE_DIR}/tests/page/budget_test.py)
  add_test(NAME check.page_budget COMMAND ${Python3_EXECUTABLE} -B ${page_budget})
endif()
