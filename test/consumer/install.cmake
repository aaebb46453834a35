# Installs BUILD_DIR into a new PREFIX and looks at what arrived in INCLUDE_DIR.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${PREFIX}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${PREFIX}"
  COMMAND_ERROR_IS_FATAL ANY)

file(GLOB_RECURSE headers RELATIVE "${INCLUDE_DIR}" "${INCLUDE_DIR}/*")
if(NOT "reactor/engine.h" IN_LIST headers)
  message(FATAL_ERROR "reactor/engine.h is not among: ${headers}")
endif()
set(private ${headers})
list(FILTER private INCLUDE REGEX "(^|/)internal/")
if(private)
  message(FATAL_ERROR "internal headers were installed: ${private}")
endif()
foreach(header IN LISTS headers)
  file(STRINGS "${INCLUDE_DIR}/${header}" lines
       REGEX "^#include \"[a-z_]+/internal/")
  if(lines)
    message(FATAL_ERROR "${header} needs an internal header: ${lines}")
  endif()
endforeach()
