# Install rules. An outside project says find_package(Cohort) and links
#   Cohort::cohort   the torch-free modules, base to train
#   Cohort::torch    the same for libtorch users (find_package(Cohort COMPONENTS torch)), when built with torch
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(public_modules base net cuda group collective codec elastic data optim ps queue checkpoint observe job sync plan train)
add_library(cohort_public INTERFACE)
target_link_libraries(cohort_public INTERFACE cohort_train cohort_queue cohort_data cohort_optim cohort_codec cohort_checkpoint cohort_observe cohort_sync)
set_target_properties(cohort_public PROPERTIES EXPORT_NAME cohort)
add_library(Cohort::cohort ALIAS cohort_public)
list(TRANSFORM public_modules PREPEND cohort_ OUTPUT_VARIABLE public_targets)
install(TARGETS cohort_public ${public_targets} EXPORT CohortTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT CohortTargets NAMESPACE Cohort:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)

if(COHORT_WITH_TORCH)
  set(torch_modules nn engine ddp)
  add_library(cohort_torch_public INTERFACE)
  target_link_libraries(cohort_torch_public INTERFACE cohort_trainer cohort_ddp cohort_engine cohort_nn cohort_public)
  set_target_properties(cohort_torch_public PROPERTIES EXPORT_NAME torch)
  add_library(Cohort::torch ALIAS cohort_torch_public)
  install(TARGETS cohort_torch_public cohort_nn cohort_engine cohort_ddp cohort_trainer cohort_forecast EXPORT CohortTorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT CohortTorchTargets NAMESPACE Cohort:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindCohortTorch.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)
endif()

# cohort.h says which of these headers are public; the others are installed because public ones include them.
install(FILES ${PROJECT_SOURCE_DIR}/cohort/cohort.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cohort)
foreach(module ${public_modules} ${torch_modules})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/cohort/${module} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cohort FILES_MATCHING PATTERN "*.h"
          PATTERN "conformance.h" EXCLUDE PATTERN "*testing.h" EXCLUDE PATTERN "*samples.h" EXCLUDE)  # for tests only
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/CohortConfig.cmake.in ${PROJECT_BINARY_DIR}/CohortConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/CohortConfig.cmake ${PROJECT_BINARY_DIR}/CohortConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/CohortDependencies.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Cohort)

# cohort.pc, for builds without CMake: the same archives, highest layer first.
list(TRANSFORM public_modules REPLACE "(.+)" "-lcohort_\\1" OUTPUT_VARIABLE archives)
list(REVERSE archives)
list(JOIN archives " " COHORT_ARCHIVES)
file(RELATIVE_PATH COHORT_PC_TO_PREFIX /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)  # the package may be moved as a whole
set(COHORT_PC_PICTURES "")
if(JPEG_FOUND)
  string(APPEND COHORT_PC_PICTURES " libjpeg")
endif()
if(PNG_FOUND)
  string(APPEND COHORT_PC_PICTURES " libpng")
endif()
set(COHORT_PC_CUDA "")
if(COHORT_WITH_CUDA)
  set(COHORT_PC_CUDA " ${COHORT_CUDART} -ldl -lrt")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/cohort.pc.in ${PROJECT_BINARY_DIR}/cohort.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cohort.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
