// Written by tools/build/rust_bindings.py from the C headers; do not edit.

// lazyt/base.h
pub const LAZYT_ABI_MAJOR: u32 = 1;
pub const LAZYT_ABI_MINOR: u32 = 0;
pub const LAZYT_ABI_DRAFT: u32 = 1;
pub const LAZYT_CHAIN_REQUIRED: lazyt_chain_flags_t = 1;
pub type lazyt_chain_flags_t = u32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_string_t {
    pub data: *const c_char,
    pub size: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_chained_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub r#type: lazyt_string_t,
    pub flags: lazyt_chain_flags_t,
    pub reserved: u32,
}

// lazyt/buffer.h
pub const LAZYT_SHARING_COPY: lazyt_sharing_t = 0;
pub const LAZYT_SHARING_UNTIL_DONE: lazyt_sharing_t = 1;
pub const LAZYT_SHARING_ALIAS: lazyt_sharing_t = 2;
pub const LAZYT_SHARING_ALIAS_MUTABLE: lazyt_sharing_t = 3;
pub type lazyt_sharing_t = i32;
#[repr(C)]
pub struct lazyt_buffer_t {
    _opaque: Opaque,
}
#[repr(C)]
pub struct DLManagedTensorVersioned {
    _opaque: Opaque,
}
pub type lazyt_host_bytes_done_t = Option<unsafe extern "C" fn(user_data: *mut c_void)>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_buffer_desc_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub size_bytes: u64,
    pub alignment: u64,
    pub memory_space: u32,
    pub reserved: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_host_bytes_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub data: *const c_void,
    pub size_bytes: u64,
    pub sharing: lazyt_sharing_t,
    pub reserved: u32,
    pub done: lazyt_host_bytes_done_t,
    pub done_user_data: *mut c_void,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_events_t {
    pub events: *const *mut lazyt_event_t,
    pub count: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_plugin_buffer_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub alloc: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, desc: *const lazyt_buffer_desc_t, out_buffer: *mut *mut lazyt_buffer_t) -> *mut lazyt_status_t>,
    pub from_host: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, bytes: *const lazyt_host_bytes_t, out_buffer: *mut *mut lazyt_buffer_t) -> *mut lazyt_status_t>,
    pub to_host: Option<unsafe extern "C" fn(buffer: *mut lazyt_buffer_t, offset: u64, dst: *mut c_void, size: u64, waits: lazyt_events_t, out_event: *mut *mut lazyt_event_t) -> *mut lazyt_status_t>,
    pub copy: Option<unsafe extern "C" fn(src: *mut lazyt_buffer_t, src_offset: u64, dst: *mut lazyt_buffer_t, dst_offset: u64, size: u64, waits: lazyt_events_t, out_event: *mut *mut lazyt_event_t) -> *mut lazyt_status_t>,
    pub size: Option<unsafe extern "C" fn(buffer: *mut lazyt_buffer_t, out_bytes: *mut u64) -> *mut lazyt_status_t>,
    pub host_pointer: Option<unsafe extern "C" fn(buffer: *mut lazyt_buffer_t, out_pointer: *mut *mut c_void) -> *mut lazyt_status_t>,
    pub import_dlpack: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, tensor: *mut DLManagedTensorVersioned, wait: *mut lazyt_event_t, out_buffer: *mut *mut lazyt_buffer_t) -> *mut lazyt_status_t>,
    pub export_dlpack: Option<unsafe extern "C" fn(buffer: *mut lazyt_buffer_t, out_tensor: *mut *mut DLManagedTensorVersioned) -> *mut lazyt_status_t>,
    pub release: Option<unsafe extern "C" fn(buffer: *mut lazyt_buffer_t)>,
}

// lazyt/capability.h
pub const LAZYT_ANSWER_REFUSE: lazyt_answer_kind_t = 0;
pub const LAZYT_ANSWER_TAKE: lazyt_answer_kind_t = 1;
pub const LAZYT_ANSWER_ONLY_IF: lazyt_answer_kind_t = 2;
pub const LAZYT_REASON_NONE: lazyt_reason_t = 0;
pub const LAZYT_REASON_UNKNOWN_OPERATOR: lazyt_reason_t = 1;
pub const LAZYT_REASON_DTYPE: lazyt_reason_t = 2;
pub const LAZYT_REASON_RANK: lazyt_reason_t = 3;
pub const LAZYT_REASON_ARGUMENT: lazyt_reason_t = 4;
pub const LAZYT_REASON_LAYOUT: lazyt_reason_t = 5;
pub const LAZYT_REASON_SIZE: lazyt_reason_t = 6;
pub const LAZYT_REASON_SYMBOLIC_DIM: lazyt_reason_t = 7;
pub const LAZYT_REASON_DISABLED: lazyt_reason_t = 8;
pub const LAZYT_REASON_COST: lazyt_reason_t = 9;
pub const LAZYT_CONDITION_NONE: lazyt_condition_t = 0;
pub const LAZYT_CONDITION_CONSTANT_ARGS: lazyt_condition_t = 1;
pub const LAZYT_CONDITION_STATIC_DIMS: lazyt_condition_t = 2;
pub type lazyt_answer_kind_t = i32;
pub type lazyt_reason_t = i32;
pub type lazyt_condition_t = i32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_answer_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub kind: lazyt_answer_kind_t,
    pub reason: lazyt_reason_t,
    pub condition: lazyt_condition_t,
    pub group: u32,
    pub cost_ns: u64,
    pub detail: lazyt_string_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_plugin_capability_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub query: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, program: *const lazyt_program_t, answers: *mut lazyt_answer_t, count: u64, stride: u64) -> *mut lazyt_status_t>,
}

// lazyt/device.h
pub const LAZYT_DEVICE_HOST_VISIBLE: lazyt_device_flags_t = 1;
pub const LAZYT_DEVICE_SYMBOLIC_DIMS: lazyt_device_flags_t = 2;
pub const LAZYT_DEVICE_SYNCHRONOUS: lazyt_device_flags_t = 4;
pub type lazyt_device_flags_t = u64;
#[repr(C)]
pub struct lazyt_device_t {
    _opaque: Opaque,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_device_info_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub name: lazyt_string_t,
    pub vendor: lazyt_string_t,
    pub flags: lazyt_device_flags_t,
    pub total_bytes: u64,
    pub alignment: u64,
    pub dlpack_type: i32,
    pub dlpack_id: i32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_memory_stats_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub bytes_in_use: u64,
    pub peak_bytes_in_use: u64,
    pub bytes_reserved: u64,
    pub derived_bytes: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_plugin_device_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub count: Option<unsafe extern "C" fn(out_count: *mut u32) -> *mut lazyt_status_t>,
    pub describe: Option<unsafe extern "C" fn(index: u32, out_info: *mut lazyt_device_info_t) -> *mut lazyt_status_t>,
    pub open: Option<unsafe extern "C" fn(index: u32, out_device: *mut *mut lazyt_device_t) -> *mut lazyt_status_t>,
    pub close: Option<unsafe extern "C" fn(device: *mut lazyt_device_t)>,
    pub memory_stats: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, out_stats: *mut lazyt_memory_stats_t) -> *mut lazyt_status_t>,
    pub trim: Option<unsafe extern "C" fn(device: *mut lazyt_device_t) -> *mut lazyt_status_t>,
}

// lazyt/dtype.h
pub const LAZYT_DTYPE_INVALID: lazyt_dtype_t = 0;
pub const LAZYT_DTYPE_BOOL: lazyt_dtype_t = 1;
pub const LAZYT_DTYPE_UINT8: lazyt_dtype_t = 2;
pub const LAZYT_DTYPE_INT8: lazyt_dtype_t = 3;
pub const LAZYT_DTYPE_UINT16: lazyt_dtype_t = 4;
pub const LAZYT_DTYPE_INT16: lazyt_dtype_t = 5;
pub const LAZYT_DTYPE_UINT32: lazyt_dtype_t = 6;
pub const LAZYT_DTYPE_INT32: lazyt_dtype_t = 7;
pub const LAZYT_DTYPE_UINT64: lazyt_dtype_t = 8;
pub const LAZYT_DTYPE_INT64: lazyt_dtype_t = 9;
pub const LAZYT_DTYPE_FLOAT16: lazyt_dtype_t = 10;
pub const LAZYT_DTYPE_BFLOAT16: lazyt_dtype_t = 11;
pub const LAZYT_DTYPE_FLOAT32: lazyt_dtype_t = 12;
pub const LAZYT_DTYPE_FLOAT64: lazyt_dtype_t = 13;
pub const LAZYT_DTYPE_COMPLEX32: lazyt_dtype_t = 14;
pub const LAZYT_DTYPE_COMPLEX64: lazyt_dtype_t = 15;
pub const LAZYT_DTYPE_COMPLEX128: lazyt_dtype_t = 16;
pub const LAZYT_DTYPE_FLOAT8_E4M3FN: lazyt_dtype_t = 17;
pub const LAZYT_DTYPE_FLOAT8_E5M2: lazyt_dtype_t = 18;
pub const LAZYT_DTYPE_FLOAT8_E4M3FNUZ: lazyt_dtype_t = 19;
pub const LAZYT_DTYPE_FLOAT8_E5M2FNUZ: lazyt_dtype_t = 20;
pub const LAZYT_DTYPE_FLOAT8_E8M0FNU: lazyt_dtype_t = 21;
pub const LAZYT_DTYPE_FLOAT4_E2M1FN_X2: lazyt_dtype_t = 22;
pub const LAZYT_DTYPE_INT4_X2: lazyt_dtype_t = 23;
pub const LAZYT_DTYPE_UINT4_X2: lazyt_dtype_t = 24;
pub type lazyt_dtype_t = i32;
pub const DTYPE_SIZES: [u8; 25] = [0, 1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 4, 8, 16, 1, 1, 1, 1, 1, 1, 1, 1];

// lazyt/event.h
pub const LAZYT_WAIT_FOREVER: u64 = -1i64 as u64;
#[repr(C)]
pub struct lazyt_event_t {
    _opaque: Opaque,
}
pub type lazyt_event_callback_t = Option<unsafe extern "C" fn(user_data: *mut c_void, status: *mut lazyt_status_t)>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_plugin_event_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub ready: Option<unsafe extern "C" fn(event: *mut lazyt_event_t, out_ready: *mut u32) -> *mut lazyt_status_t>,
    pub wait: Option<unsafe extern "C" fn(event: *mut lazyt_event_t, timeout_ns: u64) -> *mut lazyt_status_t>,
    pub on_ready: Option<unsafe extern "C" fn(event: *mut lazyt_event_t, callback: lazyt_event_callback_t, user_data: *mut c_void) -> *mut lazyt_status_t>,
    pub retain: Option<unsafe extern "C" fn(event: *mut lazyt_event_t)>,
    pub release: Option<unsafe extern "C" fn(event: *mut lazyt_event_t)>,
}

// lazyt/executable.h
pub const LAZYT_COMPILE_REASSOCIATE: lazyt_compile_flags_t = 1;
pub const LAZYT_COMPILE_TF32: lazyt_compile_flags_t = 2;
pub const LAZYT_COMPILE_FLUSH_DENORMALS: lazyt_compile_flags_t = 4;
pub const LAZYT_COMPILE_DETERMINISTIC: lazyt_compile_flags_t = 8;
pub const LAZYT_EXECUTE_DONATED: lazyt_execute_input_flags_t = 1;
pub const LAZYT_EXECUTABLE_KEEPS_NOTHING: lazyt_executable_flags_t = 1;
pub type lazyt_compile_flags_t = u64;
pub type lazyt_execute_input_flags_t = u64;
pub type lazyt_executable_flags_t = u64;
#[repr(C)]
pub struct lazyt_executable_t {
    _opaque: Opaque,
}
pub type lazyt_write_t = Option<unsafe extern "C" fn(user_data: *mut c_void, data: *const c_void, size: u64) -> *mut lazyt_status_t>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_compile_args_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub program: *const lazyt_program_t,
    pub flags: lazyt_compile_flags_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_output_meta_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub size_bytes: u64,
    pub alignment: u64,
    pub memory_space: u32,
    pub opaque: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_scalar_t {
    pub bytes: [u8; 16],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_execute_input_t {
    pub buffer: *mut lazyt_buffer_t,
    pub scalar: lazyt_scalar_t,
    pub stable_id: u64,
    pub content_version: u64,
    pub flags: lazyt_execute_input_flags_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_execute_args_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub inputs: *const lazyt_execute_input_t,
    pub input_count: u64,
    pub input_stride: u64,
    pub outputs: *const *mut lazyt_buffer_t,
    pub output_count: u64,
    pub waits: lazyt_events_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_executable_memory_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub code_bytes: u64,
    pub scratch_bytes: u64,
    pub flags: lazyt_executable_flags_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_plugin_executable_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub compile: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, args: *const lazyt_compile_args_t, out_executable: *mut *mut lazyt_executable_t) -> *mut lazyt_status_t>,
    pub output_meta: Option<unsafe extern "C" fn(executable: *mut lazyt_executable_t, index: u64, out_meta: *mut lazyt_output_meta_t) -> *mut lazyt_status_t>,
    pub memory: Option<unsafe extern "C" fn(executable: *mut lazyt_executable_t, out_memory: *mut lazyt_executable_memory_t) -> *mut lazyt_status_t>,
    pub execute: Option<unsafe extern "C" fn(executable: *mut lazyt_executable_t, args: *const lazyt_execute_args_t, out_event: *mut *mut lazyt_event_t) -> *mut lazyt_status_t>,
    pub serialize: Option<unsafe extern "C" fn(executable: *mut lazyt_executable_t, write: lazyt_write_t, user_data: *mut c_void) -> *mut lazyt_status_t>,
    pub load: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, data: *const c_void, size: u64, out_executable: *mut *mut lazyt_executable_t) -> *mut lazyt_status_t>,
    pub identity: Option<unsafe extern "C" fn(device: *mut lazyt_device_t, out_identity: *mut lazyt_string_t) -> *mut lazyt_status_t>,
    pub release: Option<unsafe extern "C" fn(executable: *mut lazyt_executable_t)>,
}

// lazyt/host.h
pub const LAZYT_LOG_TRACE: lazyt_log_level_t = 0;
pub const LAZYT_LOG_DEBUG: lazyt_log_level_t = 1;
pub const LAZYT_LOG_INFO: lazyt_log_level_t = 2;
pub const LAZYT_LOG_WARNING: lazyt_log_level_t = 3;
pub const LAZYT_LOG_ERROR: lazyt_log_level_t = 4;
pub type lazyt_log_level_t = i32;
pub type lazyt_parallel_body_t = Option<unsafe extern "C" fn(user_data: *mut c_void, index: u64)>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_host_services_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub log: Option<unsafe extern "C" fn(level: lazyt_log_level_t, message: lazyt_string_t)>,
    pub alloc: Option<unsafe extern "C" fn(size: u64, alignment: u64) -> *mut c_void>,
    pub free: Option<unsafe extern "C" fn(pointer: *mut c_void)>,
    pub thread_count: Option<unsafe extern "C" fn() -> u32>,
    pub parallel_for: Option<unsafe extern "C" fn(count: u64, body: lazyt_parallel_body_t, user_data: *mut c_void)>,
    pub trace_begin: Option<unsafe extern "C" fn(name: lazyt_string_t) -> u64>,
    pub trace_end: Option<unsafe extern "C" fn(token: u64)>,
    pub count: Option<unsafe extern "C" fn(name: lazyt_string_t, delta: i64)>,
    pub cancelled: Option<unsafe extern "C" fn() -> u32>,
    pub option: Option<unsafe extern "C" fn(plugin: lazyt_string_t, name: lazyt_string_t, out_value: *mut lazyt_string_t) -> *mut lazyt_status_t>,
    pub cache_get: Option<unsafe extern "C" fn(key: lazyt_string_t, out_data: *mut *mut c_void, out_size: *mut u64) -> *mut lazyt_status_t>,
    pub cache_put: Option<unsafe extern "C" fn(key: lazyt_string_t, data: *const c_void, size: u64) -> *mut lazyt_status_t>,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_host_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub abi_major: u32,
    pub abi_minor: u32,
    pub abi_draft: u32,
    pub reserved: u32,
    pub version: lazyt_string_t,
    pub status: *const lazyt_host_status_t,
    pub services: *const lazyt_host_services_t,
    pub get_extension: Option<unsafe extern "C" fn(id: lazyt_string_t) -> *const c_void>,
}

// lazyt/lazyt.h

// lazyt/ops.h
pub const LAZYT_OPSET: u32 = 1;
pub const LAZYT_OP_NONE: lazyt_op_t = 0;
pub const LAZYT_OP_ADD_TENSOR: lazyt_op_t = 1;
pub const LAZYT_OP_ADD_SCALAR: lazyt_op_t = 2;
pub const LAZYT_OP_SUB_TENSOR: lazyt_op_t = 3;
pub const LAZYT_OP_SUB_SCALAR: lazyt_op_t = 4;
pub const LAZYT_OP_RSUB_SCALAR: lazyt_op_t = 5;
pub const LAZYT_OP_MUL_TENSOR: lazyt_op_t = 6;
pub const LAZYT_OP_MUL_SCALAR: lazyt_op_t = 7;
pub const LAZYT_OP_DIV_TENSOR: lazyt_op_t = 8;
pub const LAZYT_OP_DIV_SCALAR: lazyt_op_t = 9;
pub const LAZYT_OP_DIV_TENSOR_MODE: lazyt_op_t = 10;
pub const LAZYT_OP_DIV_SCALAR_MODE: lazyt_op_t = 11;
pub const LAZYT_OP_REMAINDER_TENSOR: lazyt_op_t = 12;
pub const LAZYT_OP_REMAINDER_SCALAR: lazyt_op_t = 13;
pub const LAZYT_OP_FMOD_TENSOR: lazyt_op_t = 14;
pub const LAZYT_OP_FMOD_SCALAR: lazyt_op_t = 15;
pub const LAZYT_OP_MAXIMUM: lazyt_op_t = 16;
pub const LAZYT_OP_MINIMUM: lazyt_op_t = 17;
pub const LAZYT_OP_FMAX: lazyt_op_t = 18;
pub const LAZYT_OP_FMIN: lazyt_op_t = 19;
pub const LAZYT_OP_BITWISE_AND_TENSOR: lazyt_op_t = 20;
pub const LAZYT_OP_BITWISE_AND_SCALAR: lazyt_op_t = 21;
pub const LAZYT_OP_BITWISE_OR_TENSOR: lazyt_op_t = 22;
pub const LAZYT_OP_BITWISE_OR_SCALAR: lazyt_op_t = 23;
pub const LAZYT_OP_BITWISE_XOR_TENSOR: lazyt_op_t = 24;
pub const LAZYT_OP_BITWISE_XOR_SCALAR: lazyt_op_t = 25;
pub const LAZYT_OP_BITWISE_LEFT_SHIFT_TENSOR: lazyt_op_t = 26;
pub const LAZYT_OP_BITWISE_RIGHT_SHIFT_TENSOR: lazyt_op_t = 27;
pub const LAZYT_OP_HYPOT: lazyt_op_t = 28;
pub const LAZYT_OP_ATAN2: lazyt_op_t = 29;
pub const LAZYT_OP_XLOGY_TENSOR: lazyt_op_t = 30;
pub const LAZYT_OP_COPYSIGN_TENSOR: lazyt_op_t = 31;
pub const LAZYT_OP_POW_TENSOR_TENSOR: lazyt_op_t = 32;
pub const LAZYT_OP_POW_TENSOR_SCALAR: lazyt_op_t = 33;
pub const LAZYT_OP_POW_SCALAR: lazyt_op_t = 34;
pub const LAZYT_OP_EQ_TENSOR: lazyt_op_t = 35;
pub const LAZYT_OP_EQ_SCALAR: lazyt_op_t = 36;
pub const LAZYT_OP_NE_TENSOR: lazyt_op_t = 37;
pub const LAZYT_OP_NE_SCALAR: lazyt_op_t = 38;
pub const LAZYT_OP_LT_TENSOR: lazyt_op_t = 39;
pub const LAZYT_OP_LT_SCALAR: lazyt_op_t = 40;
pub const LAZYT_OP_LE_TENSOR: lazyt_op_t = 41;
pub const LAZYT_OP_LE_SCALAR: lazyt_op_t = 42;
pub const LAZYT_OP_GT_TENSOR: lazyt_op_t = 43;
pub const LAZYT_OP_GT_SCALAR: lazyt_op_t = 44;
pub const LAZYT_OP_GE_TENSOR: lazyt_op_t = 45;
pub const LAZYT_OP_GE_SCALAR: lazyt_op_t = 46;
pub const LAZYT_OP_LOGICAL_AND: lazyt_op_t = 47;
pub const LAZYT_OP_LOGICAL_OR: lazyt_op_t = 48;
pub const LAZYT_OP_LOGICAL_XOR: lazyt_op_t = 49;
pub const LAZYT_OP_ABS: lazyt_op_t = 50;
pub const LAZYT_OP_NEG: lazyt_op_t = 51;
pub const LAZYT_OP_SIGN: lazyt_op_t = 52;
pub const LAZYT_OP_SGN: lazyt_op_t = 53;
pub const LAZYT_OP_FLOOR: lazyt_op_t = 54;
pub const LAZYT_OP_CEIL: lazyt_op_t = 55;
pub const LAZYT_OP_ROUND: lazyt_op_t = 56;
pub const LAZYT_OP_TRUNC: lazyt_op_t = 57;
pub const LAZYT_OP_FRAC: lazyt_op_t = 58;
pub const LAZYT_OP_SQUARE: lazyt_op_t = 59;
pub const LAZYT_OP_LOGICAL_NOT: lazyt_op_t = 60;
pub const LAZYT_OP_BITWISE_NOT: lazyt_op_t = 61;
pub const LAZYT_OP_ISNAN: lazyt_op_t = 62;
pub const LAZYT_OP_ISINF: lazyt_op_t = 63;
pub const LAZYT_OP_EXP: lazyt_op_t = 64;
pub const LAZYT_OP_EXP2: lazyt_op_t = 65;
pub const LAZYT_OP_EXPM1: lazyt_op_t = 66;
pub const LAZYT_OP_LOG: lazyt_op_t = 67;
pub const LAZYT_OP_LOG2: lazyt_op_t = 68;
pub const LAZYT_OP_LOG10: lazyt_op_t = 69;
pub const LAZYT_OP_LOG1P: lazyt_op_t = 70;
pub const LAZYT_OP_SQRT: lazyt_op_t = 71;
pub const LAZYT_OP_RSQRT: lazyt_op_t = 72;
pub const LAZYT_OP_RECIPROCAL: lazyt_op_t = 73;
pub const LAZYT_OP_SIN: lazyt_op_t = 74;
pub const LAZYT_OP_COS: lazyt_op_t = 75;
pub const LAZYT_OP_TAN: lazyt_op_t = 76;
pub const LAZYT_OP_ASIN: lazyt_op_t = 77;
pub const LAZYT_OP_ACOS: lazyt_op_t = 78;
pub const LAZYT_OP_ATAN: lazyt_op_t = 79;
pub const LAZYT_OP_SINH: lazyt_op_t = 80;
pub const LAZYT_OP_COSH: lazyt_op_t = 81;
pub const LAZYT_OP_TANH: lazyt_op_t = 82;
pub const LAZYT_OP_ASINH: lazyt_op_t = 83;
pub const LAZYT_OP_ACOSH: lazyt_op_t = 84;
pub const LAZYT_OP_ATANH: lazyt_op_t = 85;
pub const LAZYT_OP_SIGMOID: lazyt_op_t = 86;
pub const LAZYT_OP_ERF: lazyt_op_t = 87;
pub const LAZYT_OP_ERFC: lazyt_op_t = 88;
pub const LAZYT_OP_ERFINV: lazyt_op_t = 89;
pub const LAZYT_OP_LGAMMA: lazyt_op_t = 90;
pub const LAZYT_OP_DIGAMMA: lazyt_op_t = 91;
pub const LAZYT_OP_NAN_TO_NUM: lazyt_op_t = 92;
pub const LAZYT_OP_CLAMP_TENSOR: lazyt_op_t = 93;
pub const LAZYT_OP_CLAMP: lazyt_op_t = 94;
pub const LAZYT_OP_CLAMP_MIN: lazyt_op_t = 95;
pub const LAZYT_OP_CLAMP_MAX: lazyt_op_t = 96;
pub const LAZYT_OP_RELU: lazyt_op_t = 97;
pub const LAZYT_OP_RELU6: lazyt_op_t = 98;
pub const LAZYT_OP_LEAKY_RELU: lazyt_op_t = 99;
pub const LAZYT_OP_ELU: lazyt_op_t = 100;
pub const LAZYT_OP_GELU: lazyt_op_t = 101;
pub const LAZYT_OP_SILU: lazyt_op_t = 102;
pub const LAZYT_OP_MISH: lazyt_op_t = 103;
pub const LAZYT_OP_SOFTPLUS: lazyt_op_t = 104;
pub const LAZYT_OP_HARDTANH: lazyt_op_t = 105;
pub const LAZYT_OP_HARDSWISH: lazyt_op_t = 106;
pub const LAZYT_OP_HARDSIGMOID: lazyt_op_t = 107;
pub const LAZYT_OP_LOG_SIGMOID_FORWARD: lazyt_op_t = 108;
pub const LAZYT_OP_CELU: lazyt_op_t = 109;
pub const LAZYT_OP_THRESHOLD: lazyt_op_t = 110;
pub const LAZYT_OP_THRESHOLD_BACKWARD: lazyt_op_t = 111;
pub const LAZYT_OP_LEAKY_RELU_BACKWARD: lazyt_op_t = 112;
pub const LAZYT_OP_ELU_BACKWARD: lazyt_op_t = 113;
pub const LAZYT_OP_GELU_BACKWARD: lazyt_op_t = 114;
pub const LAZYT_OP_SILU_BACKWARD: lazyt_op_t = 115;
pub const LAZYT_OP_SOFTPLUS_BACKWARD: lazyt_op_t = 116;
pub const LAZYT_OP_HARDTANH_BACKWARD: lazyt_op_t = 117;
pub const LAZYT_OP_HARDSWISH_BACKWARD: lazyt_op_t = 118;
pub const LAZYT_OP_HARDSIGMOID_BACKWARD: lazyt_op_t = 119;
pub const LAZYT_OP_SIGMOID_BACKWARD: lazyt_op_t = 120;
pub const LAZYT_OP_TANH_BACKWARD: lazyt_op_t = 121;
pub const LAZYT_OP_LOG_SIGMOID_BACKWARD: lazyt_op_t = 122;
pub const LAZYT_OP_WHERE_SELF: lazyt_op_t = 123;
pub const LAZYT_OP_WHERE_SCALARSELF: lazyt_op_t = 124;
pub const LAZYT_OP_WHERE_SCALAROTHER: lazyt_op_t = 125;
pub const LAZYT_OP_ADDCMUL: lazyt_op_t = 126;
pub const LAZYT_OP_ADDCDIV: lazyt_op_t = 127;
pub const LAZYT_OP_LERP_SCALAR: lazyt_op_t = 128;
pub const LAZYT_OP_LERP_TENSOR: lazyt_op_t = 129;
pub const LAZYT_OP_MASKED_FILL_SCALAR: lazyt_op_t = 130;
pub const LAZYT_OP_MASKED_FILL_TENSOR: lazyt_op_t = 131;
pub const LAZYT_OP_MASKED_SCATTER: lazyt_op_t = 132;
pub const LAZYT_OP_MM: lazyt_op_t = 133;
pub const LAZYT_OP_BMM: lazyt_op_t = 134;
pub const LAZYT_OP_ADDMM: lazyt_op_t = 135;
pub const LAZYT_OP_BADDBMM: lazyt_op_t = 136;
pub const LAZYT_OP_ADDMV: lazyt_op_t = 137;
pub const LAZYT_OP_MV: lazyt_op_t = 138;
pub const LAZYT_OP_DOT: lazyt_op_t = 139;
pub const LAZYT_OP_MATMUL: lazyt_op_t = 140;
pub const LAZYT_OP_LINEAR: lazyt_op_t = 141;
pub const LAZYT_OP_CONVOLUTION: lazyt_op_t = 142;
pub const LAZYT_OP_CONVOLUTION_BACKWARD: lazyt_op_t = 143;
pub const LAZYT_OP_MAX_POOL2D_WITH_INDICES: lazyt_op_t = 144;
pub const LAZYT_OP_MAX_POOL2D_WITH_INDICES_BACKWARD: lazyt_op_t = 145;
pub const LAZYT_OP_AVG_POOL1D: lazyt_op_t = 146;
pub const LAZYT_OP_AVG_POOL2D: lazyt_op_t = 147;
pub const LAZYT_OP_AVG_POOL2D_BACKWARD: lazyt_op_t = 148;
pub const LAZYT_OP_AVG_POOL3D: lazyt_op_t = 149;
pub const LAZYT_OP_MAX_POOL3D_WITH_INDICES: lazyt_op_t = 150;
pub const LAZYT_OP_ADAPTIVE_AVG_POOL2D: lazyt_op_t = 151;
pub const LAZYT_OP_ADAPTIVE_AVG_POOL2D_BACKWARD: lazyt_op_t = 152;
pub const LAZYT_OP_ADAPTIVE_AVG_POOL3D: lazyt_op_t = 153;
pub const LAZYT_OP_ADAPTIVE_AVG_POOL1D: lazyt_op_t = 154;
pub const LAZYT_OP_ADAPTIVE_MAX_POOL2D: lazyt_op_t = 155;
pub const LAZYT_OP_UPSAMPLE_NEAREST2D: lazyt_op_t = 156;
pub const LAZYT_OP_UPSAMPLE_NEAREST2D_BACKWARD: lazyt_op_t = 157;
pub const LAZYT_OP_UPSAMPLE_BILINEAR2D: lazyt_op_t = 158;
pub const LAZYT_OP_UPSAMPLE_BILINEAR2D_BACKWARD: lazyt_op_t = 159;
pub const LAZYT_OP_GRID_SAMPLER_2D: lazyt_op_t = 160;
pub const LAZYT_OP_PIXEL_SHUFFLE: lazyt_op_t = 161;
pub const LAZYT_OP_SUM: lazyt_op_t = 162;
pub const LAZYT_OP_SUM_DIM_INTLIST: lazyt_op_t = 163;
pub const LAZYT_OP_MEAN: lazyt_op_t = 164;
pub const LAZYT_OP_MEAN_DIM: lazyt_op_t = 165;
pub const LAZYT_OP_VAR_CORRECTION: lazyt_op_t = 166;
pub const LAZYT_OP_VAR_MEAN_CORRECTION: lazyt_op_t = 167;
pub const LAZYT_OP_STD_CORRECTION: lazyt_op_t = 168;
pub const LAZYT_OP_PROD: lazyt_op_t = 169;
pub const LAZYT_OP_PROD_DIM_INT: lazyt_op_t = 170;
pub const LAZYT_OP_AMAX: lazyt_op_t = 171;
pub const LAZYT_OP_AMIN: lazyt_op_t = 172;
pub const LAZYT_OP_AMINMAX: lazyt_op_t = 173;
pub const LAZYT_OP_ANY: lazyt_op_t = 174;
pub const LAZYT_OP_ANY_DIM: lazyt_op_t = 175;
pub const LAZYT_OP_ANY_DIMS: lazyt_op_t = 176;
pub const LAZYT_OP_ALL: lazyt_op_t = 177;
pub const LAZYT_OP_ALL_DIM: lazyt_op_t = 178;
pub const LAZYT_OP_ALL_DIMS: lazyt_op_t = 179;
pub const LAZYT_OP_ARGMAX: lazyt_op_t = 180;
pub const LAZYT_OP_ARGMIN: lazyt_op_t = 181;
pub const LAZYT_OP_LOGSUMEXP: lazyt_op_t = 182;
pub const LAZYT_OP_MAX: lazyt_op_t = 183;
pub const LAZYT_OP_MIN: lazyt_op_t = 184;
pub const LAZYT_OP_MAX_DIM: lazyt_op_t = 185;
pub const LAZYT_OP_MIN_DIM: lazyt_op_t = 186;
pub const LAZYT_OP_NORM_SCALAROPT_DIM: lazyt_op_t = 187;
pub const LAZYT_OP_NORM_SCALAR: lazyt_op_t = 188;
pub const LAZYT_OP_NORM_SCALAROPT_DIM_DTYPE: lazyt_op_t = 189;
pub const LAZYT_OP_LINALG_VECTOR_NORM: lazyt_op_t = 190;
pub const LAZYT_OP_SOFTMAX: lazyt_op_t = 191;
pub const LAZYT_OP_SOFTMAX_BACKWARD_DATA: lazyt_op_t = 192;
pub const LAZYT_OP_LOG_SOFTMAX: lazyt_op_t = 193;
pub const LAZYT_OP_LOG_SOFTMAX_BACKWARD_DATA: lazyt_op_t = 194;
pub const LAZYT_OP_CUMSUM: lazyt_op_t = 195;
pub const LAZYT_OP_CUMPROD: lazyt_op_t = 196;
pub const LAZYT_OP_CUMMAX: lazyt_op_t = 197;
pub const LAZYT_OP_CUMMIN: lazyt_op_t = 198;
pub const LAZYT_OP_LOGCUMSUMEXP: lazyt_op_t = 199;
pub const LAZYT_OP_SORT: lazyt_op_t = 200;
pub const LAZYT_OP_SORT_STABLE: lazyt_op_t = 201;
pub const LAZYT_OP_TOPK: lazyt_op_t = 202;
pub const LAZYT_OP_KTHVALUE: lazyt_op_t = 203;
pub const LAZYT_OP_MEDIAN_DIM: lazyt_op_t = 204;
pub const LAZYT_OP_NLL_LOSS_FORWARD: lazyt_op_t = 205;
pub const LAZYT_OP_NLL_LOSS_BACKWARD: lazyt_op_t = 206;
pub const LAZYT_OP_NLL_LOSS2D_FORWARD: lazyt_op_t = 207;
pub const LAZYT_OP_NLL_LOSS2D_BACKWARD: lazyt_op_t = 208;
pub const LAZYT_OP_MSE_LOSS: lazyt_op_t = 209;
pub const LAZYT_OP_SMOOTH_L1_LOSS: lazyt_op_t = 210;
pub const LAZYT_OP_HUBER_LOSS: lazyt_op_t = 211;
pub const LAZYT_OP_MSE_LOSS_BACKWARD: lazyt_op_t = 212;
pub const LAZYT_OP_SMOOTH_L1_LOSS_BACKWARD: lazyt_op_t = 213;
pub const LAZYT_OP_HUBER_LOSS_BACKWARD: lazyt_op_t = 214;
pub const LAZYT_OP_BINARY_CROSS_ENTROPY: lazyt_op_t = 215;
pub const LAZYT_OP_BINARY_CROSS_ENTROPY_BACKWARD: lazyt_op_t = 216;
pub const LAZYT_OP_BINARY_CROSS_ENTROPY_WITH_LOGITS: lazyt_op_t = 217;
pub const LAZYT_OP_NATIVE_DROPOUT_BACKWARD: lazyt_op_t = 218;
pub const LAZYT_OP_NATIVE_LAYER_NORM: lazyt_op_t = 219;
pub const LAZYT_OP_NATIVE_LAYER_NORM_BACKWARD: lazyt_op_t = 220;
pub const LAZYT_OP_NATIVE_GROUP_NORM: lazyt_op_t = 221;
pub const LAZYT_OP_NATIVE_GROUP_NORM_BACKWARD: lazyt_op_t = 222;
pub const LAZYT_OP_FUSED_RMS_NORM: lazyt_op_t = 223;
pub const LAZYT_OP_FUSED_RMS_NORM_BACKWARD: lazyt_op_t = 224;
pub const LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_FUNCTIONAL: lazyt_op_t = 225;
pub const LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_STATS: lazyt_op_t = 226;
pub const LAZYT_OP_NATIVE_BATCH_NORM_LEGIT_NO_TRAINING: lazyt_op_t = 227;
pub const LAZYT_OP_NATIVE_BATCH_NORM_BACKWARD: lazyt_op_t = 228;
pub const LAZYT_OP_SCALED_DOT_PRODUCT_ATTENTION: lazyt_op_t = 229;
pub const LAZYT_OP_SCALED_DOT_PRODUCT_ATTENTION_MATH: lazyt_op_t = 230;
pub const LAZYT_OP_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU: lazyt_op_t = 231;
pub const LAZYT_OP_SCALED_DOT_PRODUCT_FLASH_ATTENTION_FOR_CPU_BACKWARD: lazyt_op_t = 232;
pub const LAZYT_OP_SCALED_DOT_PRODUCT_FUSED_ATTENTION_OVERRIDEABLE: lazyt_op_t = 233;
pub const LAZYT_OP_SCALED_DOT_PRODUCT_FUSED_ATTENTION_OVERRIDEABLE_BACKWARD: lazyt_op_t = 234;
pub const LAZYT_OP_T: lazyt_op_t = 235;
pub const LAZYT_OP_PERMUTE: lazyt_op_t = 236;
pub const LAZYT_OP_TRANSPOSE_INT: lazyt_op_t = 237;
pub const LAZYT_OP_SLICE_TENSOR: lazyt_op_t = 238;
pub const LAZYT_OP_SELECT_INT: lazyt_op_t = 239;
pub const LAZYT_OP_EXPAND: lazyt_op_t = 240;
pub const LAZYT_OP_VIEW: lazyt_op_t = 241;
pub const LAZYT_OP_RESHAPE: lazyt_op_t = 242;
pub const LAZYT_OP_SQUEEZE_DIMS: lazyt_op_t = 243;
pub const LAZYT_OP_UNSQUEEZE: lazyt_op_t = 244;
pub const LAZYT_OP_DIAGONAL: lazyt_op_t = 245;
pub const LAZYT_OP_AS_STRIDED: lazyt_op_t = 246;
pub const LAZYT_OP_ALIAS: lazyt_op_t = 247;
pub const LAZYT_OP_UNFOLD: lazyt_op_t = 248;
pub const LAZYT_OP_FLIP: lazyt_op_t = 249;
pub const LAZYT_OP_ROLL: lazyt_op_t = 250;
pub const LAZYT_OP_REPEAT: lazyt_op_t = 251;
pub const LAZYT_OP_CONSTANT_PAD_ND: lazyt_op_t = 252;
pub const LAZYT_OP_PAD: lazyt_op_t = 253;
pub const LAZYT_OP_REFLECTION_PAD1D: lazyt_op_t = 254;
pub const LAZYT_OP_REFLECTION_PAD2D: lazyt_op_t = 255;
pub const LAZYT_OP_REPLICATION_PAD2D: lazyt_op_t = 256;
pub const LAZYT_OP_VIEW_AS_REAL: lazyt_op_t = 257;
pub const LAZYT_OP_VIEW_AS_COMPLEX: lazyt_op_t = 258;
pub const LAZYT_OP_SLICE_SCATTER: lazyt_op_t = 259;
pub const LAZYT_OP_SELECT_SCATTER: lazyt_op_t = 260;
pub const LAZYT_OP_DIAGONAL_SCATTER: lazyt_op_t = 261;
pub const LAZYT_OP_AS_STRIDED_SCATTER: lazyt_op_t = 262;
pub const LAZYT_OP_SLICE_BACKWARD: lazyt_op_t = 263;
pub const LAZYT_OP_SELECT_BACKWARD: lazyt_op_t = 264;
pub const LAZYT_OP_TRIL: lazyt_op_t = 265;
pub const LAZYT_OP_TRIU: lazyt_op_t = 266;
pub const LAZYT_OP_CAT: lazyt_op_t = 267;
pub const LAZYT_OP_STACK: lazyt_op_t = 268;
pub const LAZYT_OP_SPLIT_TENSOR: lazyt_op_t = 269;
pub const LAZYT_OP_SPLIT_WITH_SIZES: lazyt_op_t = 270;
pub const LAZYT_OP_UNBIND_INT: lazyt_op_t = 271;
pub const LAZYT_OP_CHUNK: lazyt_op_t = 272;
pub const LAZYT_OP_GATHER: lazyt_op_t = 273;
pub const LAZYT_OP_SCATTER_SRC: lazyt_op_t = 274;
pub const LAZYT_OP_SCATTER_VALUE: lazyt_op_t = 275;
pub const LAZYT_OP_SCATTER_ADD: lazyt_op_t = 276;
pub const LAZYT_OP_SCATTER_REDUCE_TWO: lazyt_op_t = 277;
pub const LAZYT_OP_INDEX_TENSOR: lazyt_op_t = 278;
pub const LAZYT_OP_INDEX_PUT: lazyt_op_t = 279;
pub const LAZYT_OP_INDEX_SELECT: lazyt_op_t = 280;
pub const LAZYT_OP_INDEX_ADD: lazyt_op_t = 281;
pub const LAZYT_OP_INDEX_COPY: lazyt_op_t = 282;
pub const LAZYT_OP_INDEX_FILL_INT_SCALAR: lazyt_op_t = 283;
pub const LAZYT_OP_TAKE: lazyt_op_t = 284;
pub const LAZYT_OP_EMBEDDING: lazyt_op_t = 285;
pub const LAZYT_OP_EMBEDDING_DENSE_BACKWARD: lazyt_op_t = 286;
pub const LAZYT_OP_SEARCHSORTED_TENSOR: lazyt_op_t = 287;
pub const LAZYT_OP_BUCKETIZE_TENSOR: lazyt_op_t = 288;
pub const LAZYT_OP_UNSAFE_INDEX_TENSOR: lazyt_op_t = 289;
pub const LAZYT_OP_UNSAFE_INDEX_PUT: lazyt_op_t = 290;
pub const LAZYT_OP_TO_COPY: lazyt_op_t = 291;
pub const LAZYT_OP_COPY: lazyt_op_t = 292;
pub const LAZYT_OP_CLONE: lazyt_op_t = 293;
pub const LAZYT_OP_FILL_SCALAR: lazyt_op_t = 294;
pub const LAZYT_OP_FILL_TENSOR: lazyt_op_t = 295;
pub const LAZYT_OP_ZEROS_LIKE: lazyt_op_t = 296;
pub const LAZYT_OP_ONES_LIKE: lazyt_op_t = 297;
pub const LAZYT_OP_FULL_LIKE: lazyt_op_t = 298;
pub const LAZYT_OP_EMPTY_LIKE: lazyt_op_t = 299;
pub const LAZYT_OP_ZEROS: lazyt_op_t = 300;
pub const LAZYT_OP_ONES: lazyt_op_t = 301;
pub const LAZYT_OP_FULL: lazyt_op_t = 302;
pub const LAZYT_OP_EMPTY_MEMORY_FORMAT: lazyt_op_t = 303;
pub const LAZYT_OP_NEW_ZEROS: lazyt_op_t = 304;
pub const LAZYT_OP_NEW_FULL: lazyt_op_t = 305;
pub const LAZYT_OP_SCALAR_TENSOR: lazyt_op_t = 306;
pub const LAZYT_OP_EYE: lazyt_op_t = 307;
pub const LAZYT_OP_LIFT_FRESH_COPY: lazyt_op_t = 308;
pub const LAZYT_OP_ARANGE: lazyt_op_t = 309;
pub const LAZYT_OP_ARANGE_START: lazyt_op_t = 310;
pub const LAZYT_OP_ARANGE_START_STEP: lazyt_op_t = 311;
pub const LAZYT_OP_LINSPACE: lazyt_op_t = 312;
pub const LAZYT_OP_FOREACH_ADD_LIST: lazyt_op_t = 313;
pub const LAZYT_OP_FOREACH_ADD_SCALAR: lazyt_op_t = 314;
pub const LAZYT_OP_FOREACH_ADD_SCALARLIST: lazyt_op_t = 315;
pub const LAZYT_OP_FOREACH_ADD_TENSOR: lazyt_op_t = 316;
pub const LAZYT_OP_FOREACH_SUB_LIST: lazyt_op_t = 317;
pub const LAZYT_OP_FOREACH_SUB_SCALAR: lazyt_op_t = 318;
pub const LAZYT_OP_FOREACH_SUB_SCALARLIST: lazyt_op_t = 319;
pub const LAZYT_OP_FOREACH_MUL_LIST: lazyt_op_t = 320;
pub const LAZYT_OP_FOREACH_MUL_SCALAR: lazyt_op_t = 321;
pub const LAZYT_OP_FOREACH_MUL_SCALARLIST: lazyt_op_t = 322;
pub const LAZYT_OP_FOREACH_MUL_TENSOR: lazyt_op_t = 323;
pub const LAZYT_OP_FOREACH_DIV_LIST: lazyt_op_t = 324;
pub const LAZYT_OP_FOREACH_DIV_SCALAR: lazyt_op_t = 325;
pub const LAZYT_OP_FOREACH_DIV_SCALARLIST: lazyt_op_t = 326;
pub const LAZYT_OP_FOREACH_DIV_TENSOR: lazyt_op_t = 327;
pub const LAZYT_OP_FOREACH_ADDCMUL_SCALAR: lazyt_op_t = 328;
pub const LAZYT_OP_FOREACH_ADDCMUL_SCALARLIST: lazyt_op_t = 329;
pub const LAZYT_OP_FOREACH_ADDCMUL_TENSOR: lazyt_op_t = 330;
pub const LAZYT_OP_FOREACH_ADDCDIV_SCALAR: lazyt_op_t = 331;
pub const LAZYT_OP_FOREACH_ADDCDIV_SCALARLIST: lazyt_op_t = 332;
pub const LAZYT_OP_FOREACH_ADDCDIV_TENSOR: lazyt_op_t = 333;
pub const LAZYT_OP_FOREACH_LERP_LIST: lazyt_op_t = 334;
pub const LAZYT_OP_FOREACH_LERP_SCALAR: lazyt_op_t = 335;
pub const LAZYT_OP_FOREACH_LERP_SCALARLIST: lazyt_op_t = 336;
pub const LAZYT_OP_FOREACH_SQRT: lazyt_op_t = 337;
pub const LAZYT_OP_FOREACH_RSQRT: lazyt_op_t = 338;
pub const LAZYT_OP_FOREACH_NEG: lazyt_op_t = 339;
pub const LAZYT_OP_FOREACH_RECIPROCAL: lazyt_op_t = 340;
pub const LAZYT_OP_FOREACH_SIGN: lazyt_op_t = 341;
pub const LAZYT_OP_FOREACH_ABS: lazyt_op_t = 342;
pub const LAZYT_OP_FOREACH_EXP: lazyt_op_t = 343;
pub const LAZYT_OP_FOREACH_ZERO: lazyt_op_t = 344;
pub const LAZYT_OP_FOREACH_MAXIMUM_LIST: lazyt_op_t = 345;
pub const LAZYT_OP_FOREACH_MAXIMUM_SCALAR: lazyt_op_t = 346;
pub const LAZYT_OP_FOREACH_MINIMUM_LIST: lazyt_op_t = 347;
pub const LAZYT_OP_FOREACH_CLAMP_MIN_SCALAR: lazyt_op_t = 348;
pub const LAZYT_OP_FOREACH_CLAMP_MAX_SCALAR: lazyt_op_t = 349;
pub const LAZYT_OP_FOREACH_COPY: lazyt_op_t = 350;
pub const LAZYT_OP_FOREACH_NORM_SCALAR: lazyt_op_t = 351;
pub const LAZYT_OP_FOREACH_POW_SCALAR: lazyt_op_t = 352;
pub const LAZYT_OP_FOREACH_POW_LIST: lazyt_op_t = 353;
pub const LAZYT_OP_FOREACH_POW_SCALARLIST: lazyt_op_t = 354;
pub const LAZYT_OP_FOREACH_POW_SCALARANDTENSOR: lazyt_op_t = 355;
pub const LAZYT_OP_FUSED_ADAM: lazyt_op_t = 356;
pub const LAZYT_OP_FUSED_ADAM_TENSOR_LR: lazyt_op_t = 357;
pub const LAZYT_OP_FUSED_ADAMW: lazyt_op_t = 358;
pub const LAZYT_OP_FUSED_ADAMW_TENSOR_LR: lazyt_op_t = 359;
pub const LAZYT_OP_FUSED_SGD: lazyt_op_t = 360;
pub const LAZYT_OP_FUSED_SGD_TENSOR_LR: lazyt_op_t = 361;
pub const LAZYT_OP_FUSED_ADAGRAD: lazyt_op_t = 362;
pub const LAZYT_OP_COMPLEX: lazyt_op_t = 363;
pub const LAZYT_OP_REAL: lazyt_op_t = 364;
pub const LAZYT_OP_IMAG: lazyt_op_t = 365;
pub const LAZYT_OP_POLAR: lazyt_op_t = 366;
pub const LAZYT_OP_CONJ_PHYSICAL: lazyt_op_t = 367;
pub const LAZYT_OP_ANGLE: lazyt_op_t = 368;
pub const LAZYT_OP_LAZYT_DROPOUT: lazyt_op_t = 369;
pub const LAZYT_OP_LAZYT_UNIFORM: lazyt_op_t = 370;
pub const LAZYT_OP_LAZYT_NORMAL: lazyt_op_t = 371;
pub const LAZYT_OP_LAZYT_BERNOULLI: lazyt_op_t = 372;
pub const LAZYT_OP_LAZYT_RANDINT: lazyt_op_t = 373;
pub const LAZYT_OP_INT_MM: lazyt_op_t = 374;
pub type lazyt_op_t = u32;

// lazyt/plugin.h
pub const LAZYT_HANDSHAKE_MASK: u64 = 7809657890896162865;
pub const LAZYT_PLUGIN_ENTRY_NAME: &str = "lazyt_plugin_entry_v1";
pub type lazyt_plugin_entry_v1_t = Option<unsafe extern "C" fn(host: *const lazyt_host_t, out_plugin: *mut *const lazyt_plugin_t) -> *mut lazyt_status_t>;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_handshake_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub byte_order: u32,
    pub size_pointer: u8,
    pub size_enum: u8,
    pub align_u64: u8,
    pub align_double: u8,
    pub size_string: u16,
    pub size_value: u16,
    pub size_node: u16,
    pub size_arg: u16,
    pub size_program: u16,
    pub size_execute_input: u16,
    pub size_execute_args: u16,
    pub size_answer: u16,
    pub size_host: u16,
    pub size_services: u16,
    pub size_status: u16,
    pub size_plugin: u16,
    pub size_buffer_table: u16,
    pub size_event_table: u16,
    pub size_device_table: u16,
    pub size_executable_table: u16,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_plugin_info_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub name: lazyt_string_t,
    pub version: lazyt_string_t,
    pub description: lazyt_string_t,
    pub vendor: lazyt_string_t,
    pub why_none: lazyt_string_t,
    pub score: i32,
    pub reserved: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_plugin_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub abi_major: u32,
    pub abi_minor: u32,
    pub abi_draft: u32,
    pub min_host_minor: u32,
    pub handshake: Option<unsafe extern "C" fn(seed: u64, out: *mut lazyt_handshake_t) -> u64>,
    pub init: Option<unsafe extern "C" fn() -> *mut lazyt_status_t>,
    pub shutdown: Option<unsafe extern "C" fn()>,
    pub info: Option<unsafe extern "C" fn(out_info: *mut lazyt_plugin_info_t) -> *mut lazyt_status_t>,
    pub get_extension: Option<unsafe extern "C" fn(id: lazyt_string_t) -> *const c_void>,
    pub device: *const lazyt_plugin_device_t,
    pub buffer: *const lazyt_plugin_buffer_t,
    pub event: *const lazyt_plugin_event_t,
    pub capability: *const lazyt_plugin_capability_t,
    pub executable: *const lazyt_plugin_executable_t,
}

// lazyt/program.h
pub const LAZYT_PROGRAM_MAGIC: u32 = 827349580;
pub const LAZYT_PROGRAM_FORMAT: u32 = 1;
pub const LAZYT_NONE: u32 = 4294967295;
pub const LAZYT_PROGRAM_HAS_SYMBOLS: lazyt_program_flags_t = 1;
pub const LAZYT_PROGRAM_HAS_RANDOM: lazyt_program_flags_t = 2;
pub const LAZYT_VALUE_HOST_SCALAR: lazyt_value_flags_t = 1;
pub const LAZYT_VALUE_WEAK: lazyt_value_flags_t = 2;
pub const LAZYT_VALUE_MAY_OVERWRITE: lazyt_value_flags_t = 4;
pub const LAZYT_ARG_NONE: lazyt_arg_kind_t = 0;
pub const LAZYT_ARG_VALUE: lazyt_arg_kind_t = 1;
pub const LAZYT_ARG_INT: lazyt_arg_kind_t = 2;
pub const LAZYT_ARG_DOUBLE: lazyt_arg_kind_t = 3;
pub const LAZYT_ARG_BOOL: lazyt_arg_kind_t = 4;
pub const LAZYT_ARG_COMPLEX: lazyt_arg_kind_t = 5;
pub const LAZYT_ARG_STRING: lazyt_arg_kind_t = 6;
pub const LAZYT_ARG_DTYPE: lazyt_arg_kind_t = 7;
pub const LAZYT_ARG_LIST: lazyt_arg_kind_t = 8;
pub const LAZYT_ARG_INTS: lazyt_arg_kind_t = 9;
pub const LAZYT_ARG_DOUBLES: lazyt_arg_kind_t = 10;
pub const LAZYT_ARG_BOOLS: lazyt_arg_kind_t = 11;
pub const LAZYT_ARG_MEMORY_FORMAT: lazyt_arg_kind_t = 12;
pub const LAZYT_ARG_LAYOUT: lazyt_arg_kind_t = 13;
pub const LAZYT_ARG_DEVICE: lazyt_arg_kind_t = 14;
pub const LAZYT_INPUT_MAY_DONATE: lazyt_input_flags_t = 1;
pub const LAZYT_EXPR_SYMBOL: lazyt_expr_kind_t = 1;
pub const LAZYT_EXPR_CONST: lazyt_expr_kind_t = 2;
pub const LAZYT_EXPR_ADD: lazyt_expr_kind_t = 3;
pub const LAZYT_EXPR_MUL: lazyt_expr_kind_t = 4;
pub const LAZYT_EXPR_FLOORDIV: lazyt_expr_kind_t = 5;
pub const LAZYT_EXPR_MOD: lazyt_expr_kind_t = 6;
pub const LAZYT_EXPR_MAX: lazyt_expr_kind_t = 7;
pub const LAZYT_EXPR_MIN: lazyt_expr_kind_t = 8;
pub type lazyt_program_flags_t = u64;
pub type lazyt_value_flags_t = u32;
pub type lazyt_arg_kind_t = u32;
pub type lazyt_input_flags_t = u32;
pub type lazyt_expr_kind_t = u32;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_table_t {
    pub offset: u64,
    pub count: u64,
    pub stride: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_program_t {
    pub magic: u32,
    pub format: u32,
    pub total_size: u64,
    pub header_size: u64,
    pub flags: lazyt_program_flags_t,
    pub values: lazyt_table_t,
    pub nodes: lazyt_table_t,
    pub args: lazyt_table_t,
    pub ints: lazyt_table_t,
    pub strings: lazyt_table_t,
    pub inputs: lazyt_table_t,
    pub outputs: lazyt_table_t,
    pub constants: lazyt_table_t,
    pub notes: lazyt_table_t,
    pub symbols: lazyt_table_t,
    pub exprs: lazyt_table_t,
    pub data: lazyt_table_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_text_t {
    pub start: u32,
    pub size: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_value_t {
    pub dtype: lazyt_dtype_t,
    pub flags: lazyt_value_flags_t,
    pub rank: u32,
    pub dims: u32,
    pub strides: u32,
    pub producer: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_node_t {
    pub name: lazyt_text_t,
    pub overload: lazyt_text_t,
    pub op: u32,
    pub op_version: u32,
    pub args: u32,
    pub arg_count: u32,
    pub results: u32,
    pub result_count: u32,
    pub note: u32,
    pub reserved: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_arg_t {
    pub kind: lazyt_arg_kind_t,
    pub count: u32,
    pub payload: u64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_input_t {
    pub value: u32,
    pub flags: lazyt_input_flags_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_output_t {
    pub value: u32,
    pub donor: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_constant_t {
    pub value: u32,
    pub reserved: u32,
    pub file: lazyt_text_t,
    pub offset: u64,
    pub size: u64,
    pub hash: [u8; 16],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_note_t {
    pub file: lazyt_text_t,
    pub module: lazyt_text_t,
    pub line: u32,
    pub reserved: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_symbol_t {
    pub name: lazyt_text_t,
    pub min: i64,
    pub max: i64,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_expr_t {
    pub kind: lazyt_expr_kind_t,
    pub reserved: u32,
    pub a: i64,
    pub b: i64,
}

// lazyt/status.h
pub const LAZYT_CODE_OK: lazyt_code_t = 0;
pub const LAZYT_CODE_CANCELLED: lazyt_code_t = 1;
pub const LAZYT_CODE_UNKNOWN: lazyt_code_t = 2;
pub const LAZYT_CODE_INVALID_ARGUMENT: lazyt_code_t = 3;
pub const LAZYT_CODE_DEADLINE_EXCEEDED: lazyt_code_t = 4;
pub const LAZYT_CODE_NOT_FOUND: lazyt_code_t = 5;
pub const LAZYT_CODE_ALREADY_EXISTS: lazyt_code_t = 6;
pub const LAZYT_CODE_PERMISSION_DENIED: lazyt_code_t = 7;
pub const LAZYT_CODE_RESOURCE_EXHAUSTED: lazyt_code_t = 8;
pub const LAZYT_CODE_FAILED_PRECONDITION: lazyt_code_t = 9;
pub const LAZYT_CODE_ABORTED: lazyt_code_t = 10;
pub const LAZYT_CODE_OUT_OF_RANGE: lazyt_code_t = 11;
pub const LAZYT_CODE_UNIMPLEMENTED: lazyt_code_t = 12;
pub const LAZYT_CODE_INTERNAL: lazyt_code_t = 13;
pub const LAZYT_CODE_UNAVAILABLE: lazyt_code_t = 14;
pub const LAZYT_CODE_DATA_LOSS: lazyt_code_t = 15;
pub const LAZYT_CODE_UNAUTHENTICATED: lazyt_code_t = 16;
pub type lazyt_code_t = i32;
#[repr(C)]
pub struct lazyt_status_t {
    _opaque: Opaque,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lazyt_host_status_t {
    pub struct_size: u64,
    pub next: *const lazyt_chained_t,
    pub create: Option<unsafe extern "C" fn(code: lazyt_code_t, message: lazyt_string_t) -> *mut lazyt_status_t>,
    pub annotate: Option<unsafe extern "C" fn(status: *mut lazyt_status_t, r#where: lazyt_string_t, detail: lazyt_string_t)>,
    pub code: Option<unsafe extern "C" fn(status: *const lazyt_status_t) -> lazyt_code_t>,
    pub message: Option<unsafe extern "C" fn(status: *const lazyt_status_t) -> lazyt_string_t>,
    pub note_count: Option<unsafe extern "C" fn(status: *const lazyt_status_t) -> u64>,
    pub note: Option<unsafe extern "C" fn(status: *const lazyt_status_t, index: u64, out_where: *mut lazyt_string_t, out_detail: *mut lazyt_string_t)>,
    pub retain: Option<unsafe extern "C" fn(status: *mut lazyt_status_t) -> *mut lazyt_status_t>,
    pub release: Option<unsafe extern "C" fn(status: *mut lazyt_status_t)>,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<lazyt_string_t>() == 16);
    assert!(offset_of!(lazyt_string_t, data) == 0);
    assert!(offset_of!(lazyt_string_t, size) == 8);
    assert!(size_of::<lazyt_chained_t>() == 40);
    assert!(offset_of!(lazyt_chained_t, struct_size) == 0);
    assert!(offset_of!(lazyt_chained_t, next) == 8);
    assert!(offset_of!(lazyt_chained_t, r#type) == 16);
    assert!(offset_of!(lazyt_chained_t, flags) == 32);
    assert!(offset_of!(lazyt_chained_t, reserved) == 36);
    assert!(size_of::<lazyt_buffer_desc_t>() == 40);
    assert!(offset_of!(lazyt_buffer_desc_t, struct_size) == 0);
    assert!(offset_of!(lazyt_buffer_desc_t, next) == 8);
    assert!(offset_of!(lazyt_buffer_desc_t, size_bytes) == 16);
    assert!(offset_of!(lazyt_buffer_desc_t, alignment) == 24);
    assert!(offset_of!(lazyt_buffer_desc_t, memory_space) == 32);
    assert!(offset_of!(lazyt_buffer_desc_t, reserved) == 36);
    assert!(size_of::<lazyt_host_bytes_t>() == 56);
    assert!(offset_of!(lazyt_host_bytes_t, struct_size) == 0);
    assert!(offset_of!(lazyt_host_bytes_t, next) == 8);
    assert!(offset_of!(lazyt_host_bytes_t, data) == 16);
    assert!(offset_of!(lazyt_host_bytes_t, size_bytes) == 24);
    assert!(offset_of!(lazyt_host_bytes_t, sharing) == 32);
    assert!(offset_of!(lazyt_host_bytes_t, reserved) == 36);
    assert!(offset_of!(lazyt_host_bytes_t, done) == 40);
    assert!(offset_of!(lazyt_host_bytes_t, done_user_data) == 48);
    assert!(size_of::<lazyt_events_t>() == 16);
    assert!(offset_of!(lazyt_events_t, events) == 0);
    assert!(offset_of!(lazyt_events_t, count) == 8);
    assert!(size_of::<lazyt_plugin_buffer_t>() == 88);
    assert!(offset_of!(lazyt_plugin_buffer_t, struct_size) == 0);
    assert!(offset_of!(lazyt_plugin_buffer_t, next) == 8);
    assert!(offset_of!(lazyt_plugin_buffer_t, alloc) == 16);
    assert!(offset_of!(lazyt_plugin_buffer_t, from_host) == 24);
    assert!(offset_of!(lazyt_plugin_buffer_t, to_host) == 32);
    assert!(offset_of!(lazyt_plugin_buffer_t, copy) == 40);
    assert!(offset_of!(lazyt_plugin_buffer_t, size) == 48);
    assert!(offset_of!(lazyt_plugin_buffer_t, host_pointer) == 56);
    assert!(offset_of!(lazyt_plugin_buffer_t, import_dlpack) == 64);
    assert!(offset_of!(lazyt_plugin_buffer_t, export_dlpack) == 72);
    assert!(offset_of!(lazyt_plugin_buffer_t, release) == 80);
    assert!(size_of::<lazyt_answer_t>() == 56);
    assert!(offset_of!(lazyt_answer_t, struct_size) == 0);
    assert!(offset_of!(lazyt_answer_t, next) == 8);
    assert!(offset_of!(lazyt_answer_t, kind) == 16);
    assert!(offset_of!(lazyt_answer_t, reason) == 20);
    assert!(offset_of!(lazyt_answer_t, condition) == 24);
    assert!(offset_of!(lazyt_answer_t, group) == 28);
    assert!(offset_of!(lazyt_answer_t, cost_ns) == 32);
    assert!(offset_of!(lazyt_answer_t, detail) == 40);
    assert!(size_of::<lazyt_plugin_capability_t>() == 24);
    assert!(offset_of!(lazyt_plugin_capability_t, struct_size) == 0);
    assert!(offset_of!(lazyt_plugin_capability_t, next) == 8);
    assert!(offset_of!(lazyt_plugin_capability_t, query) == 16);
    assert!(size_of::<lazyt_device_info_t>() == 80);
    assert!(offset_of!(lazyt_device_info_t, struct_size) == 0);
    assert!(offset_of!(lazyt_device_info_t, next) == 8);
    assert!(offset_of!(lazyt_device_info_t, name) == 16);
    assert!(offset_of!(lazyt_device_info_t, vendor) == 32);
    assert!(offset_of!(lazyt_device_info_t, flags) == 48);
    assert!(offset_of!(lazyt_device_info_t, total_bytes) == 56);
    assert!(offset_of!(lazyt_device_info_t, alignment) == 64);
    assert!(offset_of!(lazyt_device_info_t, dlpack_type) == 72);
    assert!(offset_of!(lazyt_device_info_t, dlpack_id) == 76);
    assert!(size_of::<lazyt_memory_stats_t>() == 48);
    assert!(offset_of!(lazyt_memory_stats_t, struct_size) == 0);
    assert!(offset_of!(lazyt_memory_stats_t, next) == 8);
    assert!(offset_of!(lazyt_memory_stats_t, bytes_in_use) == 16);
    assert!(offset_of!(lazyt_memory_stats_t, peak_bytes_in_use) == 24);
    assert!(offset_of!(lazyt_memory_stats_t, bytes_reserved) == 32);
    assert!(offset_of!(lazyt_memory_stats_t, derived_bytes) == 40);
    assert!(size_of::<lazyt_plugin_device_t>() == 64);
    assert!(offset_of!(lazyt_plugin_device_t, struct_size) == 0);
    assert!(offset_of!(lazyt_plugin_device_t, next) == 8);
    assert!(offset_of!(lazyt_plugin_device_t, count) == 16);
    assert!(offset_of!(lazyt_plugin_device_t, describe) == 24);
    assert!(offset_of!(lazyt_plugin_device_t, open) == 32);
    assert!(offset_of!(lazyt_plugin_device_t, close) == 40);
    assert!(offset_of!(lazyt_plugin_device_t, memory_stats) == 48);
    assert!(offset_of!(lazyt_plugin_device_t, trim) == 56);
    assert!(size_of::<lazyt_plugin_event_t>() == 56);
    assert!(offset_of!(lazyt_plugin_event_t, struct_size) == 0);
    assert!(offset_of!(lazyt_plugin_event_t, next) == 8);
    assert!(offset_of!(lazyt_plugin_event_t, ready) == 16);
    assert!(offset_of!(lazyt_plugin_event_t, wait) == 24);
    assert!(offset_of!(lazyt_plugin_event_t, on_ready) == 32);
    assert!(offset_of!(lazyt_plugin_event_t, retain) == 40);
    assert!(offset_of!(lazyt_plugin_event_t, release) == 48);
    assert!(size_of::<lazyt_compile_args_t>() == 32);
    assert!(offset_of!(lazyt_compile_args_t, struct_size) == 0);
    assert!(offset_of!(lazyt_compile_args_t, next) == 8);
    assert!(offset_of!(lazyt_compile_args_t, program) == 16);
    assert!(offset_of!(lazyt_compile_args_t, flags) == 24);
    assert!(size_of::<lazyt_output_meta_t>() == 40);
    assert!(offset_of!(lazyt_output_meta_t, struct_size) == 0);
    assert!(offset_of!(lazyt_output_meta_t, next) == 8);
    assert!(offset_of!(lazyt_output_meta_t, size_bytes) == 16);
    assert!(offset_of!(lazyt_output_meta_t, alignment) == 24);
    assert!(offset_of!(lazyt_output_meta_t, memory_space) == 32);
    assert!(offset_of!(lazyt_output_meta_t, opaque) == 36);
    assert!(size_of::<lazyt_scalar_t>() == 16);
    assert!(offset_of!(lazyt_scalar_t, bytes) == 0);
    assert!(size_of::<lazyt_execute_input_t>() == 48);
    assert!(offset_of!(lazyt_execute_input_t, buffer) == 0);
    assert!(offset_of!(lazyt_execute_input_t, scalar) == 8);
    assert!(offset_of!(lazyt_execute_input_t, stable_id) == 24);
    assert!(offset_of!(lazyt_execute_input_t, content_version) == 32);
    assert!(offset_of!(lazyt_execute_input_t, flags) == 40);
    assert!(size_of::<lazyt_execute_args_t>() == 72);
    assert!(offset_of!(lazyt_execute_args_t, struct_size) == 0);
    assert!(offset_of!(lazyt_execute_args_t, next) == 8);
    assert!(offset_of!(lazyt_execute_args_t, inputs) == 16);
    assert!(offset_of!(lazyt_execute_args_t, input_count) == 24);
    assert!(offset_of!(lazyt_execute_args_t, input_stride) == 32);
    assert!(offset_of!(lazyt_execute_args_t, outputs) == 40);
    assert!(offset_of!(lazyt_execute_args_t, output_count) == 48);
    assert!(offset_of!(lazyt_execute_args_t, waits) == 56);
    assert!(size_of::<lazyt_executable_memory_t>() == 40);
    assert!(offset_of!(lazyt_executable_memory_t, struct_size) == 0);
    assert!(offset_of!(lazyt_executable_memory_t, next) == 8);
    assert!(offset_of!(lazyt_executable_memory_t, code_bytes) == 16);
    assert!(offset_of!(lazyt_executable_memory_t, scratch_bytes) == 24);
    assert!(offset_of!(lazyt_executable_memory_t, flags) == 32);
    assert!(size_of::<lazyt_plugin_executable_t>() == 80);
    assert!(offset_of!(lazyt_plugin_executable_t, struct_size) == 0);
    assert!(offset_of!(lazyt_plugin_executable_t, next) == 8);
    assert!(offset_of!(lazyt_plugin_executable_t, compile) == 16);
    assert!(offset_of!(lazyt_plugin_executable_t, output_meta) == 24);
    assert!(offset_of!(lazyt_plugin_executable_t, memory) == 32);
    assert!(offset_of!(lazyt_plugin_executable_t, execute) == 40);
    assert!(offset_of!(lazyt_plugin_executable_t, serialize) == 48);
    assert!(offset_of!(lazyt_plugin_executable_t, load) == 56);
    assert!(offset_of!(lazyt_plugin_executable_t, identity) == 64);
    assert!(offset_of!(lazyt_plugin_executable_t, release) == 72);
    assert!(size_of::<lazyt_host_services_t>() == 112);
    assert!(offset_of!(lazyt_host_services_t, struct_size) == 0);
    assert!(offset_of!(lazyt_host_services_t, next) == 8);
    assert!(offset_of!(lazyt_host_services_t, log) == 16);
    assert!(offset_of!(lazyt_host_services_t, alloc) == 24);
    assert!(offset_of!(lazyt_host_services_t, free) == 32);
    assert!(offset_of!(lazyt_host_services_t, thread_count) == 40);
    assert!(offset_of!(lazyt_host_services_t, parallel_for) == 48);
    assert!(offset_of!(lazyt_host_services_t, trace_begin) == 56);
    assert!(offset_of!(lazyt_host_services_t, trace_end) == 64);
    assert!(offset_of!(lazyt_host_services_t, count) == 72);
    assert!(offset_of!(lazyt_host_services_t, cancelled) == 80);
    assert!(offset_of!(lazyt_host_services_t, option) == 88);
    assert!(offset_of!(lazyt_host_services_t, cache_get) == 96);
    assert!(offset_of!(lazyt_host_services_t, cache_put) == 104);
    assert!(size_of::<lazyt_host_t>() == 72);
    assert!(offset_of!(lazyt_host_t, struct_size) == 0);
    assert!(offset_of!(lazyt_host_t, next) == 8);
    assert!(offset_of!(lazyt_host_t, abi_major) == 16);
    assert!(offset_of!(lazyt_host_t, abi_minor) == 20);
    assert!(offset_of!(lazyt_host_t, abi_draft) == 24);
    assert!(offset_of!(lazyt_host_t, reserved) == 28);
    assert!(offset_of!(lazyt_host_t, version) == 32);
    assert!(offset_of!(lazyt_host_t, status) == 48);
    assert!(offset_of!(lazyt_host_t, services) == 56);
    assert!(offset_of!(lazyt_host_t, get_extension) == 64);
    assert!(size_of::<lazyt_handshake_t>() == 56);
    assert!(offset_of!(lazyt_handshake_t, struct_size) == 0);
    assert!(offset_of!(lazyt_handshake_t, next) == 8);
    assert!(offset_of!(lazyt_handshake_t, byte_order) == 16);
    assert!(offset_of!(lazyt_handshake_t, size_pointer) == 20);
    assert!(offset_of!(lazyt_handshake_t, size_enum) == 21);
    assert!(offset_of!(lazyt_handshake_t, align_u64) == 22);
    assert!(offset_of!(lazyt_handshake_t, align_double) == 23);
    assert!(offset_of!(lazyt_handshake_t, size_string) == 24);
    assert!(offset_of!(lazyt_handshake_t, size_value) == 26);
    assert!(offset_of!(lazyt_handshake_t, size_node) == 28);
    assert!(offset_of!(lazyt_handshake_t, size_arg) == 30);
    assert!(offset_of!(lazyt_handshake_t, size_program) == 32);
    assert!(offset_of!(lazyt_handshake_t, size_execute_input) == 34);
    assert!(offset_of!(lazyt_handshake_t, size_execute_args) == 36);
    assert!(offset_of!(lazyt_handshake_t, size_answer) == 38);
    assert!(offset_of!(lazyt_handshake_t, size_host) == 40);
    assert!(offset_of!(lazyt_handshake_t, size_services) == 42);
    assert!(offset_of!(lazyt_handshake_t, size_status) == 44);
    assert!(offset_of!(lazyt_handshake_t, size_plugin) == 46);
    assert!(offset_of!(lazyt_handshake_t, size_buffer_table) == 48);
    assert!(offset_of!(lazyt_handshake_t, size_event_table) == 50);
    assert!(offset_of!(lazyt_handshake_t, size_device_table) == 52);
    assert!(offset_of!(lazyt_handshake_t, size_executable_table) == 54);
    assert!(size_of::<lazyt_plugin_info_t>() == 104);
    assert!(offset_of!(lazyt_plugin_info_t, struct_size) == 0);
    assert!(offset_of!(lazyt_plugin_info_t, next) == 8);
    assert!(offset_of!(lazyt_plugin_info_t, name) == 16);
    assert!(offset_of!(lazyt_plugin_info_t, version) == 32);
    assert!(offset_of!(lazyt_plugin_info_t, description) == 48);
    assert!(offset_of!(lazyt_plugin_info_t, vendor) == 64);
    assert!(offset_of!(lazyt_plugin_info_t, why_none) == 80);
    assert!(offset_of!(lazyt_plugin_info_t, score) == 96);
    assert!(offset_of!(lazyt_plugin_info_t, reserved) == 100);
    assert!(size_of::<lazyt_plugin_t>() == 112);
    assert!(offset_of!(lazyt_plugin_t, struct_size) == 0);
    assert!(offset_of!(lazyt_plugin_t, next) == 8);
    assert!(offset_of!(lazyt_plugin_t, abi_major) == 16);
    assert!(offset_of!(lazyt_plugin_t, abi_minor) == 20);
    assert!(offset_of!(lazyt_plugin_t, abi_draft) == 24);
    assert!(offset_of!(lazyt_plugin_t, min_host_minor) == 28);
    assert!(offset_of!(lazyt_plugin_t, handshake) == 32);
    assert!(offset_of!(lazyt_plugin_t, init) == 40);
    assert!(offset_of!(lazyt_plugin_t, shutdown) == 48);
    assert!(offset_of!(lazyt_plugin_t, info) == 56);
    assert!(offset_of!(lazyt_plugin_t, get_extension) == 64);
    assert!(offset_of!(lazyt_plugin_t, device) == 72);
    assert!(offset_of!(lazyt_plugin_t, buffer) == 80);
    assert!(offset_of!(lazyt_plugin_t, event) == 88);
    assert!(offset_of!(lazyt_plugin_t, capability) == 96);
    assert!(offset_of!(lazyt_plugin_t, executable) == 104);
    assert!(size_of::<lazyt_table_t>() == 24);
    assert!(offset_of!(lazyt_table_t, offset) == 0);
    assert!(offset_of!(lazyt_table_t, count) == 8);
    assert!(offset_of!(lazyt_table_t, stride) == 16);
    assert!(size_of::<lazyt_program_t>() == 320);
    assert!(offset_of!(lazyt_program_t, magic) == 0);
    assert!(offset_of!(lazyt_program_t, format) == 4);
    assert!(offset_of!(lazyt_program_t, total_size) == 8);
    assert!(offset_of!(lazyt_program_t, header_size) == 16);
    assert!(offset_of!(lazyt_program_t, flags) == 24);
    assert!(offset_of!(lazyt_program_t, values) == 32);
    assert!(offset_of!(lazyt_program_t, nodes) == 56);
    assert!(offset_of!(lazyt_program_t, args) == 80);
    assert!(offset_of!(lazyt_program_t, ints) == 104);
    assert!(offset_of!(lazyt_program_t, strings) == 128);
    assert!(offset_of!(lazyt_program_t, inputs) == 152);
    assert!(offset_of!(lazyt_program_t, outputs) == 176);
    assert!(offset_of!(lazyt_program_t, constants) == 200);
    assert!(offset_of!(lazyt_program_t, notes) == 224);
    assert!(offset_of!(lazyt_program_t, symbols) == 248);
    assert!(offset_of!(lazyt_program_t, exprs) == 272);
    assert!(offset_of!(lazyt_program_t, data) == 296);
    assert!(size_of::<lazyt_text_t>() == 8);
    assert!(offset_of!(lazyt_text_t, start) == 0);
    assert!(offset_of!(lazyt_text_t, size) == 4);
    assert!(size_of::<lazyt_value_t>() == 24);
    assert!(offset_of!(lazyt_value_t, dtype) == 0);
    assert!(offset_of!(lazyt_value_t, flags) == 4);
    assert!(offset_of!(lazyt_value_t, rank) == 8);
    assert!(offset_of!(lazyt_value_t, dims) == 12);
    assert!(offset_of!(lazyt_value_t, strides) == 16);
    assert!(offset_of!(lazyt_value_t, producer) == 20);
    assert!(size_of::<lazyt_node_t>() == 48);
    assert!(offset_of!(lazyt_node_t, name) == 0);
    assert!(offset_of!(lazyt_node_t, overload) == 8);
    assert!(offset_of!(lazyt_node_t, op) == 16);
    assert!(offset_of!(lazyt_node_t, op_version) == 20);
    assert!(offset_of!(lazyt_node_t, args) == 24);
    assert!(offset_of!(lazyt_node_t, arg_count) == 28);
    assert!(offset_of!(lazyt_node_t, results) == 32);
    assert!(offset_of!(lazyt_node_t, result_count) == 36);
    assert!(offset_of!(lazyt_node_t, note) == 40);
    assert!(offset_of!(lazyt_node_t, reserved) == 44);
    assert!(size_of::<lazyt_arg_t>() == 16);
    assert!(offset_of!(lazyt_arg_t, kind) == 0);
    assert!(offset_of!(lazyt_arg_t, count) == 4);
    assert!(offset_of!(lazyt_arg_t, payload) == 8);
    assert!(size_of::<lazyt_input_t>() == 8);
    assert!(offset_of!(lazyt_input_t, value) == 0);
    assert!(offset_of!(lazyt_input_t, flags) == 4);
    assert!(size_of::<lazyt_output_t>() == 8);
    assert!(offset_of!(lazyt_output_t, value) == 0);
    assert!(offset_of!(lazyt_output_t, donor) == 4);
    assert!(size_of::<lazyt_constant_t>() == 48);
    assert!(offset_of!(lazyt_constant_t, value) == 0);
    assert!(offset_of!(lazyt_constant_t, reserved) == 4);
    assert!(offset_of!(lazyt_constant_t, file) == 8);
    assert!(offset_of!(lazyt_constant_t, offset) == 16);
    assert!(offset_of!(lazyt_constant_t, size) == 24);
    assert!(offset_of!(lazyt_constant_t, hash) == 32);
    assert!(size_of::<lazyt_note_t>() == 24);
    assert!(offset_of!(lazyt_note_t, file) == 0);
    assert!(offset_of!(lazyt_note_t, module) == 8);
    assert!(offset_of!(lazyt_note_t, line) == 16);
    assert!(offset_of!(lazyt_note_t, reserved) == 20);
    assert!(size_of::<lazyt_symbol_t>() == 24);
    assert!(offset_of!(lazyt_symbol_t, name) == 0);
    assert!(offset_of!(lazyt_symbol_t, min) == 8);
    assert!(offset_of!(lazyt_symbol_t, max) == 16);
    assert!(size_of::<lazyt_expr_t>() == 24);
    assert!(offset_of!(lazyt_expr_t, kind) == 0);
    assert!(offset_of!(lazyt_expr_t, reserved) == 4);
    assert!(offset_of!(lazyt_expr_t, a) == 8);
    assert!(offset_of!(lazyt_expr_t, b) == 16);
    assert!(size_of::<lazyt_host_status_t>() == 80);
    assert!(offset_of!(lazyt_host_status_t, struct_size) == 0);
    assert!(offset_of!(lazyt_host_status_t, next) == 8);
    assert!(offset_of!(lazyt_host_status_t, create) == 16);
    assert!(offset_of!(lazyt_host_status_t, annotate) == 24);
    assert!(offset_of!(lazyt_host_status_t, code) == 32);
    assert!(offset_of!(lazyt_host_status_t, message) == 40);
    assert!(offset_of!(lazyt_host_status_t, note_count) == 48);
    assert!(offset_of!(lazyt_host_status_t, note) == 56);
    assert!(offset_of!(lazyt_host_status_t, retain) == 64);
    assert!(offset_of!(lazyt_host_status_t, release) == 72);
};
