# libebb_mpi.so, by which ranks on processors reach each other: built where MPI's headers are, and
# loaded by the program when it needs it. Nothing else is compiled or linked with MPI.
option(EBB_MPI "Build libebb_mpi where MPI is found" ON)

if(EBB_MPI AND NOT EBB_SANITIZE)
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    add_library(ebb_mpi SHARED src/ranks/mpi/library.cpp)
    target_include_directories(ebb_mpi PRIVATE src)
    target_link_libraries(ebb_mpi PRIVATE ebb_options MPI::MPI_C)
    set_target_properties(ebb_mpi PROPERTIES CXX_VISIBILITY_PRESET hidden)
    if(TARGET ebb)
      add_dependencies(ebb ebb_mpi)
    endif()
  else()
    message(STATUS "ebb: no MPI found; building without training on several processors")
  endif()
endif()
