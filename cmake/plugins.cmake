# The file system is the registry: a file in a plug-in folder becomes X(<name>) in a generated list.
# A table includes the list; a missing or misnamed definition is a link error.

function(ebb_write_list list names)
  list(SORT names)
  set(text "// Generated from the file system; see cmake/plugins.cmake.\n")
  foreach(name IN LISTS names)
    string(APPEND text "X(${name})\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/ebb/gen/${list}.inc CONTENT "${text}" @ONLY)
endfunction()

# Names are the folders that hold the matching file.
function(ebb_plugin_folders list)
  file(GLOB found CONFIGURE_DEPENDS ${ARGN})
  set(names "")
  foreach(f IN LISTS found)
    get_filename_component(folder ${f} DIRECTORY)
    get_filename_component(name ${folder} NAME)
    list(APPEND names ${name})
  endforeach()
  ebb_write_list(${list} "${names}")
endfunction()

# Names are the matching files' stems.
function(ebb_plugin_files list)
  file(GLOB found CONFIGURE_DEPENDS ${ARGN})
  list(FILTER found EXCLUDE REGEX "_test\\.cpp$")
  set(names "")
  foreach(f IN LISTS found)
    get_filename_component(name ${f} NAME_WE)
    list(APPEND names ${name})
  endforeach()
  ebb_write_list(${list} "${names}")
endfunction()
