# The words the modules' CMakeLists.txt are written with: cohort_module and cohort_variants (and cohort_test, CohortTests.cmake).
include(CohortTests)

set(COHORT_GENERATED_DIR ${PROJECT_BINARY_DIR}/generated)

# cohort_module(net LAYER 1 LINKS cohort_base OpenSSL::Crypto)
# One static library cohort_net from cohort/net/*.cc, one test program net_test from cohort/net/*_test.cc. main.cc is left to a program.
# FOLDERS: folders inside a large module, whose files belong to it like its own.
# tools/modules.py reads the LAYER of every module here and fails the test run when an include points up or sideways.
# TORCH narrow: the module uses torch by its narrow headers. TORCH all: by <torch/torch.h>, precompiled once (cmake/CohortTorch.cmake).
function(cohort_module name)
  cmake_parse_arguments(MODULE "" "LAYER;TORCH" "FOLDERS;LINKS" ${ARGN})
  if(MODULE_UNPARSED_ARGUMENTS OR NOT DEFINED MODULE_LAYER)
    message(FATAL_ERROR "cohort_module(${name} LAYER n [TORCH narrow|all] LINKS ...): cannot read '${MODULE_UNPARSED_ARGUMENTS}', layer '${MODULE_LAYER}'")
  endif()
  set(globs ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  foreach(folder ${MODULE_FOLDERS})
    list(APPEND globs ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  endforeach()
  file(GLOB all CONFIGURE_DEPENDS ${globs})
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$|/main\\.cc$")
  if(NOT sources)  # a module of headers only is still one library: others link it by name
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/headers_only.cc)
    file(CONFIGURE OUTPUT ${sources} CONTENT "// cohort/${name} has headers only.\n")
  endif()

  add_library(cohort_${name} STATIC ${sources})
  target_include_directories(cohort_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${COHORT_GENERATED_DIR}>
                                                   $<INSTALL_INTERFACE:include>)
  target_compile_features(cohort_${name} PUBLIC cxx_std_20)  # the headers need it in an outside project too
  target_link_libraries(cohort_${name} PUBLIC ${MODULE_LINKS})
  set_target_properties(cohort_${name} PROPERTIES EXPORT_NAME module_${name})
  cohort_use_torch(cohort_${name} ${MODULE_TORCH})
  set_property(GLOBAL APPEND PROPERTY COHORT_MODULES ${name})
  set_property(GLOBAL PROPERTY COHORT_MODULE_${name}_TORCH "${MODULE_TORCH}")
  if(tests)
    cohort_module_tests(${name} ${tests})
  endif()
endfunction()

# cohort_torch_part(trainer LINKS cohort_train ...): the part of a torch-free module that computes with torch: the files of this folder as a
# library of their own, cohort_trainer, and their tests as trainer_test.
function(cohort_torch_part name)
  cmake_parse_arguments(PART "" "" "LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(cohort_${name} STATIC ${sources})
  target_link_libraries(cohort_${name} PUBLIC ${PART_LINKS})
  set_target_properties(cohort_${name} PROPERTIES EXPORT_NAME module_${name})
  cohort_use_torch(cohort_${name} all)
  if(tests)
    cohort_test(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE cohort_${name})
    cohort_use_torch(${name}_test all)
  endif()
endfunction()

# Adds test files to the module's test program, which the first of them creates.
function(cohort_module_tests name)
  if(TARGET ${name}_test)
    target_sources(${name}_test PRIVATE ${ARGN})
    return()
  endif()
  cohort_test(${name}_test ${ARGN})
  target_link_libraries(${name}_test PRIVATE cohort_${name})
  get_property(torch GLOBAL PROPERTY COHORT_MODULE_${name}_TORCH)
  cohort_use_torch(${name}_test ${torch})
  if(NOT torch STREQUAL "all")
    cohort_precompile_gmock(${name}_test)
  endif()
endfunction()

# cohort_variants(all_reduce ring tree halving_doubling): one file, one word, one test.
#
# It stands in the folder of the variants, cohort/collective/all_reduce/CMakeLists.txt, which the module's own CMakeLists.txt adds with
# add_subdirectory(all_reduce) after its cohort_module(...). Each word `ring`
#   - compiles ring.cc into the module (cohort_collective),
#   - adds ring_test.cc to the module's test program (collective_test); a word without a test fails the test run,
#   - writes a row into the generated header "cohort/collective/all_reduce_rows.inc", in the order of the words:
#
#       extern const AllReduce row_ring;                                  // one for each word
#       inline constexpr std::array<const AllReduce*, 3> kAllReduceRows{&row_ring, ...};
#
#   - and its text into "cohort/collective/all_reduce_words.h", for programs that list the words and have not the rows (torch):
#
#       inline constexpr std::string_view kAllReduceWords[]{"ring", ...};
#
# ring.cc defines its row in namespace cohort::collective and nothing registers itself:
#
#       extern const AllReduce row_ring{.name = "ring", .about = "...", .run = run};
#
# In a module that includes all of torch several files are compiled as one: what is in their anonymous namespaces has the word in its name.
#
# By convention the row's type is the family in CamelCase (AllReduce), declared in cohort/<module>/<family>.h, and the row is row_<word>.
# Where that does not fit:  cohort_variants(all_reduce ROW AllReduce HEADER cohort/collective/operations/all_reduce.h PREFIX row_ WORDS ring tree)
# (a second family of the same module that shares words with the first needs its own PREFIX).
function(cohort_variants family)
  cmake_parse_arguments(V "" "ROW;HEADER;PREFIX" "WORDS" ${ARGN})
  set(words ${V_UNPARSED_ARGUMENTS} ${V_WORDS})
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR PARENT_PATH module_dir)
  cmake_path(GET module_dir FILENAME module)
  if(NOT TARGET cohort_${module})
    message(FATAL_ERROR "cohort_variants(${family}): ${CMAKE_CURRENT_SOURCE_DIR} is not inside a module; call cohort_module(${module} ...) first")
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
  set(header cohort/${module}/${family}.h)
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
  set(texts "")
  foreach(word ${words})
    set(file ${CMAKE_CURRENT_SOURCE_DIR}/${word})
    if(NOT ${file}.cc IN_LIST present)
      message(FATAL_ERROR "cohort_variants(${family} ... ${word} ...): ${file}.cc is missing; a variant is one file, one word, one test")
    endif()
    target_sources(cohort_${module} PRIVATE ${file}.cc)
    if(${file}_test.cc IN_LIST present)
      cohort_module_tests(${module} ${file}_test.cc)
    else()  # work in progress may build, but does not pass
      message(WARNING "${file}_test.cc is missing: a variant is one file, one word, one test")
      cohort_add_test(NAME ${module}.${family}.${word}.HasATest KIND unit LIMIT 10 COMMAND ${CMAKE_COMMAND} -E cat ${file}_test.cc)
    endif()
    string(APPEND externs "extern const ${row} ${prefix}${word};\n")
    string(APPEND pointers "    &${prefix}${word},\n")
    string(APPEND texts "\n    \"${word}\",")
  endforeach()
  list(LENGTH words count)
  file(CONFIGURE OUTPUT ${COHORT_GENERATED_DIR}/cohort/${module}/${family}_rows.inc @ONLY CONTENT
"// Generated from cohort/@module@/@family@/CMakeLists.txt: one row for each word.
#pragma once
#include <array>

#include \"@header@\"

namespace cohort::@module@ {

@externs@
inline constexpr std::array<const @row@*, @count@> k@camel@Rows{
@pointers@};

}  // namespace cohort::@module@
")
  file(CONFIGURE OUTPUT ${COHORT_GENERATED_DIR}/cohort/${module}/${family}_words.h @ONLY CONTENT
"// Generated from cohort/@module@/@family@/CMakeLists.txt: the words alone.
#pragma once
#include <string_view>

namespace cohort::@module@ {

inline constexpr std::string_view k@camel@Words[]{@texts@
};

}  // namespace cohort::@module@
")
endfunction()
