# Finds the libtorch inside a Python torch wheel, CPU or CUDA, with or without a CUDA toolkit on the machine.
#
# torch's own find_package(Torch) of a CUDA wheel fails where nvcc is missing, and it puts torch's include folder in front, where the
# fmt headers bundled with the wheel hide the system's and spdlog no longer compiles. So the folders go in with -idirafter: they are
# searched last, and they are system folders (no warnings from them).
#
# In:   COHORT_PYTHON (variable or environment): a Python that has torch; else .venv/bin/python of the source tree, else python3.
# Out:  target Torch::libtorch; CohortTorch_FOUND, CohortTorch_VERSION ("2.13.0+cpu"), CohortTorch_ROOT, CohortTorch_CUDA (wheel has CUDA).
set(CohortTorch_MINIMUM 2.11)
set(reason "")

if(NOT COHORT_PYTHON AND DEFINED ENV{COHORT_PYTHON})
  set(COHORT_PYTHON $ENV{COHORT_PYTHON})
endif()
if(NOT COHORT_PYTHON AND EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(COHORT_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
endif()
if(NOT COHORT_PYTHON)
  set(COHORT_PYTHON python3)
endif()

# Where the package lies, without importing it (an import takes seconds).
execute_process(
  COMMAND ${COHORT_PYTHON} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
  OUTPUT_VARIABLE CohortTorch_ROOT ERROR_VARIABLE error RESULT_VARIABLE status OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT status EQUAL 0)
  set(CohortTorch_ROOT "")
  string(STRIP "${error}" error)
  set(reason "${COHORT_PYTHON} did not run (${status} ${error}); set COHORT_PYTHON to a Python that has torch")
elseif(NOT CohortTorch_ROOT)
  set(reason "${COHORT_PYTHON} has no torch; `make build` installs it into .venv, or set COHORT_PYTHON to a Python that has it")
elseif(NOT EXISTS ${CohortTorch_ROOT}/version.py OR NOT EXISTS ${CohortTorch_ROOT}/lib/libtorch_cpu.so)
  set(reason "${CohortTorch_ROOT} has no version.py or no lib/libtorch_cpu.so: not a torch wheel for Linux")
else()
  file(STRINGS ${CohortTorch_ROOT}/version.py line REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+[^'\"]*" CohortTorch_VERSION "${line}")
  string(REGEX MATCH "^[0-9.]+" number "${CohortTorch_VERSION}")
  if(number VERSION_LESS CohortTorch_MINIMUM)
    set(reason "torch ${CohortTorch_VERSION} in ${CohortTorch_ROOT} is too old: cohort needs ${CohortTorch_MINIMUM} or newer")
  endif()
endif()

if(reason)
  set(CohortTorch_FOUND FALSE)
  set(CohortTorch_REASON "${reason}")
  if(CohortTorch_FIND_REQUIRED)
    message(FATAL_ERROR "torch: ${reason}")
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
