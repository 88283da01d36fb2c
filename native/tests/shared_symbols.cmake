# Fails where one of OBJECTS holds a function that the linker may take for the whole program: a weak symbol compiled
# with instructions that the CPU may lack.
foreach(object ${OBJECTS})
  execute_process(COMMAND "${NM}" -C "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(symbols MATCHES "[^\n]* [WVu] [^\n]*")
    message(FATAL_ERROR "${object} shares a function with every other file: ${CMAKE_MATCH_0}")
  endif()
endforeach()
