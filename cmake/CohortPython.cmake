# cohort_python_module(python LAYER 9 LINKS cohort_train ...): a module that is a Python extension, target cohort_python, file cohort/_core.*.so.
#
# It is built for COHORT_PYTHON and against the torch that is installed there, with torch's own pybind11 headers. The modules below are
# linked in whole and hidden, so that nothing of ours can meet another copy of itself (or of fmt) in the same process.
# Where that Python has no headers, or torch is a libtorch without Python, the module is left out, and the configuration says so.
set(COHORT_PYTHON_PACKAGE ${PROJECT_BINARY_DIR}/python)

# What COHORT_PYTHON says of itself: PYTHON_INCLUDE (empty without Python.h), PYTHON_SUFFIX.
function(cohort_ask_python)
  execute_process(COMMAND ${COHORT_PYTHON} -c "import os, sysconfig as s; i = s.get_path('include'); \
print(i if os.path.exists(os.path.join(i, 'Python.h')) else '', s.get_config_var('EXT_SUFFIX'), sep=';', end='')"
    OUTPUT_VARIABLE answer COMMAND_ERROR_IS_FATAL ANY)
  list(GET answer 0 include)
  list(GET answer 1 suffix)
  set(PYTHON_INCLUDE "${include}" PARENT_SCOPE)
  set(PYTHON_SUFFIX "${suffix}" PARENT_SCOPE)
endfunction()

# Every .py and .pyi of python/ as a link in build/python, where the module lies too; a file that comes or goes configures again.
function(cohort_link_package)
  if(EXISTS ${COHORT_PYTHON_PACKAGE} AND NOT IS_DIRECTORY ${COHORT_PYTHON_PACKAGE})
    file(REMOVE ${COHORT_PYTHON_PACKAGE})
  endif()
  file(GLOB_RECURSE stale ${COHORT_PYTHON_PACKAGE}/*.py ${COHORT_PYTHON_PACKAGE}/*.pyi)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python
       ${PROJECT_SOURCE_DIR}/python/*.py ${PROJECT_SOURCE_DIR}/python/*.pyi ${PROJECT_SOURCE_DIR}/python/*/py.typed)
  foreach(file ${files})
    cmake_path(GET file PARENT_PATH folder)
    file(MAKE_DIRECTORY ${COHORT_PYTHON_PACKAGE}/${folder})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/${file} ${COHORT_PYTHON_PACKAGE}/${file} SYMBOLIC)
    list(REMOVE_ITEM stale ${COHORT_PYTHON_PACKAGE}/${file})
  endforeach()
  if(stale)
    file(REMOVE ${stale})
  endif()
endfunction()

function(cohort_python_module name)
  cmake_parse_arguments(MODULE "" "LAYER" "LINKS" ${ARGN})
  cohort_ask_python()
  if(NOT PYTHON_INCLUDE)
    message(STATUS "the Python package is left out: ${COHORT_PYTHON} has no Python.h; install its development package (python3-dev)")
    return()
  endif()
  if(NOT EXISTS ${CohortTorch_ROOT}/lib/libtorch_python.so)
    message(STATUS "the Python package is left out: ${CohortTorch_ROOT} (named by ${CohortTorch_FROM}) is a libtorch without Python")
    return()
  endif()
  cohort_link_package()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*/*.cc)
  add_library(cohort_${name} MODULE ${sources})
  # Files are compiled four at a time where that proves no header less (CohortChecks.cmake): those without a header of their own.
  set_target_properties(cohort_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  target_compile_options(cohort_${name} PRIVATE -Wno-subobject-linkage)  # g++ takes an included .cc for a header
  foreach(file ${sources})
    string(REGEX REPLACE "\\.cc$" ".h" header ${file})
    if(EXISTS ${header})
      set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  target_include_directories(cohort_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${COHORT_GENERATED_DIR})
  # torch's pybind11 in front of any other on this machine; all of torch's headers stay behind the system's (FindCohortTorch.cmake).
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/torch_pybind11)
  file(CREATE_LINK ${CohortTorch_ROOT}/include/pybind11 ${PROJECT_BINARY_DIR}/torch_pybind11/pybind11 SYMBOLIC)
  target_include_directories(cohort_${name} SYSTEM PRIVATE ${PROJECT_BINARY_DIR}/torch_pybind11 ${PYTHON_INCLUDE})
  target_compile_definitions(cohort_${name} PRIVATE TORCH_EXTENSION_NAME=_core TORCH_API_INCLUDE_EXTENSION_H
    COHORT_VERSION="${PROJECT_VERSION}" COHORT_TORCH_VERSION="${CohortTorch_VERSION}")
  target_link_libraries(cohort_${name} PRIVATE ${MODULE_LINKS} Torch::libtorch ${CohortTorch_ROOT}/lib/libtorch_python.so)
  target_link_options(cohort_${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(cohort_${name} PROPERTIES
    OUTPUT_NAME _core PREFIX "" SUFFIX "${PYTHON_SUFFIX}" LIBRARY_OUTPUT_DIRECTORY ${COHORT_PYTHON_PACKAGE}/cohort
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    BUILD_RPATH "$ORIGIN/../torch/lib")  # installed beside torch; `import cohort` loads torch first in any case
  set_property(GLOBAL PROPERTY COHORT_MODULE_${name}_TORCH narrow)
  # What `pip install .` (setup.py) puts into the package.
  get_property(backends GLOBAL PROPERTY COHORT_BACKENDS)
  list(TRANSFORM backends PREPEND cohort_backend_)
  add_custom_target(cohort_wheel DEPENDS cohort_${name} cohort cohort-worker ${backends})
endfunction()
