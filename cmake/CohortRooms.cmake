# The words the rooms' CMakeLists.txt are written with: cohort_room, cohort_variants, cohort_test.
include(GoogleTest)

set(COHORT_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)

# cohort_test(net_test files...): a GoogleTest program, each of its tests a ctest named "net.Suite.Test".
# A suite that starts processes has "Process" in its name: ctest counts it as two cores, so that on a small machine nothing runs beside it
# and its promises in seconds are about the code and not about the neighbours.
function(cohort_test program)
  string(REGEX REPLACE "_test$" "" prefix ${program})
  add_executable(${program} ${ARGN})
  target_link_libraries(${program} PRIVATE GTest::gtest_main GTest::gmock)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${program} PRIVATE -O1)  # claims are compiled a quarter quicker, and what they test stays as it is
  endif()
  set(how TEST_PREFIX "${prefix}." DISCOVERY_TIMEOUT 60)
  set(limit 180)
  if(COHORT_SANITIZE)
    set(limit 900)
  endif()
  gtest_discover_tests(${program} TEST_FILTER "-*Process*" ${how} PROPERTIES TIMEOUT ${limit})
  gtest_discover_tests(${program} TEST_FILTER "*Process*" ${how} PROPERTIES TIMEOUT ${limit} PROCESSORS 2)
  set_property(GLOBAL APPEND PROPERTY COHORT_TEST_PROGRAMS ${program})
endfunction()

# Compiles a test program of a room behind one precompiled <gmock/gmock.h>, which is a third of what most tests are to the compiler.
function(cohort_precompile_gmock program)
  if(NOT TARGET cohort_gmock_pch)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/gmock_pch.cc CONTENT "// Carries the precompiled <gmock/gmock.h>.\n")
    add_library(cohort_gmock_pch STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/gmock_pch.cc)
    target_link_libraries(cohort_gmock_pch PRIVATE GTest::gtest_main GTest::gmock)
    set_target_properties(cohort_gmock_pch PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(cohort_gmock_pch PRIVATE -fPIE $<$<CONFIG:RelWithDebInfo>:-O1>)  # as programs are
    target_precompile_headers(cohort_gmock_pch PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  target_precompile_headers(${program} REUSE_FROM cohort_gmock_pch)
endfunction()

# cohort_room(net LAYER 1 LINKS cohort_base OpenSSL::Crypto)
# One static library cohort_net from cohort/net/*.cc, one test program net_test from cohort/net/*_test.cc. main.cc is left to a program.
# tools/rooms.py reads the LAYER of every room here and fails the test run when an include points up or sideways.
# TORCH narrow: the room uses torch by its narrow headers. TORCH all: by <torch/torch.h>, precompiled once (cmake/CohortTorch.cmake).
function(cohort_room name)
  cmake_parse_arguments(ROOM "" "LAYER;TORCH" "LINKS" ${ARGN})
  if(ROOM_UNPARSED_ARGUMENTS OR NOT DEFINED ROOM_LAYER)
    message(FATAL_ERROR "cohort_room(${name} LAYER n [TORCH narrow|all] LINKS ...): cannot read '${ROOM_UNPARSED_ARGUMENTS}', layer '${ROOM_LAYER}'")
  endif()
  file(GLOB all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$|/main\\.cc$")
  if(NOT sources)  # a room of headers only is still one library: others link it by name
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/headers_only.cc)
    file(CONFIGURE OUTPUT ${sources} CONTENT "// cohort/${name} has headers only.\n")
  endif()

  add_library(cohort_${name} STATIC ${sources})
  target_include_directories(cohort_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${COHORT_GENERATED_DIR}>
                                                   $<INSTALL_INTERFACE:include>)
  target_compile_features(cohort_${name} PUBLIC cxx_std_20)  # the headers need it in an outside project too
  target_link_libraries(cohort_${name} PUBLIC ${ROOM_LINKS})
  set_target_properties(cohort_${name} PROPERTIES EXPORT_NAME room_${name})
  cohort_use_torch(cohort_${name} ${ROOM_TORCH})
  set_property(GLOBAL APPEND PROPERTY COHORT_ROOMS ${name})
  set_property(GLOBAL PROPERTY COHORT_ROOM_${name}_TORCH "${ROOM_TORCH}")
  if(tests)
    cohort_room_tests(${name} ${tests})
  endif()
endfunction()

# Adds test files to the room's test program, which the first of them creates.
function(cohort_room_tests name)
  if(TARGET ${name}_test)
    target_sources(${name}_test PRIVATE ${ARGN})
    return()
  endif()
  cohort_test(${name}_test ${ARGN})
  target_link_libraries(${name}_test PRIVATE cohort_${name})
  get_property(torch GLOBAL PROPERTY COHORT_ROOM_${name}_TORCH)
  cohort_use_torch(${name}_test ${torch})
  if(NOT torch STREQUAL "all")
    cohort_precompile_gmock(${name}_test)
  endif()
endfunction()

# cohort_variants(all_reduce ring tree halving_doubling): one file, one word, one test.
#
# It stands in the folder of the variants, cohort/collective/all_reduce/CMakeLists.txt, which the room's own CMakeLists.txt adds with
# add_subdirectory(all_reduce) after its cohort_room(...). Each word `ring`
#   - compiles ring.cc into the room (cohort_collective),
#   - adds ring_test.cc to the room's test program (collective_test); a word without a test fails the test run,
#   - writes a row into the generated header "cohort/collective/all_reduce_rows.inc", in the order of the words:
#
#       extern const AllReduce row_ring;                                  // one for each word
#       inline constexpr std::array<const AllReduce*, 3> kAllReduceRows{&row_ring, ...};
#
# ring.cc defines its row in namespace cohort::collective and nothing registers itself:
#
#       extern const AllReduce row_ring{.name = "ring", .about = "...", .run = run};
#
# In a room that includes all of torch several files are compiled as one: what is in their anonymous namespaces has the word in its name.
#
# By convention the row's type is the family in CamelCase (AllReduce), declared in cohort/<room>/<family>.h, and the row is row_<word>.
# Where that does not fit:  cohort_variants(all_reduce ROW AllReduce HEADER cohort/collective/all_reduce.h PREFIX row_ WORDS ring tree)
# (a second family of the same room that shares words with the first needs its own PREFIX).
function(cohort_variants family)
  cmake_parse_arguments(V "" "ROW;HEADER;PREFIX" "WORDS" ${ARGN})
  set(words ${V_UNPARSED_ARGUMENTS} ${V_WORDS})
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR PARENT_PATH room_dir)
  cmake_path(GET room_dir FILENAME room)
  if(NOT TARGET cohort_${room})
    message(FATAL_ERROR "cohort_variants(${family}): ${CMAKE_CURRENT_SOURCE_DIR} is not inside a room; call cohort_room(${room} ...) first")
  endif()
  string(REPLACE "_" ";" parts ${family})
  set(camel "")
  foreach(part ${parts})
    string(SUBSTRING ${part} 0 1 first)
    string(SUBSTRING ${part} 1 -1 rest)
    string(TOUPPER ${first} first)
    string(APPEND camel ${first}${rest})
  endforeach()
  set(row ${camel})
  set(header cohort/${room}/${family}.h)
  set(prefix row_)
  foreach(option ROW HEADER PREFIX)
    if(DEFINED V_${option})
      string(TOLOWER ${option} variable)
      set(${variable} ${V_${option}})
    endif()
  endforeach()

  file(GLOB present CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)  # a file that comes or goes configures again
  set(externs "")
  set(pointers "")
  foreach(word ${words})
    set(file ${CMAKE_CURRENT_SOURCE_DIR}/${word})
    if(NOT ${file}.cc IN_LIST present)
      message(FATAL_ERROR "cohort_variants(${family} ... ${word} ...): ${file}.cc is missing; a variant is one file, one word, one test")
    endif()
    target_sources(cohort_${room} PRIVATE ${file}.cc)
    if(${file}_test.cc IN_LIST present)
      cohort_room_tests(${room} ${file}_test.cc)
    else()  # work in progress may build, but does not pass
      message(WARNING "${file}_test.cc is missing: a variant is one file, one word, one test")
      add_test(NAME ${room}.${family}.${word}.HasATest COMMAND ${CMAKE_COMMAND} -E cat ${file}_test.cc)
    endif()
    string(APPEND externs "extern const ${row} ${prefix}${word};\n")
    string(APPEND pointers "    &${prefix}${word},\n")
  endforeach()
  list(LENGTH words count)
  file(CONFIGURE OUTPUT ${COHORT_GENERATED_DIR}/cohort/${room}/${family}_rows.inc @ONLY CONTENT
"// Generated from cohort/@room@/@family@/CMakeLists.txt: one row for each word.
#pragma once
#include <array>

#include \"@header@\"

namespace cohort::@room@ {

@externs@
inline constexpr std::array<const @row@*, @count@> k@camel@Rows{
@pointers@};

}  // namespace cohort::@room@
")
endfunction()
