//! The C ABI of lazyt plugins as Rust types: what the headers say and nothing else. `lazyt-plugin` is safe to use.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};

/// Behind a handle is an object of whoever gave it.
#[repr(C)]
struct Opaque {
    _bytes: [u8; 0],
    _not_send: std::marker::PhantomData<*mut u8>,
}

include!("bindings.rs");

/// `lazyt_handshake_fill` of plugin.h: what this compiler makes of the ABI.
///
/// # Safety
/// `out` points at a struct that can be written.
pub unsafe fn handshake_fill(out: *mut lazyt_handshake_t) {
    #[repr(C)]
    #[allow(dead_code)]
    enum Probe {
        A = 1,
    }
    let out = &mut *out;
    out.byte_order = 0x01020304;
    out.size_pointer = size_of::<*const c_void>() as u8;
    out.size_enum = size_of::<Probe>() as u8;
    out.align_u64 = std::mem::align_of::<u64>() as u8;
    out.align_double = std::mem::align_of::<f64>() as u8;
    out.size_string = size_of::<lazyt_string_t>() as u16;
    out.size_value = size_of::<lazyt_value_t>() as u16;
    out.size_node = size_of::<lazyt_node_t>() as u16;
    out.size_arg = size_of::<lazyt_arg_t>() as u16;
    out.size_program = size_of::<lazyt_program_t>() as u16;
    out.size_execute_input = size_of::<lazyt_execute_input_t>() as u16;
    out.size_execute_args = size_of::<lazyt_execute_args_t>() as u16;
    out.size_answer = size_of::<lazyt_answer_t>() as u16;
    out.size_host = size_of::<lazyt_host_t>() as u16;
    out.size_services = size_of::<lazyt_host_services_t>() as u16;
    out.size_status = size_of::<lazyt_host_status_t>() as u16;
    out.size_plugin = size_of::<lazyt_plugin_t>() as u16;
    out.size_buffer_table = size_of::<lazyt_plugin_buffer_t>() as u16;
    out.size_event_table = size_of::<lazyt_plugin_event_t>() as u16;
    out.size_device_table = size_of::<lazyt_plugin_device_t>() as u16;
    out.size_executable_table = size_of::<lazyt_plugin_executable_t>() as u16;
}
