# Functions that make tests.

# sluice_wrap(<target> <function>...): calls of these libc functions go to
# __wrap_<function> in the test, which reaches the real one as
# __real_<function>. The library pays nothing for it. Not possible with shared
# libraries, whose calls are bound already: there the target is left out.
function(sluice_wrap target)
  if(BUILD_SHARED_LIBS)
    message(STATUS "${target} is left out: it replaces libc calls, which "
                   "needs static libraries")
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    if(TEST ${target})
      set_tests_properties(${target} PROPERTIES DISABLED TRUE)
    endif()
    return()
  endif()
  foreach(function IN LISTS ARGN)
    target_link_options(${target} PRIVATE "LINKER:--wrap=${function}")
  endforeach()
endfunction()

# Lines at the left margin of a test's source that speak to the build:
#   // wrap: accept4 sendmsg       sluice_wrap for this test
#   // ctest: RUN_SERIAL TRUE      any property of the ctest entry
function(sluice_test_directives name source)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  file(STRINGS "${source}" lines REGEX "^// (wrap|ctest): ")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^// (wrap|ctest): (.*)$" line "${line}")
    separate_arguments(words UNIX_COMMAND "${CMAKE_MATCH_2}")
    if(CMAKE_MATCH_1 STREQUAL "wrap")
      sluice_wrap(${name} ${words})
    else()
      set_tests_properties(${name} PROPERTIES ${words})
    endif()
  endforeach()
endfunction()

# sluice_test(<name> <source> <more sources>): a GoogleTest program and one
# ctest entry for it, labelled with the folder of its source.
function(sluice_test name source)
  cmake_path(ABSOLUTE_PATH source)
  cmake_path(GET source PARENT_PATH folder)
  cmake_path(GET folder FILENAME folder)
  add_executable(${name} "${source}" ${ARGN})
  target_link_libraries(${name} PRIVATE test_support GTest::gmock_main)
  sluice_warnings(${name})

  set(runner)
  if(SLUICE_SANITIZE MATCHES "thread")
    # GCC 12's ThreadSanitizer cannot place its shadow memory under the wider
    # address randomization of newer kernels.
    set(bits_file /proc/sys/vm/mmap_rnd_bits)
    if(EXISTS ${bits_file})
      file(READ ${bits_file} bits)
    endif()
    if(bits GREATER 28)
      set(runner setarch -R)
    endif()
  endif()
  add_test(NAME ${name} COMMAND ${runner} $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES
    LABELS "${folder}" TIMEOUT 600 ENVIRONMENT "${SLUICE_TEST_ENVIRONMENT}")
  sluice_test_directives(${name} "${source}")
endfunction()
