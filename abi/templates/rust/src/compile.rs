//! What is kept of a program.
use std::sync::Arc;

use lazyt_plugin::{Code, Error, Executable, ExecutableMemory, OutputMeta, OwnedProgram, Program, Result, Run};

use crate::buffer::{HostBuffer, Share, Usage};
use crate::ops::{self, Operator};
use crate::ALIGNMENT;

pub struct Compiled {
    pub program: OwnedProgram, // the host's block is ours during compile only (EXE-1)
    pub operators: Vec<Operator>,
    share: Share,
}

impl Compiled {
    pub fn new(program: Program<'_>, usage: &Arc<Usage>) -> Result<Self> {
        if program.constants().any(|(_, bytes)| bytes.is_none()) {
            return Err(Error::new(Code::Unimplemented, "acme: constants in files are not read"));
        }
        let operators = program.nodes().map(|node| {
            ops::find(program, node).map_err(|(_, why)| Error::new(Code::Unimplemented, format!("{}: {why}", node.full_name())))
        });
        let operators = operators.collect::<Result<_>>()?;
        Ok(Compiled { program: program.to_owned(), operators, share: Share::of(usage, program.bytes_in_block() as u64) })
    }
}

impl Executable for Compiled {
    type Buffer = HostBuffer;

    fn output_meta(&self, index: usize) -> Result<OutputMeta> {
        let program = self.program.view();
        let output = program.outputs().nth(index).ok_or_else(|| Error::invalid("acme: no such output"))?;
        let size = program.value(output.value).span_bytes() as u64;
        Ok(OutputMeta { size, alignment: ALIGNMENT, ..OutputMeta::default() })
    }
    fn memory(&self) -> ExecutableMemory {
        ExecutableMemory { code_bytes: self.share.bytes(), scratch_bytes: 0 }
    }
    fn run(&self, run: &Run<HostBuffer>) -> Result<()> {
        self.execute(run)
    }
}
