# Defaults and sanitizers that hold for every target of this build.

set(CMAKE_CXX_EXTENSIONS OFF)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  find_program(SLUICE_CCACHE ccache)
  mark_as_advanced(SLUICE_CCACHE)
  if(SLUICE_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${SLUICE_CCACHE}")
  endif()
endif()

# Flags, as consumers built by a test need the same ones.
set(SLUICE_SANITIZE_FLAGS "")
if(SLUICE_SANITIZE)
  set(SLUICE_SANITIZE_FLAGS
      -fsanitize=${SLUICE_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer)
  add_compile_options(${SLUICE_SANITIZE_FLAGS})
  add_link_options(${SLUICE_SANITIZE_FLAGS})
endif()
