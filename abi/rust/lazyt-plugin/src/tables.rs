//! The tables of the ABI over the traits. All `unsafe` rests on the contract: handles are ours and alive (C-13),
//! pointers are borrowed for the call, results are written on success only (C-5).
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use lazyt_sys::*;

use crate::backend::*;
use crate::error::{bytes, guard, to_c, Code, Error, Result};
use crate::event::{self, Event};
use crate::host;
use crate::program::Program;

type Ret = *mut lazyt_status_t;

/// A device, and the texts of its last query's answers.
struct Opened<D> {
    device: D,
    details: Mutex<Vec<String>>,
}

struct Tables<B>(PhantomData<B>);
type DeviceOf<B> = <B as Backend>::Device;
type BufferOf<B> = <DeviceOf<B> as Device>::Buffer;
type ExecutableOf<B> = <DeviceOf<B> as Device>::Executable;

unsafe fn at<'a, T>(handle: *mut impl Sized) -> Result<&'a T> {
    handle.cast::<T>().as_ref().ok_or_else(|| Error::invalid("a handle is NULL"))
}

/// The events of a list, all of this plugin.
unsafe fn events(waits: lazyt_events_t) -> Vec<Arc<Event>> {
    bytes(waits.events, waits.count).iter().map(|&event| Event::of(event)).collect()
}

/// Runs an operation behind its waits (BUF-6). Without out_event its outcome is the result (BUF-7).
unsafe fn operation(waits: lazyt_events_t, out_event: *mut *mut lazyt_event_t, f: impl FnOnce() -> Result<()>) -> Result<()> {
    let outcome = events(waits).iter().map(|event| event.outcome()).fold(Ok(()), Result::and).and_then(|()| f());
    if out_event.is_null() {
        return outcome;
    }
    let event = Arc::new(Event::default());
    event.complete(outcome);
    *out_event = event.handle();
    Ok(())
}

fn check_range(size: u64, offset: u64, wanted: u64) -> Result<()> {
    if offset <= size && wanted <= size - offset {
        return Ok(());
    }
    Err(Error::new(Code::OutOfRange, format!("offset {offset} and size {wanted} leave a buffer of {size} bytes")))
}

/// The bytes of the caller that an operation writes.
unsafe fn bytes_mut<'a>(data: *mut c_void, size: u64) -> &'a mut [u8] {
    if size == 0 {
        &mut []
    } else {
        std::slice::from_raw_parts_mut(data.cast(), size as usize)
    }
}

impl<B: Backend> Tables<B> {
    unsafe extern "C" fn handshake(seed: u64, out: *mut lazyt_handshake_t) -> u64 {
        handshake_fill(out);
        seed ^ LAZYT_HANDSHAKE_MASK
    }
    unsafe extern "C" fn init() -> Ret {
        guard(B::init)
    }
    unsafe extern "C" fn shutdown() {
        let _ = crate::error::caught(|| {
            B::shutdown();
            Ok(())
        });
    }
    unsafe extern "C" fn info(out: *mut lazyt_plugin_info_t) -> Ret {
        guard(|| {
            let why_none = B::why_none();
            let out = &mut *out;
            out.name = to_c(B::NAME);
            out.version = to_c(B::VERSION);
            out.description = to_c(B::DESCRIPTION);
            out.vendor = to_c(B::VENDOR);
            out.why_none = to_c(why_none);
            out.score = B::SCORE;
            Ok(())
        })
    }

    unsafe extern "C" fn count(out: *mut u32) -> Ret {
        guard(|| {
            *out = B::device_count()?;
            Ok(())
        })
    }
    fn check_index(index: u32) -> Result<()> {
        if index < B::device_count()? {
            return Ok(());
        }
        Err(Error::invalid(format!("{} has no device {index}", B::NAME)))
    }
    unsafe extern "C" fn describe(index: u32, out: *mut lazyt_device_info_t) -> Ret {
        guard(|| {
            Self::check_index(index)?;
            let info = B::describe(index)?;
            let out = &mut *out;
            out.name = to_c(info.name);
            out.vendor = to_c(info.vendor);
            out.flags = if info.host_visible { LAZYT_DEVICE_HOST_VISIBLE } else { 0 };
            out.total_bytes = info.total_bytes;
            out.alignment = info.alignment;
            (out.dlpack_type, out.dlpack_id) = (0, 0);
            Ok(())
        })
    }
    unsafe extern "C" fn open(index: u32, out: *mut *mut lazyt_device_t) -> Ret {
        guard(|| {
            Self::check_index(index)?;
            let opened = Opened { device: B::open(index)?, details: Mutex::default() };
            *out = Box::into_raw(Box::new(opened)).cast();
            Ok(())
        })
    }
    unsafe extern "C" fn close(device: *mut lazyt_device_t) {
        if !device.is_null() {
            drop(Box::from_raw(device.cast::<Opened<DeviceOf<B>>>()));
        }
    }
    unsafe fn device<'a>(handle: *mut lazyt_device_t) -> Result<&'a Opened<DeviceOf<B>>> {
        at(handle)
    }
    unsafe extern "C" fn memory_stats(device: *mut lazyt_device_t, out: *mut lazyt_memory_stats_t) -> Ret {
        guard(|| {
            let stats = Self::device(device)?.device.memory_stats();
            let out = &mut *out;
            out.bytes_in_use = stats.bytes_in_use;
            out.peak_bytes_in_use = stats.peak_bytes_in_use;
            out.bytes_reserved = stats.bytes_reserved;
            out.derived_bytes = stats.derived_bytes;
            Ok(())
        })
    }
    unsafe extern "C" fn trim(device: *mut lazyt_device_t) -> Ret {
        guard(|| Self::device(device)?.device.trim())
    }

    unsafe extern "C" fn alloc(device: *mut lazyt_device_t, desc: *const lazyt_buffer_desc_t, out: *mut *mut lazyt_buffer_t) -> Ret {
        guard(|| {
            let d = &*desc;
            let desc = BufferDesc { size: d.size_bytes, alignment: d.alignment, memory_space: d.memory_space };
            *out = Box::into_raw(Box::new(Self::device(device)?.device.alloc(desc)?)).cast();
            Ok(())
        })
    }
    /// Every sharing mode is a copy here; `done` is called when it is made (BUF-8).
    unsafe extern "C" fn from_host(device: *mut lazyt_device_t, host_bytes: *const lazyt_host_bytes_t, out: *mut *mut lazyt_buffer_t) -> Ret {
        guard(|| {
            let h = &*host_bytes;
            let buffer = Self::device(device)?.device.alloc(BufferDesc { size: h.size_bytes, alignment: 0, memory_space: 0 })?;
            buffer.write(0, bytes(h.data.cast(), h.size_bytes))?;
            if let Some(done) = h.done {
                done(h.done_user_data);
            }
            *out = Box::into_raw(Box::new(buffer)).cast();
            Ok(())
        })
    }
    unsafe fn buffer<'a>(handle: *mut lazyt_buffer_t) -> Result<&'a BufferOf<B>> {
        at(handle)
    }
    unsafe extern "C" fn to_host(
        buffer: *mut lazyt_buffer_t,
        offset: u64,
        dst: *mut c_void,
        size: u64,
        waits: lazyt_events_t,
        out_event: *mut *mut lazyt_event_t,
    ) -> Ret {
        guard(|| {
            let buffer = Self::buffer(buffer)?;
            check_range(buffer.size(), offset, size)?;
            operation(waits, out_event, || buffer.read(offset, bytes_mut(dst, size)))
        })
    }
    unsafe extern "C" fn copy(
        src: *mut lazyt_buffer_t,
        src_offset: u64,
        dst: *mut lazyt_buffer_t,
        dst_offset: u64,
        size: u64,
        waits: lazyt_events_t,
        out_event: *mut *mut lazyt_event_t,
    ) -> Ret {
        guard(|| {
            let (src, dst) = (Self::buffer(src)?, Self::buffer(dst)?);
            check_range(src.size(), src_offset, size)?;
            check_range(dst.size(), dst_offset, size)?;
            operation(waits, out_event, || dst.copy_from(dst_offset, src, src_offset, size))
        })
    }
    unsafe extern "C" fn size(buffer: *mut lazyt_buffer_t, out: *mut u64) -> Ret {
        guard(|| {
            *out = Self::buffer(buffer)?.size();
            Ok(())
        })
    }
    unsafe extern "C" fn host_pointer(buffer: *mut lazyt_buffer_t, out: *mut *mut c_void) -> Ret {
        guard(|| {
            let none = || Error::new(Code::Unimplemented, "the CPU cannot reach this memory");
            *out = Self::buffer(buffer)?.host_pointer().ok_or_else(none)?.cast();
            Ok(())
        })
    }
    unsafe extern "C" fn release_buffer(buffer: *mut lazyt_buffer_t) {
        if !buffer.is_null() {
            drop(Box::from_raw(buffer.cast::<BufferOf<B>>()));
        }
    }

    unsafe extern "C" fn query(
        device: *mut lazyt_device_t,
        program: *const lazyt_program_t,
        answers: *mut lazyt_answer_t,
        count: u64,
        stride: u64,
    ) -> Ret {
        guard(|| {
            let opened = Self::device(device)?;
            let given = opened.device.query(Program::new(program));
            if given.len() as u64 != count {
                return Err(Error::new(Code::Internal, "another number of answers than nodes"));
            }
            let mut details = opened.details.lock().unwrap_or_else(|e| e.into_inner());
            details.clear();
            for (i, answer) in given.into_iter().enumerate() {
                let out = &mut *answers.byte_add(i * stride as usize); // C-3
                match answer {
                    Answer::Take { group, cost_ns } => {
                        (out.kind, out.group, out.cost_ns) = (LAZYT_ANSWER_TAKE, group, cost_ns);
                    }
                    Answer::TakeConstantArgs => {
                        (out.kind, out.condition) = (LAZYT_ANSWER_ONLY_IF, LAZYT_CONDITION_CONSTANT_ARGS);
                    }
                    Answer::Refuse { reason, why } => {
                        (out.kind, out.reason) = (LAZYT_ANSWER_REFUSE, reason as lazyt_reason_t);
                        out.detail = to_c(&why); // the characters stay where they are when the String moves
                        details.push(why);
                    }
                }
            }
            Ok(())
        })
    }

    unsafe extern "C" fn compile(device: *mut lazyt_device_t, args: *const lazyt_compile_args_t, out: *mut *mut lazyt_executable_t) -> Ret {
        guard(|| {
            let executable = Self::device(device)?.device.compile(Program::new((*args).program), (*args).flags)?;
            *out = Arc::into_raw(Arc::new(executable)).cast_mut().cast();
            Ok(())
        })
    }
    unsafe fn executable<'a>(handle: *mut lazyt_executable_t) -> Result<&'a ExecutableOf<B>> {
        at(handle)
    }
    unsafe extern "C" fn output_meta(executable: *mut lazyt_executable_t, index: u64, out: *mut lazyt_output_meta_t) -> Ret {
        guard(|| {
            let meta = Self::executable(executable)?.output_meta(index as usize)?;
            let out = &mut *out;
            (out.size_bytes, out.alignment) = (meta.size, meta.alignment);
            (out.memory_space, out.opaque) = (meta.memory_space, meta.opaque as u32);
            Ok(())
        })
    }
    unsafe extern "C" fn memory(executable: *mut lazyt_executable_t, out: *mut lazyt_executable_memory_t) -> Ret {
        guard(|| {
            let memory = Self::executable(executable)?.memory();
            ((*out).code_bytes, (*out).scratch_bytes) = (memory.code_bytes, memory.scratch_bytes);
            (*out).flags = if memory.keeps_nothing { LAZYT_EXECUTABLE_KEEPS_NOTHING } else { 0 };
            Ok(())
        })
    }
    unsafe extern "C" fn execute(executable: *mut lazyt_executable_t, args: *const lazyt_execute_args_t, out_event: *mut *mut lazyt_event_t) -> Ret {
        guard(|| {
            let raw: *const ExecutableOf<B> = executable.cast();
            Self::executable(executable)?;
            Arc::increment_strong_count(raw);
            let executable = Arc::from_raw(raw);
            let args = &*args;
            let inputs = (0..args.input_count as usize).map(|i| {
                let input = &*args.inputs.byte_add(i * args.input_stride as usize); // C-3
                Input {
                    buffer: input.buffer.cast_const().cast(),
                    scalar: input.scalar.bytes,
                    key: (input.stable_id, input.content_version),
                    donated: input.flags & LAZYT_EXECUTE_DONATED != 0,
                }
            });
            let event = Arc::new(Event::default());
            let outputs = bytes(args.outputs, args.output_count).iter().map(|b| b.cast_const().cast());
            let run = Run { inputs: inputs.collect(), outputs: outputs.collect(), waits: events(args.waits), event: event.clone() };
            crate::error::caught(|| {
                executable.launch(run);
                Ok(())
            })?;
            *out_event = event.handle();
            Ok(())
        })
    }
    unsafe extern "C" fn release_executable(executable: *mut lazyt_executable_t) {
        if !executable.is_null() {
            Arc::decrement_strong_count(executable.cast::<ExecutableOf<B>>().cast_const());
        }
    }

    const DEVICE: lazyt_plugin_device_t = lazyt_plugin_device_t {
        struct_size: size_of::<lazyt_plugin_device_t>() as u64,
        next: null(),
        count: Some(Self::count),
        describe: Some(Self::describe),
        open: Some(Self::open),
        close: Some(Self::close),
        memory_stats: Some(Self::memory_stats),
        trim: Some(Self::trim),
    };
    const BUFFER: lazyt_plugin_buffer_t = lazyt_plugin_buffer_t {
        struct_size: size_of::<lazyt_plugin_buffer_t>() as u64,
        next: null(),
        alloc: Some(Self::alloc),
        from_host: Some(Self::from_host),
        to_host: Some(Self::to_host),
        copy: Some(Self::copy),
        size: Some(Self::size),
        host_pointer: Some(Self::host_pointer),
        import_dlpack: None,
        export_dlpack: None,
        release: Some(Self::release_buffer),
    };
    const CAPABILITY: lazyt_plugin_capability_t = lazyt_plugin_capability_t {
        struct_size: size_of::<lazyt_plugin_capability_t>() as u64,
        next: null(),
        query: Some(Self::query),
    };
    const EXECUTABLE: lazyt_plugin_executable_t = lazyt_plugin_executable_t {
        struct_size: size_of::<lazyt_plugin_executable_t>() as u64,
        next: null(),
        compile: Some(Self::compile),
        output_meta: Some(Self::output_meta),
        memory: Some(Self::memory),
        execute: Some(Self::execute),
        serialize: None,
        load: None,
        identity: None,
        release: Some(Self::release_executable),
    };
    const PLUGIN: lazyt_plugin_t = lazyt_plugin_t {
        struct_size: size_of::<lazyt_plugin_t>() as u64,
        next: null(),
        abi_major: LAZYT_ABI_MAJOR,
        abi_minor: LAZYT_ABI_MINOR,
        abi_draft: LAZYT_ABI_DRAFT,
        min_host_minor: 0,
        handshake: Some(Self::handshake),
        init: Some(Self::init),
        shutdown: Some(Self::shutdown),
        info: Some(Self::info),
        get_extension: None,
        device: &Self::DEVICE,
        buffer: &Self::BUFFER,
        event: &event::TABLE,
        capability: &Self::CAPABILITY,
        executable: &Self::EXECUTABLE,
    };
}

/// What `export_plugin!` exports.
pub fn entry<B: Backend>(host: *const lazyt_host_t, out_plugin: *mut *const lazyt_plugin_t) -> *mut lazyt_status_t {
    if host.is_null() || out_plugin.is_null() {
        return null_mut();
    }
    // SAFETY: what the host calls the entry with (plugin.h).
    unsafe {
        let adopted = host::adopt(host);
        guard(|| {
            adopted?;
            *out_plugin = &Tables::<B>::PLUGIN;
            Ok(())
        })
    }
}
