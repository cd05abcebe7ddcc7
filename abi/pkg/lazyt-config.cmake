# lazyt::plugin - the headers; lazyt_PLUGIN_DIR - where installed plugins of this lazyt are.
get_filename_component(_lazyt_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(lazyt_PLUGIN_DIR "${_lazyt_root}/plugins")
if(NOT TARGET lazyt::plugin)
  add_library(lazyt::plugin INTERFACE IMPORTED)
  set_target_properties(lazyt::plugin PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_lazyt_root}/include")
endif()
unset(_lazyt_root)
