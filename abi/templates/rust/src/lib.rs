//! acme, a lazyt backend: who it is, and its device. Rules such as (BUF-5) stand in lazyt's headers.
#![deny(unsafe_code)]

mod buffer;
mod compile;
mod execute;
mod ops;

use std::sync::Arc;

use lazyt_plugin::{Answer, Backend, BufferDesc, Device, DeviceInfo, Error, MemoryStats, Node, Program, Result};

use buffer::{HostBuffer, Usage};
use compile::Compiled;

pub const ALIGNMENT: u64 = 64;

struct Acme;

impl Backend for Acme {
    type Device = Cpu;
    const NAME: &'static str = "acme";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const DESCRIPTION: &'static str = "acme: runs programs on the CPU";
    const VENDOR: &'static str = "acme";
    const SCORE: i32 = -1; // below 0: taken only by those who name it; raise it when acme is fast

    // Open the driver in `init`, not when loaded (LIB-3).
    fn device_count() -> Result<u32> {
        Ok(1)
    }
    fn describe(_index: u32) -> Result<DeviceInfo> {
        Ok(DeviceInfo {
            name: "acme on the CPU",
            vendor: "acme",
            host_visible: true, // false if the CPU cannot reach your memory
            total_bytes: 0,
            alignment: ALIGNMENT,
        })
    }
    fn open(_index: u32) -> Result<Cpu> {
        Ok(Cpu { usage: Arc::default() })
    }
}

lazyt_plugin::export_plugin!(Acme);

pub struct Cpu {
    usage: Arc<Usage>,
}

impl Device for Cpu {
    type Buffer = HostBuffer;
    type Executable = Compiled;

    fn memory_stats(&self) -> MemoryStats {
        self.usage.stats()
    }
    fn alloc(&self, desc: BufferDesc) -> Result<HostBuffer> {
        if desc.memory_space != 0 {
            return Err(Error::invalid("acme has memory space 0 only"));
        }
        HostBuffer::new(desc.size, desc.alignment.max(ALIGNMENT), &self.usage)
    }
    fn answer(&self, program: Program<'_>, node: Node<'_>) -> Answer {
        match ops::find(program, node) {
            Ok(_) => Answer::Take { group: 0, cost_ns: 0 },
            Err((reason, why)) => Answer::Refuse { reason, why: format!("{}: {why}", node.full_name()) },
        }
    }
    fn compile(&self, program: Program<'_>, _flags: u64) -> Result<Compiled> {
        Compiled::new(program, &self.usage)
    }
}
