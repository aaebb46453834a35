# Functions that make the project's targets.

# The warnings of this project, errors with SLUICE_WERROR. GCC 12's -Wrestrict
# is wrong about "literal" + std::string when it optimizes.
function(sluice_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wconversion -Wshadow
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    $<$<BOOL:${SLUICE_WERROR}>:-Werror>)
endfunction()

# sluice_library(<component> HEADERS <public headers> SOURCES <files>)
# Makes sluice_<component>, alias sluice::<component>. Users of it, here and
# after an installation, write #include "<component>/<header>".
function(sluice_library component)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;SOURCES")
  set(target sluice_${component})
  add_library(${target} ${arg_SOURCES})
  add_library(sluice::${component} ALIAS ${target})
  target_sources(${target} PUBLIC
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${arg_HEADERS})
  target_compile_features(${target} PUBLIC cxx_std_20)
  sluice_warnings(${target})
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${component}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  list(TRANSFORM arg_HEADERS PREPEND "${component}/")
  set_property(GLOBAL APPEND PROPERTY SLUICE_PUBLIC_HEADERS ${arg_HEADERS})
endfunction()

# headers_selfcontained: compiles each public header alone, as its users may.
# CMake's own VERIFY_INTERFACE_HEADER_SETS would do it without our warnings.
function(sluice_headers_selfcontained)
  get_property(headers GLOBAL PROPERTY SLUICE_PUBLIC_HEADERS)
  set(sources)
  foreach(header IN LISTS headers)
    set(source "${PROJECT_BINARY_DIR}/headers_selfcontained/${header}.cc")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n")
    list(APPEND sources "${source}")
  endforeach()
  add_library(headers_selfcontained OBJECT ${sources})
  target_link_libraries(headers_selfcontained PRIVATE sluice::sluice)
  sluice_warnings(headers_selfcontained)
endfunction()

# sluice_program(<name> <sources>): a program with flags, never installed.
function(sluice_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE sluice::sluice gflags::gflags)
  sluice_warnings(${name})
endfunction()
