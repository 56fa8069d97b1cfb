# libebb_kernels: functions of tensors for other programs and for PyTorch (python/, docs/python.md).
function(ebb_kernels_library name)
  add_library(${name} SHARED src/functions/c/kernels.cpp ${ARGN})
  target_include_directories(${name} PUBLIC include)
  target_link_libraries(${name} PRIVATE ebb_options)
  if(UNIX AND NOT APPLE)
    set(exports ${CMAKE_CURRENT_SOURCE_DIR}/cmake/kernels.map)
    target_link_options(${name} PRIVATE -Wl,--version-script=${exports} -Wl,--gc-sections)
    set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports})
  endif()
endfunction()

ebb_kernels_library(ebb_kernels)
target_link_libraries(ebb_kernels PRIVATE ebb_compute ${CMAKE_DL_LIBS})

# That of the Python wheel: a GPU's kernels alone, for tensors on the CPU are plain torch's there,
# and nothing to find at run time but glibc. What lists the backends and what has parallel loops of
# its own is compiled a second time, and keeps the rest of ebb_compute out of the link.
set(EBB_GLIBC_STUBS "" CACHE PATH
    "Folder of link-time stand-ins for the libraries of an older glibc; scripts/wheel makes one")
set(wheel_sources src/ops/table.cpp src/runtime/context.cpp src/core/tensor.cpp
                  src/core/chunks.cpp)
if(EBB_GLIBC_STUBS)
  list(APPEND wheel_sources cmake/older_glibc.c)
endif()
ebb_kernels_library(ebb_kernels_wheel ${wheel_sources})
if(EBB_GLIBC_STUBS)
  target_link_directories(ebb_kernels_wheel BEFORE PRIVATE ${EBB_GLIBC_STUBS})
endif()
set_target_properties(ebb_kernels_wheel PROPERTIES OUTPUT_NAME ebb_kernels
                      SKIP_BUILD_RPATH ON LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel)
target_include_directories(
  ebb_kernels_wheel BEFORE
  PRIVATE ${CMAKE_BINARY_DIR}/generated/ebb/gen/without_cpu src ${CMAKE_BINARY_DIR}/generated)
target_compile_options(ebb_kernels_wheel PRIVATE -Wno-unknown-pragmas)  # OpenMP's
target_link_options(ebb_kernels_wheel PRIVATE -static-libstdc++ -static-libgcc
                                              -Wl,-z,defs,--as-needed -s)
add_dependencies(ebb_kernels_wheel ebb_compute ebb_samplers_static)
target_link_libraries(
  ebb_kernels_wheel PRIVATE $<TARGET_FILE:ebb_compute> $<TARGET_FILE:ebb_samplers_static>
                            $<$<BOOL:${EBB_CUDA}>:CUDA::cudart_static> pthread dl rt m)

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT EBB_SANITIZE)
  set(python_tests ${CMAKE_SOURCE_DIR}/python/tests)
  add_test(NAME python.c_interface
           COMMAND ${Python3_EXECUTABLE} -B ${python_tests}/test_c_interface.py)
  add_test(NAME python.with_torch
           COMMAND ${Python3_EXECUTABLE} -B ${python_tests}/all_with_torch.py)
  set_tests_properties(
    python.c_interface python.with_torch
    PROPERTIES ENVIRONMENT EBB_KERNELS_LIBRARY=$<TARGET_FILE:ebb_kernels> SKIP_RETURN_CODE 77)
endif()

# Packs the library as scripts/wheel does for other machines, but for this one's glibc.
if(Python3_FOUND AND NOT EBB_SANITIZE)
  add_test(NAME python.wheel
           COMMAND ${CMAKE_SOURCE_DIR}/scripts/wheel --library $<TARGET_FILE:ebb_kernels_wheel>
                   --out ${CMAKE_BINARY_DIR}/wheel)
  set_tests_properties(python.wheel PROPERTIES SKIP_RETURN_CODE 77 ENVIRONMENT
                       "EBB_BUILD=${CMAKE_BINARY_DIR};PATH=$ENV{PATH}")
endif()
