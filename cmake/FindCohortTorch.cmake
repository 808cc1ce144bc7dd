# Finds a libtorch, CPU or CUDA, with or without a CUDA toolkit on the machine: the first of
#   1. the target `torch`, which a find_package(Torch) before this one left
#   2. a libtorch folder (the zip of pytorch.org, a build of one's own): Torch_DIR or Torch_ROOT (variables or environment), CMAKE_PREFIX_PATH
#   3. the torch wheel of a Python: COHORT_PYTHON (variable or environment), else .venv/bin/python of the source tree, else python3
#
# torch's own find_package(Torch) of a CUDA build fails where nvcc is missing, so it is not called; and it puts torch's include folder in
# front, where the fmt headers bundled with torch hide the system's and spdlog no longer compiles. So the folders go in with -idirafter:
# they are searched last, and they are system folders (no warnings from them).
#
# Out:  target Torch::libtorch; CohortTorch_FOUND, CohortTorch_REASON (when it is not), CohortTorch_VERSION ("2.13.0+cpu"),
#       CohortTorch_ROOT (its include and lib), CohortTorch_FROM (who named it), CohortTorch_CUDA (it has CUDA libraries); COHORT_PYTHON.
set(CohortTorch_MINIMUM 2.11)

# The folder of a find_package(Torch) before this one: in which the library of its target lies.
function(cohort_torch_of_target)
  set(CohortTorch_ROOT "" PARENT_SCOPE)
  if(NOT TARGET torch)
    return()
  endif()
  set(root ${TORCH_INSTALL_PREFIX})
  foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_RELEASE IMPORTED_LOCATION_NOCONFIG IMPORTED_LOCATION_RELWITHDEBINFO IMPORTED_LOCATION_DEBUG)
    get_target_property(library torch ${property})
    if(library AND NOT root)
      cmake_path(GET library PARENT_PATH root)
      cmake_path(GET root PARENT_PATH root)
    endif()
  endforeach()
  set(CohortTorch_ROOT "${root}" PARENT_SCOPE)
  set(CohortTorch_FROM "the target torch" PARENT_SCOPE)
endfunction()

# The folder that Torch_DIR names, or else the first in which find_package(Torch) would look and find something.
function(cohort_torch_of_package)
  set(CohortTorch_ROOT "" PARENT_SCOPE)
  foreach(name Torch_DIR ENV{Torch_DIR})
    if(name MATCHES "^ENV")
      set(folder "$ENV{Torch_DIR}")
    else()
      set(folder "${Torch_DIR}")
    endif()
    if(folder AND NOT folder MATCHES "-NOTFOUND$")
      cmake_path(SET root NORMALIZE "${folder}/../../..")
      string(REGEX REPLACE "/$" "" root "${root}")
      set(CohortTorch_ROOT "${root}" PARENT_SCOPE)
      set(CohortTorch_FROM "Torch_DIR=${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(prefixes ${Torch_ROOT} $ENV{Torch_ROOT} ${CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" more "$ENV{CMAKE_PREFIX_PATH}")
  foreach(prefix ${prefixes} ${more})
    foreach(place share/cmake/Torch Torch)  # torch.utils.cmake_prefix_path ends with share/cmake
      if(EXISTS ${prefix}/${place}/TorchConfig.cmake)
        cmake_path(SET root NORMALIZE "${prefix}/${place}/../../..")
        string(REGEX REPLACE "/$" "" root "${root}")
        set(CohortTorch_ROOT "${root}" PARENT_SCOPE)
        set(CohortTorch_FROM "the prefix ${prefix}" PARENT_SCOPE)
        return()
      endif()
    endforeach()
  endforeach()
endfunction()

# The torch wheel of COHORT_PYTHON, without importing it (an import takes seconds).
function(cohort_torch_of_python)
  execute_process(
    COMMAND ${COHORT_PYTHON} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE root ERROR_VARIABLE error RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(nowhere "there is no target torch and no libtorch in Torch_DIR or CMAKE_PREFIX_PATH")
  set(remedy "set Torch_DIR or CMAKE_PREFIX_PATH to a libtorch, or COHORT_PYTHON to a Python that has torch")
  if(NOT status EQUAL 0)
    string(STRIP "${error}" error)
    set(CohortTorch_REASON "${nowhere}, and ${COHORT_PYTHON} did not run (${status} ${error}); ${remedy}" PARENT_SCOPE)
    set(root "")
  elseif(NOT root)
    set(CohortTorch_REASON "${nowhere}, and ${COHORT_PYTHON} has no torch; ${remedy} (in Cohort's tree `make build` installs it)" PARENT_SCOPE)
  endif()
  set(CohortTorch_ROOT "${root}" PARENT_SCOPE)
  set(CohortTorch_FROM "${COHORT_PYTHON}" PARENT_SCOPE)
endfunction()

# "2.13.0+cpu": in a wheel by version.py, in a zip by build-version, else by its header.
function(cohort_torch_version)
  set(line "")
  if(EXISTS ${CohortTorch_ROOT}/version.py)
    file(STRINGS ${CohortTorch_ROOT}/version.py line REGEX "^__version__")
  elseif(EXISTS ${CohortTorch_ROOT}/build-version)
    file(STRINGS ${CohortTorch_ROOT}/build-version line LIMIT_COUNT 1)
  elseif(EXISTS ${CohortTorch_ROOT}/include/torch/headeronly/version.h)
    file(STRINGS ${CohortTorch_ROOT}/include/torch/headeronly/version.h line REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "#define TORCH_VERSION_[A-Z]+ +" "" line "${line}")
    string(REPLACE ";" "." line "${line}")
  endif()
  string(REGEX MATCH "[0-9]+\\.[0-9]+[^'\" ]*" version "${line}")
  set(CohortTorch_VERSION "${version}" PARENT_SCOPE)
endfunction()

# Sets CohortTorch_REASON where what lies in CohortTorch_ROOT cannot be linked.
function(cohort_check_torch)
  set(where "${CohortTorch_ROOT} (named by ${CohortTorch_FROM})")
  string(REGEX MATCH "^[0-9.]+" number "${CohortTorch_VERSION}")
  set(core ${CohortTorch_ROOT}/lib/libc10.so)
  if(NOT EXISTS ${CohortTorch_ROOT}/lib/libtorch_cpu.so OR NOT EXISTS ${core} OR NOT IS_DIRECTORY ${CohortTorch_ROOT}/include/torch)
    set(CohortTorch_REASON "${where} is no libtorch for Linux: it has no lib/libtorch_cpu.so, lib/libc10.so or include/torch" PARENT_SCOPE)
    return()
  elseif(NOT number)
    set(CohortTorch_REASON "${where} does not say its version: no version.py, build-version or include/torch/headeronly/version.h" PARENT_SCOPE)
    return()
  elseif(number VERSION_LESS CohortTorch_MINIMUM)
    set(CohortTorch_REASON "torch ${CohortTorch_VERSION} in ${where} is too old: cohort needs ${CohortTorch_MINIMUM} or newer" PARENT_SCOPE)
    return()
  endif()
  file(READ ${core} machine OFFSET 18 LIMIT 2 HEX)
  file(STRINGS ${core} strings REGEX "__cxx11" LIMIT_COUNT 1)
  if(NOT machine STREQUAL "3e00")
    set(CohortTorch_REASON "${where} is built for another processor than x86-64" PARENT_SCOPE)
  elseif(NOT strings)
    string(CONCAT reason "${where} is built with _GLIBCXX_USE_CXX11_ABI=0, and std::string and std::list of this compiler are others: "
                         "take the libtorch with the cxx11 ABI")
    set(CohortTorch_REASON "${reason}" PARENT_SCOPE)
  endif()
endfunction()

if(NOT COHORT_PYTHON AND DEFINED ENV{COHORT_PYTHON})
  set(COHORT_PYTHON $ENV{COHORT_PYTHON})
endif()
if(NOT COHORT_PYTHON AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(COHORT_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
if(NOT COHORT_PYTHON)
  set(COHORT_PYTHON python3)
endif()

set(CohortTorch_REASON "")
cohort_torch_of_target()
if(NOT CohortTorch_ROOT)
  cohort_torch_of_package()
endif()
if(NOT CohortTorch_ROOT)
  cohort_torch_of_python()
endif()
if(NOT CohortTorch_REASON)
  cohort_torch_version()
  cohort_check_torch()
endif()
if(CohortTorch_REASON)
  set(CohortTorch_FOUND FALSE)
  if(CohortTorch_FIND_REQUIRED)
    message(FATAL_ERROR "torch: ${CohortTorch_REASON}")
  endif()
  return()
endif()

set(CohortTorch_FOUND TRUE)
set(CohortTorch_CUDA FALSE)
set(lib ${CohortTorch_ROOT}/lib)
if(EXISTS ${lib}/libtorch_cuda.so)
  set(CohortTorch_CUDA TRUE)
endif()
if(NOT TARGET Torch::libtorch)
  add_library(Torch::libtorch INTERFACE IMPORTED GLOBAL)
  set_property(TARGET Torch::libtorch PROPERTY INTERFACE_COMPILE_OPTIONS
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${CohortTorch_ROOT}/include>"
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${CohortTorch_ROOT}/include/torch/csrc/api/include>")
  # Full paths also give the RPATH. What a CUDA wheel's libraries need themselves lies in other packages, which they find by their own
  # RUNPATH when the program starts, so the linker need not resolve it.
  set_property(TARGET Torch::libtorch PROPERTY INTERFACE_LINK_LIBRARIES ${lib}/libtorch.so ${lib}/libtorch_cpu.so ${lib}/libc10.so)
  # libtorch_cpu exports a std::filesystem of its own, built by another GCC: the system's is to be found first.
  set_property(TARGET Torch::libtorch PROPERTY INTERFACE_LINK_OPTIONS -Wl,--allow-shlib-undefined
    $<$<CXX_COMPILER_ID:GNU>:LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state>)
  if(CohortTorch_CUDA)
    # Kernels register themselves when these load; nobody names a symbol of them, so a linker told --as-needed would drop them.
    set_property(TARGET Torch::libtorch APPEND PROPERTY INTERFACE_LINK_LIBRARIES
      "-Wl,--push-state,--no-as-needed,${lib}/libtorch_cuda.so,${lib}/libc10_cuda.so,--pop-state")
  endif()
endif()
