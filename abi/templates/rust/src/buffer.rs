//! Bytes on the device, and how many there are.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use lazyt_plugin::{Buffer, Memory, MemoryStats, Result};

/// What memory_stats tells (DEV-4).
#[derive(Default)]
pub struct Usage {
    bytes: AtomicU64,
    peak: AtomicU64,
}

impl Usage {
    pub fn stats(&self) -> MemoryStats {
        let bytes = self.bytes.load(Relaxed);
        let peak = self.peak.load(Relaxed).max(bytes);
        MemoryStats { bytes_in_use: bytes, peak_bytes_in_use: peak, bytes_reserved: bytes, derived_bytes: 0 }
    }
}

/// Counts bytes for as long as it lives.
pub struct Share {
    usage: Arc<Usage>,
    bytes: u64,
}

impl Share {
    pub fn of(usage: &Arc<Usage>, bytes: u64) -> Self {
        let now = usage.bytes.fetch_add(bytes, Relaxed) + bytes;
        usage.peak.fetch_max(now, Relaxed);
        Share { usage: usage.clone(), bytes }
    }
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.usage.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

pub struct HostBuffer {
    memory: RwLock<Memory>,
    share: Share,
}

impl HostBuffer {
    pub fn new(size: u64, alignment: u64, usage: &Arc<Usage>) -> Result<Self> {
        let memory = Memory::new(size as usize, alignment as usize)?;
        Ok(HostBuffer { memory: RwLock::new(memory), share: Share::of(usage, size) })
    }
    pub fn bytes(&self) -> RwLockReadGuard<'_, Memory> {
        self.memory.read().unwrap()
    }
}

impl Buffer for HostBuffer {
    fn size(&self) -> u64 {
        self.share.bytes()
    }
    fn read(&self, offset: u64, dst: &mut [u8]) -> Result<()> {
        let from = offset as usize;
        dst.copy_from_slice(&self.bytes()[from..from + dst.len()]);
        Ok(())
    }
    fn write(&self, offset: u64, src: &[u8]) -> Result<()> {
        let from = offset as usize;
        self.memory.write().unwrap()[from..from + src.len()].copy_from_slice(src);
        Ok(())
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        Some(self.bytes().as_ptr())
    }
}
