# What the torch-free modules stand on. The installed CohortConfig.cmake includes this same file, so the two cannot drift apart.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS SSL Crypto)
find_package(ZLIB REQUIRED)
find_package(JPEG QUIET)  # with them the data set `folder` reads pictures
find_package(PNG QUIET)
find_package(PkgConfig REQUIRED)
if(NOT TARGET PkgConfig::HWLOC)  # hwloc has no CMake package
  pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET GLOBAL hwloc)
endif()
