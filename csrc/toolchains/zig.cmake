# Cross compiling with zig's clang: set CORE_ZIG_CXX to a script that calls `zig c++ -target ...` (tools/check_aarch64.py
# writes one) and CORE_ZIG_PROCESSOR to the processor family.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR "${CORE_ZIG_PROCESSOR}")
set(CMAKE_CXX_COMPILER "${CORE_ZIG_CXX}")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CORE_ZIG_CXX CORE_ZIG_PROCESSOR)
