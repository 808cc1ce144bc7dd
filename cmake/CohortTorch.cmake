# COHORT_TORCH=AUTO builds the torch modules when a fit torch is found and says what it did; ON demands it; OFF leaves them out
# (sanitizer builds: torch's libraries are not instrumented).
set(COHORT_TORCH AUTO CACHE STRING "Build the modules that use torch: ON, OFF or AUTO")
set_property(CACHE COHORT_TORCH PROPERTY STRINGS AUTO ON OFF)
set(COHORT_PYTHON "" CACHE FILEPATH "A Python that has torch; empty: .venv/bin/python, then python3")

set(COHORT_WITH_TORCH FALSE)
if(COHORT_TORCH)
  find_package(CohortTorch MODULE QUIET)
  # Exceptions cross between torch and us, which takes one C++ runtime for both, and torch's libraries load the shared one.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/runtime.cc CONTENT "int main(int count, char**) { if (count > 9) throw count; }\n")
  try_compile(COHORT_RUNTIME_LINKED ${PROJECT_BINARY_DIR}/runtime ${PROJECT_BINARY_DIR}/runtime.cc COPY_FILE ${PROJECT_BINARY_DIR}/runtime.out)
  set(shared_runtime TRUE)
  if(COHORT_RUNTIME_LINKED)
    file(STRINGS ${PROJECT_BINARY_DIR}/runtime.out shared_runtime REGEX "lib(std)?c\\+\\+\\.so")
  endif()
  if(CohortTorch_FOUND AND NOT shared_runtime)
    set(CohortTorch_FOUND FALSE)
    string(CONCAT CohortTorch_REASON "${CMAKE_CXX_COMPILER} links the C++ runtime statically, and then no exception survives torch: "
                                     "choose another compiler, such as CXX=/usr/bin/g++, in an empty build folder")
  endif()
  set(COHORT_WITH_TORCH ${CohortTorch_FOUND})
  if(CohortTorch_FOUND)
    message(STATUS "torch ${CohortTorch_VERSION} in ${CohortTorch_ROOT}, named by ${CohortTorch_FROM} (CUDA libraries: ${CohortTorch_CUDA})")
  elseif(COHORT_TORCH STREQUAL "AUTO")
    message(STATUS "torch modules are left out: ${CohortTorch_REASON}")
  else()
    message(FATAL_ERROR "COHORT_TORCH=${COHORT_TORCH}, but ${CohortTorch_REASON}")
  endif()
endif()

# Even an empty file costs 6.6 s with <torch/torch.h> precompiled: g++ instantiates the header's pending templates once per file, so files
# of one target are compiled four at a time. Names in anonymous namespaces must therefore differ within a target.
set(COHORT_TORCH_BATCH 4 CACHE STRING "How many files that include all of torch are compiled as one; 1: each alone")

# cohort_use_torch(target [narrow|all]): what a module's `TORCH narrow` or `TORCH all` does to its library and its test program.
# all: files that include <torch/torch.h> (autograd, nn, optim) cost 21 s each, 9 s with that header precompiled. It is built once, in
# cohort_torch_pch, when the first target asks (38 s, 700 MB on disk), and shared by all of them, which works because all are compiled
# with the same flags. narrow: files that only pass tensors around include <ATen/core/Tensor.h> and single <ATen/ops/...> (4 s a file).
function(cohort_use_torch target)
  set(headers ${ARGN})
  if(NOT headers)
    return()
  endif()
  if(NOT headers MATCHES "^(narrow|all)$")
    message(FATAL_ERROR "cohort_use_torch(${target} ${headers}): say narrow or all")
  endif()
  get_target_property(type ${target} TYPE)
  set(reach PUBLIC)
  if(type STREQUAL "EXECUTABLE")
    set(reach PRIVATE)
  endif()
  target_link_libraries(${target} ${reach} Torch::libtorch)
  if(headers STREQUAL "narrow")
    return()
  endif()
  if(NOT TARGET cohort_torch_pch)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/torch_pch.cc CONTENT "// Carries the precompiled <torch/torch.h>.\n")
    add_library(cohort_torch_pch STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/torch_pch.cc)
    target_link_libraries(cohort_torch_pch PRIVATE Torch::libtorch Threads::Threads)
    target_precompile_headers(cohort_torch_pch PRIVATE <torch/torch.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM cohort_torch_pch)
  if(COHORT_TORCH_BATCH GREATER 1)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${COHORT_TORCH_BATCH})
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # g++ takes an included .cc for a header
  endif()
  if(type STREQUAL "EXECUTABLE")  # CMake compiles programs with -fPIE, but the precompiled header is for -fPIC and one -O only
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC $<$<CONFIG:RelWithDebInfo>:-O2>)
  endif()
endfunction()

# cohort_install_rpath(target), for a program or plug-in that is linked with torch or a backend's library: once installed it finds them
# where they are now. INSTALL_RPATH_USE_LINK_PATH alone leaves out folders inside the source tree, where .venv is.
function(cohort_install_rpath target)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  get_target_property(links ${target} LINK_LIBRARIES)
  if(COHORT_WITH_TORCH AND "Torch::libtorch" IN_LIST links)
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${CohortTorch_ROOT}/lib)
  endif()
endfunction()
