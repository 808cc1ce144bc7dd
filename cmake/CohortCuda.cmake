# CUDA kernels: *.cu files beside their module, compiled by nvcc where there is one. A machine without nvcc builds everything else, and what
# asks for a GPU there is refused with that reason; a machine with nvcc and without a GPU compiles them all.
#
# The compiler is called by commands of our own, as a language of CMake's it would be asked for its flags and features in every build
# folder. --fmad=false: a product and a sum are rounded apart, so that kernels give the bits of the processor's loops.
set(COHORT_CUDA AUTO CACHE STRING "Compile CUDA kernels: ON, OFF, or AUTO: where nvcc is found")
set_property(CACHE COHORT_CUDA PROPERTY STRINGS AUTO ON OFF)
set(COHORT_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities with machine code of their own, as 90;100; other GPUs from 8.0 on compile at start")

set(COHORT_WITH_CUDA FALSE)
if(COHORT_CUDA AND NOT COHORT_SANITIZE AND NOT COHORT_FUZZ)
  find_program(COHORT_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(COHORT_NVCC)
    file(REAL_PATH ${COHORT_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH root)
    cmake_path(GET root PARENT_PATH root)
    find_path(COHORT_CUDA_RUNTIME cuda_runtime_api.h HINTS ${root}/include ${root}/targets/x86_64-linux/include /usr/local/cuda/include)
    find_library(COHORT_CUDART cudart_static HINTS ${root}/lib64 ${root}/targets/x86_64-linux/lib /usr/local/cuda/lib64)
  endif()
  set(nvcc_works FALSE)
  if(COHORT_NVCC AND COHORT_CUDA_RUNTIME AND COHORT_CUDART)  # older ones know no C++20, or not this g++
    file(WRITE ${PROJECT_BINARY_DIR}/nvcc_probe.cu "#include <concepts>\n__global__ void probe() {}\n")
    execute_process(COMMAND ${COHORT_NVCC} -std=c++20 -gencode arch=compute_80,code=compute_80 -c ${PROJECT_BINARY_DIR}/nvcc_probe.cu
                            -o ${PROJECT_BINARY_DIR}/nvcc_probe.o
                    RESULT_VARIABLE nvcc_status OUTPUT_QUIET ERROR_VARIABLE nvcc_said)
    if(nvcc_status EQUAL 0)
      set(nvcc_works TRUE)
    endif()
  endif()
  if(nvcc_works)
    set(COHORT_WITH_CUDA TRUE)
    message(STATUS "CUDA kernels: ${COHORT_NVCC}, compute capabilities ${COHORT_CUDA_ARCHITECTURES}")
  elseif(DEFINED nvcc_status AND COHORT_CUDA STREQUAL "AUTO")
    string(STRIP "${nvcc_said}" nvcc_said)
    message(STATUS "CUDA kernels are left out: ${COHORT_NVCC} compiles no C++20 here (${nvcc_said})")
  elseif(DEFINED nvcc_status)
    message(FATAL_ERROR "COHORT_CUDA=${COHORT_CUDA}, but ${COHORT_NVCC} compiles no C++20 here; take CUDA 12 or newer, and a g++ that it knows:\n${nvcc_said}")
  elseif(COHORT_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA kernels are left out: nvcc, cuda_runtime_api.h or libcudart_static.a was not found")
  else()
    message(FATAL_ERROR "COHORT_CUDA=${COHORT_CUDA}, but nvcc, cuda_runtime_api.h or libcudart_static.a was not found; install the CUDA toolkit, or set COHORT_NVCC, COHORT_CUDA_RUNTIME and COHORT_CUDART")
  endif()
endif()

# cohort_cuda_sources(target file.cu ... [DEFINITIONS A=b ...]): compiled into the target, where there is nvcc; elsewhere nothing happens.
# A .cc is compiled as CUDA, into an object of its own. fmt's checks while it compiles are more than nvcc understands.
# In the folder of the target's CMakeLists.txt only: another one's targets do not see the commands.
function(cohort_cuda_sources target)
  if(NOT COHORT_WITH_CUDA)
    return()
  endif()
  cmake_parse_arguments(C "" "" "DEFINITIONS" ${ARGN})
  set(flags -std=c++20 -O3 --fmad=false -lineinfo -Xcompiler=-fPIC,-ffp-contract=off
      -DFMT_USE_CONSTEXPR=1 -DFMT_CONSTEVAL= -DFMT_USE_CONSTEVAL=0 -diag-suppress=186 -gencode arch=compute_80,code=compute_80)
  foreach(architecture ${COHORT_CUDA_ARCHITECTURES})
    list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(TRANSFORM C_DEFINITIONS PREPEND -D)
  set(launcher "")
  if(CCACHE)
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=/ CCACHE_NOHASHDIR=1 ${CCACHE})
  endif()
  foreach(source ${C_UNPARSED_ARGUMENTS})
    cmake_path(ABSOLUTE_PATH source NORMALIZE)
    cmake_path(GET source STEM name)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${target}_cuda/${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${source} DEPFILE ${object}.d VERBATIM
      COMMENT "Building CUDA object of ${source}"
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/${target}_cuda
      COMMAND ${launcher} ${COHORT_NVCC} -x cu ${flags} ${C_DEFINITIONS} -I${PROJECT_SOURCE_DIR} -I${COHORT_GENERATED_DIR}
              -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object})
    set_source_files_properties(${object} TARGET_DIRECTORY ${target} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_sources(${target} PRIVATE ${object})
  endforeach()
endfunction()

# cohort_gpu_rules(sgd adam ...): update rules of single elements, whose <word>.cc is compiled for GPUs, too, and writes their rows into
# cohort/optim/gpu_rule_rows.inc: none where there is no nvcc.
function(cohort_gpu_rules)
  set(rows "")
  set(externs "")
  set(count 0)
  if(COHORT_WITH_CUDA)
    foreach(word ${ARGN})
      cohort_cuda_sources(cohort_optim rule/${word}.cc DEFINITIONS row_${word}=gpu_row_${word})
      string(APPEND externs "extern const Rule gpu_row_${word};\n")
      string(APPEND rows "    &gpu_row_${word},\n")
    endforeach()
    list(LENGTH ARGN count)
  endif()
  file(CONFIGURE OUTPUT ${COHORT_GENERATED_DIR}/cohort/optim/gpu_rule_rows.inc @ONLY CONTENT
"// Generated from cohort/optim/CMakeLists.txt: the rules that update slices on a GPU.
#pragma once
#include <array>

#include \"cohort/optim/rule.h\"

namespace cohort::optim {

@externs@
inline constexpr std::array<const Rule*, @count@> kGpuRuleRows{
@rows@};

}  // namespace cohort::optim
")
endfunction()
