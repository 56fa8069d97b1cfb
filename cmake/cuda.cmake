# The CUDA backend: kernels for the targets in EBB_CUDA_ARCHS, in one compressed fat binary. The
# CUDA runtime is linked in; the program needs only the driver, and runs without one.
set(EBB_CUDA_ARCHS "90a-real" CACHE STRING
    "CUDA targets, as CMAKE_CUDA_ARCHITECTURES takes them; `all` for every supported one")
set(ebb_cuda_files "/src/backend/cuda/|/ops/.*/cuda[a-z0-9_]*\\.cpp$|/ops/.*/cuda/")
set(ebb_cuda_kernels "")
set(ebb_cuda_device "")

if(EBB_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "ebb: no nvcc found; building without CUDA")
    set(EBB_CUDA OFF)
  endif()
endif()

if(EBB_CUDA)
  if(EBB_CUDA_ARCHS STREQUAL "all")
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90a-real 100-real 120-real
                                 80-virtual)
  else()
    set(CMAKE_CUDA_ARCHITECTURES ${EBB_CUDA_ARCHS})
  endif()
  string(REPLACE ";" ", " targets "${CMAKE_CUDA_ARCHITECTURES}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/ebb/gen/cuda_targets.inc
       CONTENT "\"@targets@\"\n" @ONLY)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know yet that nvcc 13 speaks C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  find_package(CUDAToolkit REQUIRED)
  set(ebb_cuda_kernels cuda=cuda.cu cuda=cuda.cpp)
  set(ebb_cuda_device src/backend/cuda/backend.cpp)
endif()

# Replaces files of a list that only instantiate templates, and have no anonymous namespace whose
# names could clash, by files that include four of them: more than half of their time goes into
# headers.
function(ebb_include_together list)
  set(result "")
  set(includes "")
  foreach(source IN LISTS ${list})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(STRINGS ${source} names REGEX "^namespace {")
    if(names)
      list(APPEND result ${source})
    else()
      list(APPEND includes "#include \"${source}\"\n")
    endif()
  endforeach()
  set(part 0)
  while(NOT includes STREQUAL "")
    list(SUBLIST includes 0 4 four)
    list(REMOVE_ITEM includes ${four})
    string(JOIN "" text ${four})
    set(file ${CMAKE_BINARY_DIR}/together/${list}_${part}.cu)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    list(APPEND result ${file})
    math(EXPR part "${part} + 1")
  endwhile()
  set(${list} ${result} PARENT_SCOPE)
endfunction()

# The kernels are a library of objects of their own: nvcc does not bear the engine's other includes.
# Files of ops named cuda_sm90* or in cuda/sm90/ use instructions that only sm_90a has, and are
# compiled for it alone.
function(ebb_add_cuda target)
  if(NOT EBB_CUDA)
    return()
  endif()
  file(GLOB_RECURSE general CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.cu)
  set(sm90 ${general})
  set(of_sm90 "/ops/.*/cuda_sm90[a-z0-9_]*\\.cu$|/ops/.*/cuda/sm90/")
  list(FILTER general EXCLUDE REGEX ${of_sm90})
  list(FILTER sm90 INCLUDE REGEX ${of_sm90})
  if(EBB_QUICK_BUILD AND NOT CMAKE_CUDA_COMPILER_LAUNCHER) # compiler caches: as ebb_precompile
    ebb_include_together(general)
    ebb_include_together(sm90)
  endif()
  set(compress size)
  if(EBB_QUICK_BUILD)
    set(compress balance) # a sixth of nvcc's time went into this; objects are half as large again
  endif()
  add_library(ebb_cuda OBJECT ${general})
  add_library(ebb_cuda_sm90 OBJECT ${sm90})
  set_target_properties(ebb_cuda_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
  foreach(objects ebb_cuda ebb_cuda_sm90)
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(${objects} PRIVATE src ${CMAKE_BINARY_DIR}/generated)
    target_compile_options(
      ${objects} PRIVATE -Xfatbin=-compress-all -compress-mode=${compress} --expt-relaxed-constexpr
                         -Werror=all-warnings
                         -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
  target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
