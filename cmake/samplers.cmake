# libebb_samplers: the samplers alone, independent of the engine, for other programs
include(GNUInstallDirs)

set(ebb_sampler_folders
    "/src/(base|capi|diffusion/(noise|solver|samplers|levels|schedules|guidance|start))/")
set(sampler_sources ${engine_sources})
list(FILTER sampler_sources INCLUDE REGEX ${ebb_sampler_folders})

add_library(ebb_sampler_objects OBJECT ${sampler_sources})
set_target_properties(ebb_sampler_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(ebb_sampler_objects
                           PUBLIC src include ${CMAKE_BINARY_DIR}/generated)
target_link_libraries(ebb_sampler_objects PRIVATE ebb_options nlohmann_json::nlohmann_json)
ebb_precompile(ebb_sampler_objects PROJECT diffusion/solver/run.h diffusion/solver/formulas.h)

foreach(kind STATIC SHARED)
  string(TOLOWER ${kind} suffix)
  set(library ebb_samplers_${suffix})
  add_library(${library} ${kind} $<TARGET_OBJECTS:ebb_sampler_objects>)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME ebb_samplers VERSION ${PROJECT_VERSION}
                                              SOVERSION ${PROJECT_VERSION_MAJOR})
  target_include_directories(${library} PUBLIC src include ${CMAKE_BINARY_DIR}/generated)
endforeach()
ebb_plugin_files(samplers src/diffusion/samplers/*.cpp)
ebb_plugin_files(guidance_rules src/diffusion/guidance/rules/*.cpp)
ebb_plugin_files(noises src/diffusion/noise/*.cpp)
ebb_plugin_files(schedules src/diffusion/schedules/*.cpp)

# The C API and namespace ebb are exported, if the linker supports version scripts.
if(UNIX AND NOT APPLE)
  set(exports ${CMAKE_CURRENT_SOURCE_DIR}/cmake/samplers.map)
  target_link_options(ebb_samplers_shared PRIVATE -Wl,--version-script=${exports})
  set_target_properties(ebb_samplers_shared PROPERTIES LINK_DEPENDS ${exports})
endif()

# Examples are built and run beside the library; install.samplers does so as a user would.
if(NOT EBB_SANITIZE)
  foreach(example mixture.c guided.c path.cpp)
    get_filename_component(name ${example} NAME_WE)
    add_executable(example_${name} examples/${example})
    target_link_libraries(example_${name} PRIVATE ebb_samplers_static ebb_options m)
    add_test(NAME example.${name} COMMAND example_${name})
  endforeach()
  set_tests_properties(example.mixture PROPERTIES PASS_REGULAR_EXPRESSION "^20 evaluations, 3[56]")
  set_tests_properties(example.guided PROPERTIES
                       PASS_REGULAR_EXPRESSION "20 evaluations, mean (1.9|2.0)")
endif()

# cmake --install build --component samplers --prefix DIR
file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/ebb_samplers.pc @ONLY CONTENT
"prefix=\${pcfiledir}/@up@
Name: ebb_samplers
Description: Samplers, schedules and noise of diffusion models
Version: @PROJECT_VERSION@
Libs: -L\${prefix}/@CMAKE_INSTALL_LIBDIR@ -lebb_samplers
Libs.private: -lstdc++ -lm
Cflags: -I\${prefix}/include -I\${prefix}/include/ebb-samplers
")
install(TARGETS ebb_samplers_static ebb_samplers_shared COMPONENT samplers)
install(FILES include/ebb/samplers.h DESTINATION include/ebb COMPONENT samplers)
install(DIRECTORY src/base DESTINATION include/ebb-samplers COMPONENT samplers FILES_MATCHING
        PATTERN "*.h")
install(DIRECTORY src/diffusion/noise src/diffusion/solver src/diffusion/levels
                  src/diffusion/guidance src/diffusion/start DESTINATION
        include/ebb-samplers/diffusion COMPONENT samplers FILES_MATCHING PATTERN "*.h")
install(FILES ${CMAKE_BINARY_DIR}/generated/ebb/gen/version.inc
        DESTINATION include/ebb-samplers/ebb/gen COMPONENT samplers)
install(FILES ${CMAKE_BINARY_DIR}/ebb_samplers.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT samplers)

find_program(PKG_CONFIG_EXECUTABLE pkg-config)
if(PKG_CONFIG_EXECUTABLE AND UNIX AND NOT APPLE AND NOT EBB_SANITIZE)
  add_test(
    NAME install.samplers
    COMMAND
      ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR} -DSOURCE=${CMAKE_SOURCE_DIR}
      -DWORK=${CMAKE_BINARY_DIR}/test_install -DLIBDIR=${CMAKE_INSTALL_LIBDIR}
      -DCC=${CMAKE_C_COMPILER} -DCXX=${CMAKE_CXX_COMPILER} -DPKG_CONFIG=${PKG_CONFIG_EXECUTABLE}
      -DNM=${CMAKE_NM} -P ${CMAKE_SOURCE_DIR}/cmake/test_install.cmake)
endif()
