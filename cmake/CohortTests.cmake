# How tests are declared: cohort_test for GoogleTest programs, cohort_add_test for everything else.
include(GoogleTest)
include(CohortSlowTests)

# cohort_add_test(NAME net.Process_lost KIND process LIMIT 180 [SLOW] [PLACES 2] [EXPECT 30] [ENVIRONMENT A=b ...] [FOLDER f] [TREE] COMMAND words...)
# A test of ctest that names what tools/run_tests.py needs of it:
#   KIND         unit, or process: several processes, which a busy machine can fail, so that it is tried up to three times
#   LIMIT        the longest time it may take on an idle machine, in seconds
#   SLOW         `make test-all` runs it, `make test` does not; so it is for those that CohortSlowTests.cmake names
#   PLACES       of those for tests, of which there are two for each core: 1, and for a process test 2 where it does not mostly wait
#   EXPECT       seconds it will take, where that is long: the longest begin first
#   TREE         it is about the sources, not about the program: sanitizer runs leave it out
function(cohort_add_test)
  cmake_parse_arguments(T "SLOW;TREE" "NAME;KIND;LIMIT;PLACES;EXPECT;FOLDER" "COMMAND;ENVIRONMENT" ${ARGN})
  if(T_UNPARSED_ARGUMENTS OR NOT T_KIND MATCHES "^(unit|process)$" OR NOT T_LIMIT GREATER 0)
    message(FATAL_ERROR "cohort_add_test(${T_NAME}): cannot read '${T_UNPARSED_ARGUMENTS}', KIND '${T_KIND}' (unit or process), LIMIT '${T_LIMIT}'")
  endif()
  set(labels ${T_KIND})
  if(T_SLOW OR T_NAME IN_LIST COHORT_SLOW_TESTS)
    list(APPEND labels slow)
  endif()
  if(T_TREE)
    list(APPEND labels tree)
  endif()
  set(places 1)
  if(DEFINED T_PLACES)
    set(places ${T_PLACES})
  elseif(T_KIND STREQUAL "process")
    set(places 2)
  endif()
  if(COHORT_SANITIZE)
    math(EXPR T_LIMIT "${T_LIMIT} * 5")
  endif()
  if(NOT T_FOLDER)
    set(T_FOLDER ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  add_test(NAME ${T_NAME} COMMAND ${T_COMMAND} WORKING_DIRECTORY ${T_FOLDER})
  set_tests_properties(${T_NAME} PROPERTIES LABELS "${labels}" TIMEOUT ${T_LIMIT} PROCESSORS ${places})
  if(DEFINED T_EXPECT)
    set_tests_properties(${T_NAME} PROPERTIES COST ${T_EXPECT})
  endif()
  if(DEFINED T_ENVIRONMENT)
    set_tests_properties(${T_NAME} PROPERTIES ENVIRONMENT "${T_ENVIRONMENT}")
  endif()
endfunction()

# Makes ctests of those of the program's tests that the filter chooses. The names are the same in every build, whatever the parameters are.
function(cohort_discover program kind slow filter)
  set(limit 180)
  if(COHORT_SANITIZE)
    set(limit 900)
  endif()
  set(places 1)
  if(kind STREQUAL "process")
    set(places 2)
  endif()
  string(REGEX REPLACE "_test$" "" prefix ${program})
  set(list ${program}_${kind}_${slow})
  gtest_discover_tests(${program} TEST_FILTER "${filter}" TEST_PREFIX "${prefix}." TEST_LIST ${list} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${kind} TIMEOUT ${limit} PROCESSORS ${places})
  if(slow)  # a list does not come through as a property: the second label is set when ctest reads the tests
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${list}.cmake "set_tests_properties(\${${list}} PROPERTIES LABELS \"${kind};slow\")\n")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${list}.cmake)
  endif()
endfunction()

# The slow ones of a GoogleTest program, as its own filter names them: those of suites that start processes, and the others.
function(cohort_slow_tests program suites)
  string(REGEX REPLACE "_test$" "" prefix ${program})
  set(unit "")
  set(process "")
  foreach(name ${COHORT_SLOW_TESTS})
    if(name MATCHES "^${prefix}\\.(([^_]*)\\..*)$")  # names with _ are not GoogleTest's
      set(test ${CMAKE_MATCH_1})
      if("${CMAKE_MATCH_2}.*" IN_LIST suites OR test MATCHES "^[^.]*Process")
        list(APPEND process ${test})
      else()
        list(APPEND unit ${test})
      endif()
    endif()
  endforeach()
  set(slow_unit "${unit}" PARENT_SCOPE)
  set(slow_process "${process}" PARENT_SCOPE)
endfunction()

# cohort_test(net_test files... [PROCESS Suite.* ...]): a GoogleTest program, each of its tests a ctest named "net.Suite.Test".
# Tests of suites with "Process" in their name, which start processes, are of the kind `process` (see above), as are those of PROCESS; the
# others are `unit`.
function(cohort_test program)
  cmake_parse_arguments(T "" "" "PROCESS" ${ARGN})
  add_executable(${program} ${T_UNPARSED_ARGUMENTS})
  target_link_libraries(${program} PRIVATE GTest::gtest_main GTest::gmock)
  if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
    target_compile_options(${program} PRIVATE -O1)  # claims are compiled a quarter quicker, and what they test stays as it is
  endif()
  set(process *Process* ${T_PROCESS})
  cohort_slow_tests(${program} "${T_PROCESS}")
  set(slow ${slow_unit} ${slow_process})
  foreach(patterns process slow slow_unit slow_process)
    list(JOIN ${patterns} ":" ${patterns})
  endforeach()
  cohort_discover(${program} unit "" "-${process}:${slow}")
  cohort_discover(${program} process "" "${process}-${slow}")
  if(slow_unit)
    cohort_discover(${program} unit slow "${slow_unit}")
  endif()
  if(slow_process)
    cohort_discover(${program} process slow "${slow_process}")
  endif()
  set_property(GLOBAL APPEND PROPERTY COHORT_TEST_PROGRAMS ${program})
endfunction()

# Compiles a test program of a module behind one precompiled <gmock/gmock.h>, which is a third of what most tests are to the compiler.
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
