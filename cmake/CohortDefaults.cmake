# How everything is compiled. Presets (CMakePresets.json) only choose a folder, a build type and a sanitizer.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")  # line tables for traces, without the weight of full debug information
# Same bits on every machine: no contraction of a*b+c into one rounding.
add_compile_options(-Wall -Wextra -Wshadow -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  add_compile_options(-Wno-array-bounds -Wno-stringop-overflow)  # g++ 13 sees overruns inside fmt 9 where there are none
endif()

set(COHORT_SANITIZE "" CACHE STRING "Sanitizers for everything: address,undefined or thread; empty for none")
if(COHORT_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")  # the checks dominate, and traces stay readable
  add_compile_options(-fsanitize=${COHORT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${COHORT_SANITIZE})
  if(COHORT_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # g++ says that it does not model fences; the tests say whether that matters
  endif()
endif()

option(COHORT_FUZZ "Build the fuzzers (fuzz/) with libFuzzer and AddressSanitizer; needs clang" OFF)
if(COHORT_FUZZ)  # every module gives the fuzzer its coverage
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Paths are hashed relative to the build folder, so every checkout and clone shares one cache (diagnostics stay absolute).
  # The sloppiness is what ccache asks for before it caches files that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1 CCACHE_ABSSTDERR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
