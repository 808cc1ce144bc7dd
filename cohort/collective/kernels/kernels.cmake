# One source, three instruction sets: kernels.inc is compiled once per set, the processor chooses at run time.
# -O3 unrolls the loops over sources and registers (instrumented code is checked, not timed, and would take minutes to compile like
# that); the flags of a set stay on its own file.
set(here ${CMAKE_CURRENT_LIST_DIR})
set(level -O3)
if(COHORT_SANITIZE OR COHORT_FUZZ)
  set(level -O1)
endif()
set_source_files_properties(${here}/plain.cc PROPERTIES COMPILE_OPTIONS ${level})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(${here}/avx2.cc PROPERTIES COMPILE_OPTIONS "${level};-mavx2;-mf16c")
  set_source_files_properties(${here}/avx512.cc PROPERTIES
    COMPILE_OPTIONS "${level};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mf16c")
  set_source_files_properties(${here}/kernels.cc PROPERTIES COMPILE_DEFINITIONS COHORT_X86_KERNELS)
endif()

if(NOT COHORT_SANITIZE AND NOT COHORT_FUZZ)  # instrumented code shares symbols by design
  cohort_add_test(NAME collective.KernelSets.LeaveNothingForOthersToLink KIND unit LIMIT 60
    COMMAND sh ${here}/exports.sh ${CMAKE_NM} $<TARGET_FILE:cohort_collective>)
endif()
