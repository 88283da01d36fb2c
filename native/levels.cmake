# The kernels of every CPU level that this architecture has: sets level_objects, and level_definition for kernels.cpp,
# which picks one at run time. Included by the build of the module and by that of native/tests.

set(TRIBAR_SANITIZE "" CACHE STRING "address, undefined or thread: build with that sanitizer")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(found "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
if((CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
   OR (CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
   OR NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  message(FATAL_ERROR
    "tribar's native runner is C++20 and needs GCC 12 or Clang 15, or newer; found ${found}. Set CXX to such a compiler.")
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# No contraction anywhere: a fused multiply-add that the compiler chose would make results depend on the inlining.
add_library(tribar_flags INTERFACE)
target_compile_options(tribar_flags INTERFACE -ffp-contract=off -fvisibility=hidden -fno-math-errno -Wall -Wextra)
set(optimised -O3)
if(TRIBAR_SANITIZE)
  set(optimised -O1)
  target_compile_options(tribar_flags INTERFACE -g -fno-omit-frame-pointer -fno-sanitize-recover=all
                                                -fsanitize=${TRIBAR_SANITIZE})
  target_link_options(tribar_flags INTERFACE -fsanitize=${TRIBAR_SANITIZE})
endif()

set(level_objects "")
set(level_definition "")
set(level_source "${CMAKE_CURRENT_LIST_DIR}/src/kernels/level.cpp")
function(tribar_add_level name)
  add_library(tribar_${name} OBJECT ${level_source})
  string(TOUPPER ${name} upper)
  target_compile_definitions(tribar_${name} PRIVATE TRIBAR_LEVEL_${upper})
  target_compile_options(tribar_${name} PRIVATE ${optimised} ${ARGN})
  target_link_libraries(tribar_${name} PRIVATE tribar_flags)
  set_target_properties(tribar_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  set(level_objects ${level_objects} $<TARGET_OBJECTS:tribar_${name}> PARENT_SCOPE)
endfunction()

tribar_add_level(portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma -mf16c)
  tribar_add_level(avx2 ${avx2})
  # GCC's own header uses an undefined vector as the source of unmasked lanes and warns about itself.
  tribar_add_level(avx512 ${avx2} -mavx512f -mavx512vl -mavx512bw -mavx512dq -mavx512vnni -mavx512bf16
                   -Wno-uninitialized $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set(level_definition TRIBAR_X86_LEVELS)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  # GCC's scheduling before register allocation hoists so many loads that a tile's sums are spilled five times as often.
  tribar_add_level(neon -march=armv8.2-a+dotprod $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
  set(level_definition TRIBAR_ARM_LEVELS)
endif()
