// Any bytes as a program block: what the verifier takes can be read with the accessors of lazyt/program.h,
// all of it, without a look outside the block.
#include <cstring>
#include <memory>

#include "ir/verifier.h"
#include "program_walk.h"
#include "target.h"

using namespace lazyt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // On the heap at its exact size: one byte too far is a report.
  std::unique_ptr<uint8_t[]> block(new uint8_t[size]);
  std::memcpy(block.get(), data, size);
  base::Status status = ir::verify({block.get(), size});
  if (!status.ok()) {
    REQUIRE(status.code() == LAZYT_CODE_DATA_LOSS, status.to_string());
    return 0;
  }
  const char* wrong = walk_program(reinterpret_cast<const lazyt_program_t*>(block.get()));
  REQUIRE(!wrong, wrong ? wrong : "");
  return 0;
}
