/* placeholder until generated from abi/ops.toml */
#ifndef LAZYT_OPS_H_
#define LAZYT_OPS_H_
#endif
