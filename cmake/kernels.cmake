# libebb_kernels: functions of tensors for other programs and for PyTorch (python/, docs/python.md).
add_library(ebb_kernels SHARED src/functions/c/kernels.cpp)
target_include_directories(ebb_kernels PUBLIC include)
target_link_libraries(ebb_kernels PRIVATE ebb_engine ebb_options ${CMAKE_DL_LIBS})
if(UNIX AND NOT APPLE)
  set(exports ${CMAKE_CURRENT_SOURCE_DIR}/cmake/kernels.map)
  target_link_options(ebb_kernels PRIVATE -Wl,--version-script=${exports} -Wl,--gc-sections)
  set_target_properties(ebb_kernels PROPERTIES LINK_DEPENDS ${exports})
endif()

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT EBB_SANITIZE)
  add_test(NAME python.c_interface
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/python/tests/test_c_interface.py)
  set_tests_properties(python.c_interface PROPERTIES ENVIRONMENT
                       EBB_KERNELS_LIBRARY=$<TARGET_FILE:ebb_kernels>)
endif()
