#include "exec/transfer.h"

#include <fmt/format.h>

#include "base/counters.h"
#include "exec/in_flight.h"
#include "lazyt/dlpack.hpp"

namespace lazyt::exec {
namespace {

using base::Ref;
using base::Status;
using loader::Buffer;
using loader::Device;

// The calls below are false where this way is not open; an error ends the transfer.

base::Result<bool> copy_within_plugin(const Ref<Data>& from, Data& to, const Ref<Device>& device) {
  const Ref<Buffer> source = from->buffer();
  if (from->opaque() || source->device->plugin.get() != device->plugin.get()) return false;
  LAZYT_ASSIGN_OR_RETURN(Ref<Buffer> buffer, with_room(*device, [&] { return Buffer::alloc(device, source->size); }));
  LAZYT_ASSIGN_OR_RETURN(auto copied, buffer->copy_from(*source, 0, 0, source->size, nullptr));
  if (copied) {
    from->add_reader(copied);
    InFlight::get().hold(copied, {Ref<const base::RefCounted>(source), Ref<const base::RefCounted>(buffer)});
  }
  to.fulfil(std::move(buffer), std::move(copied));
  base::counter("DeviceCopyWithinPlugin").add();
  return true;
}

base::Result<bool> share_memory(const Ref<Data>& from, Data& to, const Ref<Device>& device) {
  const Ref<Buffer> source = from->buffer();
  const loader::DeviceInfo &a = source->device->info, &b = device->info;
  if (from->opaque() || a.dlpack_type == 0 || a.dlpack_type != b.dlpack_type || a.dlpack_id != b.dlpack_id) return false;
  if (!source->device->table().buffer->export_dlpack || !device->table().buffer->import_dlpack) return false;
  LAZYT_ASSIGN_OR_RETURN(DLManagedTensorVersioned * tensor, source->export_dlpack());
  auto buffer = Buffer::import_dlpack(device, tensor, source->size);
  if (!buffer.ok()) {  // misaligned, say: what the importer wants is its business
    if (tensor->deleter) tensor->deleter(tensor);
    return false;
  }
  to.alias(from, std::move(buffer).value());
  base::counter("DeviceCopyShared").add();
  return true;
}

Status through_host(const Ref<Data>& from, Data& to, const Ref<Device>& device) {
  auto bytes = std::make_shared<std::vector<uint8_t>>(from->size_bytes);
  LAZYT_RETURN_IF_ERROR(from->read(0, bytes->data(), bytes->size(), bytes));
  LAZYT_ASSIGN_OR_RETURN(auto buffer, with_room(*device, [&] { return Buffer::from_host(device, bytes->data(), bytes->size(), bytes); }));
  to.fulfil(std::move(buffer), nullptr);
  base::counter("DeviceCopyThroughHost").add();
  return {};
}

Status try_all(const Ref<Data>& from, Data& to, const Ref<Device>& device) {
  LAZYT_RETURN_IF_ERROR(from->wait());
  if (from->size_bytes > 0)
    for (auto* way : {&copy_within_plugin, &share_memory}) {
      LAZYT_ASSIGN_OR_RETURN(const bool done, way(from, to, device));
      if (done) return {};
    }
  return through_host(from, to, device);
}

}  // namespace

void transfer(const Ref<Data>& from, Data& to, const Ref<Device>& device) {
  if (Status status = try_all(from, to, device); !status.ok())
    to.poison(status.with_note("copy", fmt::format("{} bytes to '{}'", from->size_bytes, device->info.name)));
}

}  // namespace lazyt::exec
