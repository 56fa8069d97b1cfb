# Tests: every test.cpp and *_test.cpp under src/ and tests/, in one program.
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS src/*/test.cpp src/*_test.cpp tests/*.cpp)
if(test_sources)
  add_executable(ebb_tests ${test_sources})
  target_include_directories(ebb_tests PRIVATE tests)
  target_compile_definitions(ebb_tests PRIVATE EBB_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(ebb_tests PRIVATE ebb_engine ebb_options GTest::gtest_main
                                          nlohmann_json::nlohmann_json)
  gtest_discover_tests(ebb_tests DISCOVERY_TIMEOUT 60)
endif()
