# Installs component `samplers` under a new prefix, and builds and runs the examples against it as a
# user would: with the flags of pkg-config, and statically. Needs BUILD, SOURCE, WORK, LIBDIR, CC,
# CXX, PKG_CONFIG and NM.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what}: ${status}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(install ${CMAKE_COMMAND} --install ${BUILD} --component samplers --prefix ${WORK}/prefix)

set(ENV{PKG_CONFIG_PATH} ${WORK}/prefix/${LIBDIR}/pkgconfig)
set(ENV{LD_LIBRARY_PATH} ${WORK}/prefix/${LIBDIR})
run(pkg-config ${PKG_CONFIG} --cflags --libs ebb_samplers)
separate_arguments(shared UNIX_COMMAND "${out}")
run(pkg-config ${PKG_CONFIG} --cflags ebb_samplers)
separate_arguments(includes UNIX_COMMAND "${out}")
set(static ${includes} ${WORK}/prefix/${LIBDIR}/libebb_samplers.a -lstdc++)

set(c ${CC} -std=c99 -Wall -Wextra -Werror -pedantic)
set(cpp ${CXX} -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers)
set(mixture.c_says "^20 evaluations, 3[56]")
set(guided.c_says "20 evaluations, mean (1.9|2.0)")
set(path.cpp_says "step 7 of 7  sigma 0 ")
foreach(how shared static)
  foreach(example mixture.c guided.c path.cpp)
    string(REGEX MATCH "[a-z]+$" language ${example})
    run("${example}, ${how}" ${${language}} -o ${WORK}/example ${SOURCE}/examples/${example}
        ${${how}} -lm)
    run("running ${example}, ${how}" ${WORK}/example)
    if(NOT out MATCHES "${${example}_says}")
      message(FATAL_ERROR "${example}, ${how}: ${out}")
    endif()
  endforeach()
endforeach()

# All installed headers compile together with nothing but the installed tree.
set(all "#include <ebb/samplers.h>\n")
file(GLOB_RECURSE headers RELATIVE ${WORK}/prefix/include/ebb-samplers
     ${WORK}/prefix/include/ebb-samplers/*.h)
if(NOT headers)
  message(FATAL_ERROR "no C++ header was installed")
endif()
foreach(header ${headers})
  string(APPEND all "#include \"${header}\"\n")
endforeach()
file(WRITE ${WORK}/all.cpp "${all}")
run("all headers" ${CXX} -std=c++20 -fsyntax-only ${WORK}/all.cpp ${includes})

# The C API and namespace ebb, and nothing else, are exported.
run(nm ${NM} -D --defined-only ${WORK}/prefix/${LIBDIR}/libebb_samplers.so)
string(REGEX MATCHALL "[^ \n]+\n" names "${out}\n")
foreach(name ${names})
  if(NOT name MATCHES "^(ebb_|_ZNK?3ebb|_ZT[VIST]N3ebb)")
    message(FATAL_ERROR "libebb_samplers.so exports ${name}")
  endif()
endforeach()
