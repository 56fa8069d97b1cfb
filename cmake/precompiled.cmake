# Headers that most files include, precompiled: parsing them takes a third of the time of a small
# file. In a quick build also the PROJECT's, with all that they include; other builds would have to
# compile all files again when one of these changes. Each file still includes what it uses;
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without them.
function(ebb_precompile target)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return() # compiler caches do not find what another folder's precompiled headers went into
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 headers "" "" "PROJECT")
  list(TRANSFORM headers_PROJECT PREPEND "${CMAKE_SOURCE_DIR}/src/")
  if(NOT EBB_QUICK_BUILD)
    set(headers_PROJECT "")
  endif()
  target_precompile_headers(
    ${target} PRIVATE <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <filesystem>
    <fstream> <functional> <map> <memory> <optional> <set> <span> <string> <string_view> <vector>
    ${headers_UNPARSED_ARGUMENTS} ${headers_PROJECT})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes precompiled headers for the program's own, and reports what it suspects in them.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endfunction()

# Tests: most of their time goes into headers and what the library instantiates, and ten of a folder
# that are compiled as one take a third of the time of ten. Names in their anonymous namespaces must
# differ within a folder; tests of golden files and of many parts (tests/), which give helpers the
# same names, are in a namespace each, but for those of the program (cli_*). Not for the engine:
# such a name would hide another file's function of that name, and the program would be another than
# one that is compiled file by file.
function(ebb_compile_together target)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return() # as above, and a change of one file would miss ten
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    if(source MATCHES "/ops/.*/test\\.cpp$")
      cmake_path(GET folder PARENT_PATH folder) # the only test of its folder
    endif()
    string(MAKE_C_IDENTIFIER "${folder}" group)
    math(EXPR count_${group} "0${count_${group}} + 1")
    math(EXPR part "${count_${group}} / 10")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP "${group}_${part}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes all but the main file for headers, whose types should not be of one file.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()
