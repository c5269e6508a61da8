# SPDX-License-Identifier: BSD-3-Clause
# An overlay port, built from the tree that contains it:
# vcpkg install aeconn --overlay-ports=recipes/vcpkg
get_filename_component(TREE "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(SOURCE_PATH "${CURRENT_BUILDTREES_DIR}/src")
file(REMOVE_RECURSE "${SOURCE_PATH}")
file(COPY "${TREE}/" DESTINATION "${SOURCE_PATH}"
  PATTERN ".git" EXCLUDE PATTERN "build" EXCLUDE PATTERN "fuzz" EXCLUDE)

# The port libev installs its headers in a folder with that name.
set(INCLUDES "-isystem ${CURRENT_INSTALLED_DIR}/include -isystem ${CURRENT_INSTALLED_DIR}/include/libev")
# Debug builds are useful only for developers of the library, who build it without vcpkg.
set(VCPKG_BUILD_TYPE release)
foreach(feature IN ITEMS rdma tls)
  string(TOUPPER "${feature}" variable)
  if(feature IN_LIST FEATURES)
    set(${variable} yes)
  else()
    set(${variable} no)
  endif()
endforeach()
# The port rdma-core provides the headers. Its libraries are loaded from the system when rdma is
# first used: a static libibverbs would lack the providers that drive the hardware.
if(VCPKG_LIBRARY_LINKAGE STREQUAL "dynamic")
  set(LINKAGE shared)
else()
  set(LINKAGE static)
endif()

find_program(MAKE make REQUIRED)
vcpkg_cmake_get_vars(variables)
include("${variables}")
vcpkg_execute_required_process(
  COMMAND "${MAKE}" "-j${VCPKG_CONCURRENCY}" install-libraries
    "PREFIX=${CURRENT_PACKAGES_DIR}"
    "TLS=${TLS}"
    "RDMA=${RDMA}"
    "LINKAGE=${LINKAGE}"
    "CXX=${VCPKG_DETECTED_CMAKE_CXX_COMPILER}"
    "AR=${VCPKG_DETECTED_CMAKE_AR}"
    "CPPFLAGS=${INCLUDES}"
    "CXXFLAGS=${VCPKG_COMBINED_CXX_FLAGS_RELEASE}"
    "LDFLAGS=-L${CURRENT_INSTALLED_DIR}/lib ${VCPKG_COMBINED_SHARED_LINKER_FLAGS_RELEASE}"
  WORKING_DIRECTORY "${SOURCE_PATH}"
  LOGNAME "install-${TARGET_TRIPLET}")

vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/aeconn)
vcpkg_fixup_pkgconfig()
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
