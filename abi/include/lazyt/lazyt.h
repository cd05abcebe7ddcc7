/* lazyt.h - the whole stable interface between a lazyt host and a plugin.
 *
 * A plugin is a shared library that runs programs on some device. It exports one
 * symbol, lazyt_plugin_entry_v1 (plugin.h). Everything else is reached through
 * tables of functions: the plugin fills lazyt_plugin_*_t, the host fills lazyt_host_*_t.
 * These headers are the authority; where other text differs, they decide.
 *
 * Read in this order: base, dtype, status, event, device, buffer, program, capability,
 * executable, host, plugin.
 *
 * CONVENTIONS (cited by number everywhere)
 *
 *  C-1  Structs. Every struct that crosses begins with `uint64_t struct_size`, filled by its
 *       writer with sizeof, then `const lazyt_chained_t *next`. A reader touches no field that
 *       lies beyond the struct_size it was given. Records inside a program block are the one
 *       exception: their size is the stride in the block's header.
 *  C-2  Growth. Structs and tables grow only at the end. An optional slot may be NULL; the
 *       header says what the host then does. Deprecated slots stay filled until the next major.
 *  C-3  Arrays of structs come as pointer, count and stride in bytes, so elements can grow.
 *  C-4  Strings are lazyt_string_t: pointer and length, UTF-8, not terminated.
 *  C-5  Results come last, as out_x, and are written only on success.
 *  C-6  Handles are pointers to named incomplete structs, never `void *`.
 *  C-7  Errors. A function returns `lazyt_status_t *`; NULL means OK. The caller owns a
 *       non-NULL status and releases it. Nothing exits, aborts or throws across the boundary.
 *  C-8  Ownership. The first line of each pointer's comment holds one of five words:
 *         borrowed   valid during the call only
 *         kept       borrowed until the object that took it is released
 *         given      the receiver must release it
 *         shared     retain/release counted
 *         static     valid while the library that owns it is loaded
 *       An argument without a word is borrowed.
 *  C-9  Threads. Each function carries a tag: [any] any thread, concurrently; [device] one
 *       call at a time for each device handle; [init] once, before or after all others.
 *  C-10 Integers have fixed width; an enum is a typedef of int32_t or uint32_t with written-out
 *       values; readers must handle values they do not know. Flags are uint32_t or uint64_t.
 *       Padding is explicit and zero.
 *  C-11 Sizes and offsets are in bytes, dims and strides in elements, times in nanoseconds.
 *  C-12 Allocation always returns through the table that made the object. release and close accept
 *       NULL.
 *  C-13 A handle is used from the call that gave it until its last release, and only with the tables
 *       of the plugin that gave it.
 *
 * SPDX-License-Identifier: BSL-1.0
 */
#ifndef LAZYT_LAZYT_H_
#define LAZYT_LAZYT_H_

#include "lazyt/base.h"
#include "lazyt/buffer.h"
#include "lazyt/capability.h"
#include "lazyt/device.h"
#include "lazyt/dtype.h"
#include "lazyt/event.h"
#include "lazyt/executable.h"
#include "lazyt/host.h"
#include "lazyt/ops.h"
#include "lazyt/plugin.h"
#include "lazyt/program.h"
#include "lazyt/status.h"

#endif /* LAZYT_LAZYT_H_ */
