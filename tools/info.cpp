// lazyt info: what a backend says of itself and of its devices.
#include <memory>
#include <string>

#include <fmt/format.h>

#include "lazyt/ext/draft/attributes.h"
#include "loader/loader.h"
#include "verbs.h"

namespace lazyt::tools {
namespace {

void print_device(uint32_t index, const loader::Device& device) {
  const loader::DeviceInfo& d = device.info;
  fmt::print("device {}: {}\n", index, d.name);
  if (!d.vendor.empty()) fmt::print("  vendor        {}\n", d.vendor);
  fmt::print("  memory        {}\n", d.total_bytes ? fmt::format("{:.1f} GiB", d.total_bytes / double(1 << 30)) : "not told");
  fmt::print("  alignment     {} bytes\n", d.alignment);
  fmt::print("  host-visible  {}\n", device.host_visible() ? "yes" : "no");
  fmt::print("  synchronous   {}\n", device.synchronous() ? "yes" : "no");
  fmt::print("  symbolic dims {}\n", d.flags & LAZYT_DEVICE_SYMBOLIC_DIMS ? "yes" : "no");
  fmt::print("  DLPack        {}\n", d.dlpack_type ? fmt::format("type {}, number {}", d.dlpack_type, d.dlpack_id) : "no");
}

// Optional slots, as a vendor left them.
void print_offers(const lazyt_plugin_t& t) {
  fmt::print("offers:");
  if (t.device->trim) fmt::print(" trim");
  if (t.buffer->host_pointer) fmt::print(" host_pointer");
  if (t.buffer->import_dlpack) fmt::print(" import_dlpack");
  if (t.buffer->export_dlpack) fmt::print(" export_dlpack");
  if (t.executable->serialize && t.executable->load) fmt::print(" serialize");
  if (t.executable->identity) fmt::print(" identity");
  if (t.get_extension) fmt::print(" extensions");
  fmt::print("\n");
}

void print_attributes(const lazyt_plugin_t& t) {
  if (!t.get_extension) return;
  const auto* table = static_cast<const lazyt_attributes_t*>(t.get_extension(loader::to_abi(LAZYT_ATTRIBUTES_ID)));
  lazyt_string_t name{}, value{};
  for (uint32_t i = 0; table; ++i) {
    // The first error is the end of the list.
    if (!loader::take_status(table->get(i, &name, &value)).ok()) return;
    fmt::print("  {:13} {}\n", loader::to_string(name), loader::to_string(value));
  }
}

int run(const std::string& backend) {
  auto loaded = loader::load(backend);
  if (!loaded.ok()) {
    fmt::print(stderr, "{}\n", loaded.status().to_string());
    return 1;
  }
  const base::Ref<loader::Plugin>& plugin = loaded.value();
  const loader::PluginInfo& info = plugin->info;
  fmt::print("{} {}: {}\n", info.name, info.version, info.description);
  fmt::print("  vendor        {}\n  library       {}\n  score         {}\n", info.vendor, info.path, info.score);
  fmt::print("  ABI           {}.{}{}, needs a host of {}.{}\n", plugin->table->abi_major, info.abi_minor,
             plugin->table->abi_draft ? fmt::format(" draft {}", plugin->table->abi_draft) : "", plugin->table->abi_major,
             info.min_host_minor);
  print_attributes(*plugin->table);
  print_offers(*plugin->table);
  for (uint32_t i = 0;; i++) {
    auto device = loader::Device::open(plugin, i);
    if (!device.ok() && i > 0 && device.status().code() == LAZYT_CODE_INVALID_ARGUMENT) return 0;  // that was the last
    if (!device.ok()) {
      fmt::print(stderr, "device {}: {}\n", i, device.status().to_string());
      return 1;
    }
    print_device(i, *device.value());
  }
}

}  // namespace

void add_info(CLI::App& app, int& exit_status) {
  auto backend = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("info", "Load a backend and show what it says of itself and of its devices");
  verb->add_option("backend", *backend, "Name or path of the library or of its manifest")->required();
  verb->footer("Runs the backend's code in this process; `lazyt doctor` does so in a helper.");
  verb->callback([backend, &exit_status] { exit_status = run(*backend); });
}

}  // namespace lazyt::tools
